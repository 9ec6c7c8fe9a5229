"""Any storage, with its calls counted by kind as a bill from Azure would count them.

Around the other engines the counts tell what the same work would cost there. Requests that the
Azure engine sends again on a bad line are not in them.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from postroom.storage import port
from postroom.storage.port import (
    Batch,
    Blobs,
    Change,
    Claim,
    Item,
    Keys,
    Page,
    Properties,
    Queues,
    Row,
    Storage,
    Tables,
    Troubles,
)


class Calls(msgspec.Struct):
    """How many there were since the start."""

    reads: int = 0  # a row, or a page of rows
    writes: int = 0  # one row
    batches: int = 0  # rows of one partition together
    queue_calls: int = 0
    blob_calls: int = 0

    @property
    def total(self) -> int:
        return self.reads + self.writes + self.batches + self.queue_calls + self.blob_calls


@runtime_checkable
class Committing(Protocol):
    """An engine that writes by commits of its own, and counts them."""

    @property
    def commits(self) -> int: ...


class CountingStorage:
    def __init__(self, storage: Storage) -> None:
        self.calls = Calls()
        self.tables = CountingTables(storage.tables, self.calls)
        self.queues = CountingQueues(storage.queues, self.calls)
        self.blobs = CountingBlobs(storage.blobs, self.calls)
        self._storage = storage

    @property
    def troubles(self) -> Troubles:
        return self._storage.troubles

    @property
    def commits(self) -> int | None:
        """Since the start; None of an engine that has no such thing."""
        return self._storage.commits if isinstance(self._storage, Committing) else None

    async def close(self) -> None:
        await self._storage.close()


class CountingTables:
    def __init__(self, tables: Tables, calls: Calls) -> None:
        self._tables = tables
        self._calls = calls

    async def get(self, table: str, partition: str, key: str) -> Row | None:
        self._calls.reads += 1
        return await self._tables.get(table, partition, key)

    async def insert(self, table: str, partition: str, key: str, properties: Properties) -> str:
        self._calls.writes += 1
        return await self._tables.insert(table, partition, key, properties)

    async def upsert(self, table: str, partition: str, key: str, properties: Properties) -> str:
        self._calls.writes += 1
        return await self._tables.upsert(table, partition, key, properties)

    async def replace(
        self, table: str, partition: str, key: str, properties: Properties, etag: str
    ) -> str:
        self._calls.writes += 1
        return await self._tables.replace(table, partition, key, properties, etag)

    async def delete(self, table: str, partition: str, key: str, etag: str | None = None) -> None:
        self._calls.writes += 1
        await self._tables.delete(table, partition, key, etag)

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        self._calls.batches += 1
        return await self._tables.batch(table, partition, changes)

    async def batches(self, table: str, batches: Sequence[Batch]) -> None:
        self._calls.batches += len(batches)
        await self._tables.batches(table, batches)

    async def scan(
        self,
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> Page:
        self._calls.reads += 1
        return await self._tables.scan(table, keys, where=where, limit=limit, after=after)


class CountingQueues:
    def __init__(self, queues: Queues, calls: Calls) -> None:
        self._queues = queues
        self._calls = calls

    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        self._calls.queue_calls += len(bodies)  # Azure puts one item a request
        await self._queues.put(queue, *bodies, delay_s=delay_s)

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[Claim]:
        self._calls.queue_calls += 1
        return await self._queues.claim(queue, limit=limit, lease_s=lease_s)

    async def extend(self, claim: Claim, *, lease_s: float) -> Claim:
        self._calls.queue_calls += 1
        return await self._queues.extend(claim, lease_s=lease_s)

    async def complete(self, claim: Claim) -> None:
        self._calls.queue_calls += 1
        await self._queues.complete(claim)

    async def release(self, claim: Claim, *, delay_s: float = 0.0) -> None:
        self._calls.queue_calls += 1
        await self._queues.release(claim, delay_s=delay_s)

    async def length(self, queue: str) -> int:
        self._calls.queue_calls += 1
        return await self._queues.length(queue)

    async def peek(self, queue: str, *, limit: int = port.CLAIM_ITEMS_MAX) -> list[Item]:
        self._calls.queue_calls += 1
        return await self._queues.peek(queue, limit=limit)


class CountingBlobs:
    def __init__(self, blobs: Blobs, calls: Calls) -> None:
        self._blobs = blobs
        self._calls = calls

    async def put(self, name: str, content: bytes) -> None:
        self._calls.blob_calls += 1
        await self._blobs.put(name, content)

    async def get(self, name: str) -> bytes | None:
        self._calls.blob_calls += 1
        return await self._blobs.get(name)

    async def delete(self, name: str) -> None:
        self._calls.blob_calls += 1
        await self._blobs.delete(name)

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]:
        self._calls.blob_calls += 1
        return await self._blobs.list(prefix, after=after)
