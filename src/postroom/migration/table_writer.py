"""Make a table of one storage equal to that of another, by concurrent batches with retries."""

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

# Engines encode a row differently: a quarter of the limit here fits everywhere.
BATCH_BYTES = BATCH_BYTES_MAX // 4
_ROW_BYTES = 1024  # of a row, besides its text
_PROPERTY_BYTES = 64
PAUSES_S = (1.0, 2.0, 4.0, 8.0)  # between attempts of a call that storage did not answer

T = TypeVar("T")


async def surely(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a call a few times; only for calls that may be repeated, as each may take effect."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except Unavailable:
            await clock.sleep(pause_s)
    return await call()


@dataclass
class Flight:
    """At most `limit` concurrent calls; the first failure ends all.

    At the end of the block all are awaited; after a failure the running ones are cancelled.
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
    """Makes a table equal to its source, in batches of one partition each.

    `may_write` is awaited before every write, and raises if another process fills the table now.
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
        """Make the target equal to the source; nothing if it is."""
        if pair.source is None:
            await self._flight.start(self._delete(*pair.place))
        elif not pair.is_equal:
            await self._add(pair.source)

    async def finish(self) -> None:
        """Write what is left, and wait for all of it."""
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
            raise BadInput(f"The target cannot store a row of {self._table}: {error}.") from error

    async def _delete(self, partition: str, key: str) -> None:
        """Not in a batch: there a row that is already deleted would be a conflict."""

        async def delete() -> None:
            await self._may_write()
            await self._tables.delete(self._table, partition, key)

        await surely(delete, self._clock)
