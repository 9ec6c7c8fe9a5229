"""Make a table of one storage equal to that of another, by concurrent batches with retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from postroom.clock import Clock
from postroom.domain.errors import BadInput
from postroom.migration.row_pairs import Pair, row_bytes
from postroom.storage.port import (
    BATCH_BYTES_MAX,
    BATCH_CHANGES_MAX,
    Row,
    Tables,
    Unavailable,
    Upsert,
)
from postroom.task_pool import TaskPool

# Engines encode a row differently. A quarter of the limit fits all of them.
BATCH_BYTES = BATCH_BYTES_MAX // 4
_ROW_BYTES = 1024  # what a row takes besides its text
_PROPERTY_BYTES = 64
PAUSES_S = (1.0, 2.0, 4.0, 8.0)  # between attempts of a call that storage did not answer

T = TypeVar("T")


async def call_with_retries(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a call while storage does not answer; each attempt may have taken effect."""
    for pause_s in PAUSES_S:
        try:
            return await call()
        except Unavailable:
            await clock.sleep(pause_s)
    return await call()


@dataclass
class TableWriter:
    """Makes a table equal to its source, in batches of one partition each."""

    pool: TaskPool
    tables: Tables
    table: str
    write: Callable[[Callable[[], Awaitable[object]]], Coroutine[Any, Any, None]]  # makes one call
    _partition: str = ""
    _rows: list[Upsert] = field(default_factory=list)
    _bytes: int = 0

    async def copy(self, pair: Pair) -> None:
        """Make the target's row equal to the source's, unless it is."""
        if pair.source is None:  # alone, because in a batch a missing row would be a conflict
            delete = partial(self.tables.delete, self.table, *pair.position)
            await self.pool.start(self.write(delete))
        elif not pair.is_equal:
            await self.add(pair.source)

    async def add(self, row: Row) -> None:
        """Write the row together with others of its partition."""
        size = len(row_bytes(row)) + len(row.properties) * _PROPERTY_BYTES + _ROW_BYTES
        is_full = len(self._rows) == BATCH_CHANGES_MAX or self._bytes + size > BATCH_BYTES
        if is_full or row.partition != self._partition:
            await self._flush()
        self._partition = row.partition
        self._rows.append(Upsert(row.key, row.properties))
        self._bytes += size

    async def finish(self) -> None:
        """Write the rest, and wait until everything is written."""
        await self._flush()
        await self.pool.finish()

    async def _flush(self) -> None:
        rows, self._rows, self._bytes = self._rows, [], 0
        if rows:
            await self.pool.start(self._write(self._partition, rows))

    async def _write(self, partition: str, rows: list[Upsert]) -> None:
        try:
            await self.write(partial(self.tables.batch, self.table, partition, rows))
        except ValueError as error:
            raise BadInput(f"The target cannot store a row of {self.table}: {error}.") from error
