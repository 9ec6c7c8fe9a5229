"""A table of one storage made like that of another: batches in flight, and calls tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from postroom.clock import Clock
from postroom.domain.errors import BadInput
from postroom.migration.row_pairs import Pair, as_bytes
from postroom.storage.port import (
    BATCH_BYTES_MAX,
    BATCH_CHANGES_MAX,
    Row,
    Tables,
    Unavailable,
    Upsert,
)

# Engines spell a row in different ways: what is a quarter of the limit here fits everywhere.
BATCH_BYTES = BATCH_BYTES_MAX // 4
_ROW_BYTES = 1024  # what a row costs beside its text
_PROPERTY_BYTES = 64
PAUSES_S = (1.0, 2.0, 4.0, 8.0)  # between tries of a call that storage did not answer

T = TypeVar("T")


async def surely(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """A few tries; only for calls that may be repeated, since each may have taken effect."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except Unavailable:
            await clock.sleep(pause_s)
    return await call()


@dataclass
class Flight:
    """So many calls under way at once; the first that fails ends all.

    Left in good order, all are waited for; left by a failure, those under way are let go.
    """

    limit: int
    _busy: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.finish()
        finally:
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)

    async def start(self, call: Coroutine[Any, Any, None]) -> None:
        """Returns once there is room for another."""
        self._busy.add(asyncio.create_task(call))
        if len(self._busy) >= self.limit:
            await self._settle(asyncio.FIRST_COMPLETED)

    async def finish(self) -> None:
        if self._busy:
            await self._settle(asyncio.ALL_COMPLETED)

    async def _settle(self, until: str) -> None:
        done, self._busy = await asyncio.wait(self._busy, return_when=until)
        failures = [failure for task in done if (failure := task.exception())]
        if failures:
            raise failures[0]


class Writer:
    """Makes a table like its source's, in batches of one partition each.

    `may_write` is awaited before every write, and raises if the table is another's by now.
    """

    def __init__(
        self,
        flight: Flight,
        tables: Tables,
        table: str,
        clock: Clock,
        may_write: Callable[[], Awaitable[None]],
    ) -> None:
        self._flight = flight
        self._tables = tables
        self._table = table
        self._clock = clock
        self._may_write = may_write
        self._partition = ""
        self._rows: list[Upsert] = []
        self._bytes = 0

    async def mend(self, pair: Pair) -> None:
        """Nothing to do if the two are equal."""
        if pair.source is None:
            await self._flight.start(self._delete(*pair.place))
        elif not pair.is_equal:
            await self._add(pair.source)

    async def finish(self) -> None:
        """Everything is written."""
        await self._send()
        await self._flight.finish()

    async def _add(self, row: Row) -> None:
        size = len(as_bytes(row)) + len(row.properties) * _PROPERTY_BYTES + _ROW_BYTES
        is_full = len(self._rows) == BATCH_CHANGES_MAX or self._bytes + size > BATCH_BYTES
        if is_full or row.partition != self._partition:
            await self._send()
        self._partition = row.partition
        self._rows.append(Upsert(row.key, row.properties))
        self._bytes += size

    async def _send(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            await self._flight.start(self._write(self._partition, rows))

    async def _write(self, partition: str, rows: list[Upsert]) -> None:
        async def write() -> None:
            await self._may_write()
            await self._tables.batch(self._table, partition, rows)

        try:
            await surely(write, self._clock)
        except ValueError as error:
            raise BadInput(f"The target cannot keep a row of {self._table}: {error}.") from error

    async def _delete(self, partition: str, key: str) -> None:
        """One by one: in a batch, a row that is gone already would be a conflict."""

        async def delete() -> None:
            await self._may_write()
            await self._tables.delete(self._table, partition, key)

        await surely(delete, self._clock)
