"""Wraps a storage and counts its calls by kind, as Azure would bill them.

Around other engines the counts show what the same work would cost on Azure. Retries of the Azure
engine are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from postroom.storage.port import Blobs, Queues, Storage, Tables, Troubles

# Kind and, where Azure needs several requests for one call, how many.
_READS = dict.fromkeys(("get", "scan", "scan_as"), "reads")
_OF_TABLES = _READS | {"batch": "batches", "batches": "batches"}
_Requests = Mapping[str, Callable[..., int]]
_BATCHES: _Requests = {"batches": len}
_ITEMS: _Requests = {"put": lambda _queue, *bodies: len(bodies)}


class Calls(msgspec.Struct, frozen=True):
    reads: int = 0  # a row, or a page of rows
    writes: int = 0  # one row
    batches: int = 0  # several rows of one partition
    queue_calls: int = 0
    blob_calls: int = 0

    @property
    def total(self) -> int:
        return sum(msgspec.structs.astuple(self))


class CountingStorage:
    def __init__(self, storage: Storage) -> None:
        counts = self._counts = msgspec.structs.asdict(Calls())
        self._storage = storage
        self.tables = cast(Tables, _Counted(storage.tables, counts, "writes", _OF_TABLES, _BATCHES))
        self.queues = cast(Queues, _Counted(storage.queues, counts, "queue_calls", {}, _ITEMS))
        self.blobs = cast(Blobs, _Counted(storage.blobs, counts, "blob_calls", {}, {}))

    @property
    def calls(self) -> Calls:
        return Calls(**self._counts)

    @property
    def troubles(self) -> Troubles:
        return self._storage.troubles

    @property
    def commits(self) -> int | None:
        """Transactions since the start; None if the engine has none of its own."""
        return getattr(self._storage, "commits", None)

    async def close(self) -> None:
        await self._storage.close()


@dataclass
class _Counted:
    """The methods of a part of storage; each is wrapped when it is first used."""

    part: object
    counts: dict[str, int]
    kind: str  # of the methods that `kinds` does not name
    kinds: Mapping[str, str]
    requests: _Requests

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.part, name)
        counts = self.counts
        kind = self.kinds.get(name, self.kind)
        requests = self.requests.get(name)

        def call(*args: Any, **options: Any) -> Any:
            counts[kind] += requests(*args) if requests else 1
            return method(*args, **options)

        setattr(self, name, call)  # found without __getattr__ from now on
        return call
