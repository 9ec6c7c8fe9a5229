"""Fill a storage from another one, or from a backup: in order, from the last recorded position.

A row in the target, the mark, shows that it is being filled; nothing starts there until the mark
is deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

import msgspec

from postroom.clock import Clock
from postroom.migration import state
from postroom.migration.comparison import BLOBS
from postroom.migration.row_pairs import (
    Contents,
    Position,
    blob_names,
    row_pairs,
)
from postroom.migration.state import Migration
from postroom.migration.table_writer import TableWriter, call_with_retries
from postroom.storage.port import Storage
from postroom.task_pool import TaskPool

ROWS_PER_CHECKPOINT = 10_000  # at most these are read again after a crash
BLOBS_PER_CHECKPOINT = 200
ROWS_PER_PROGRESS = 1000
BATCHES_IN_FLIGHT = 16  # enough for a round trip of 20 ms, and for a group commit to pay
BLOBS_IN_FLIGHT = 4  # up to 64 MiB each
MARK_VALID_FOR = timedelta(seconds=1)  # reading it before every write would cost too much


class Stopped(Exception):
    """The copy was asked to stop; its position is recorded."""


@dataclass(frozen=True)
class FillingContext:
    """What is copied and where to, each with its name for people."""

    source: Contents
    target: Storage
    source_name: str
    target_name: str
    clock: Clock
    may_go_on: Callable[[], bool]
    on_progress: Callable[[str, int], None]  # the stage, and how much of it was read in this run


@dataclass
class TargetMark:
    """The row in the target that records how far everything is copied."""

    context: FillingContext
    row: Migration
    etag: str
    valid_until: datetime

    @classmethod
    def new(cls, context: FillingContext, row: Migration, etag: str) -> Self:
        return cls(context, row, etag, context.clock.now() + MARK_VALID_FOR)

    async def check(self) -> None:
        """TakenOver if another process fills the target, or it is in use: we may have slept."""
        now = self.context.clock.now()
        if now >= self.valid_until:
            await state.check_run(self.context.target.tables, self.row.run)
            self.valid_until = now + MARK_VALID_FOR

    async def write(self, call: Callable[[], Awaitable[object]]) -> None:
        """Change the target by one call, which is tried again if storage does not answer."""

        async def checked() -> None:
            await self.check()
            await call()

        await call_with_retries(checked, self.context.clock)

    async def record(self, stage: str, position: Position = ("", ""), **changes: Any) -> None:
        partition, key = position
        row = msgspec.structs.replace(
            self.row, stage=stage, partition=partition, key=key, **changes
        )
        self.row = row
        replace = partial(state.replace, self.context.target.tables, row, self.etag)
        self.etag = await call_with_retries(replace, self.context.clock)

    async def checkpoint(self, stage: str, position: Position) -> None:
        """Record that everything up to this position is copied; Stopped if asked to stop."""
        await self.record(stage, position)
        if not self.context.may_go_on():
            raise Stopped

    def position_in(self, stage: str) -> Position | None:
        """Return where the stage continues; None for its beginning."""
        position = (self.row.partition, self.row.key)
        return position if stage == self.row.stage and any(position) else None


async def copy_table(context: FillingContext, mark: TargetMark, table: str) -> None:
    target = context.target.tables
    pairs = row_pairs(context.source.tables, target, table, mark.position_in(table))
    async with TaskPool(BATCHES_IN_FLIGHT) as pool, aclosing(pairs):
        writer = TableWriter(pool, target, table, mark.write)
        done = 0
        async for pair in pairs:
            await writer.copy(pair)
            done += 1
            if done % ROWS_PER_PROGRESS == 0:
                context.on_progress(table, done)
            if done % ROWS_PER_CHECKPOINT == 0 or not context.may_go_on():
                await writer.finish()
                await mark.checkpoint(table, pair.position)
        await writer.finish()


async def copy_blobs(context: FillingContext, mark: TargetMark) -> None:
    """Names cannot be listed from the middle, so those up to the position are skipped."""
    source = context.source.blobs
    target = context.target.blobs
    _, last = mark.position_in(BLOBS) or ("", "")

    async def copy(name: str, is_here: bool, is_there: bool) -> None:
        content = await source.get(name) if is_here else None
        if content is not None and is_there and await target.get(name) == content:
            return
        delete = partial(target.delete, name)
        await mark.write(delete if content is None else partial(target.put, name, content))

    names = blob_names(source, target)
    async with TaskPool(BLOBS_IN_FLIGHT) as pool, aclosing(names):
        done = 0
        async for name, is_here, is_there in names:
            if name <= last:
                continue
            await pool.start(copy(name, is_here, is_there))
            done += 1
            context.on_progress(BLOBS, done)
            if done % BLOBS_PER_CHECKPOINT == 0 or not context.may_go_on():
                await pool.finish()
                await mark.checkpoint(BLOBS, ("", name))
