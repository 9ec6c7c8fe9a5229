"""Storage whose caller is killed at one of its writes, before or after the write took effect."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.records.names import QUEUES, STORAGE_NAMES, TABLES
from postroom.storage.memory import MemoryBlobs, MemoryQueues, MemoryStorage, MemoryTables
from postroom.storage.port import BLOB_NAMES_MAX, Change
from tests.clock import MovableClock


class Killed(BaseException):
    """As kill -9 is for a process: nothing that it would do afterwards happens."""


class Fuse:
    """Counts the writes, and kills at one of them."""

    def __init__(self) -> None:
        self.writes = 0
        self.kills_at = -1  # never
        self.is_after = False  # the write took effect

    def set(self, kills_at: int, *, is_after: bool = False) -> None:
        self.writes, self.kills_at, self.is_after = 0, kills_at, is_after

    def before_write(self) -> None:
        self.writes += 1
        if self.writes == self.kills_at and not self.is_after:
            raise Killed

    def after_write(self) -> None:
        if self.writes == self.kills_at and self.is_after:
            raise Killed


class FusedTables(MemoryTables):
    """Every change of a row is a batch, which is one write."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__(TABLES)
        self._fuse = fuse

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        self._fuse.before_write()
        etags = await super().batch(table, partition, changes)
        self._fuse.after_write()
        return etags


class FusedQueues(MemoryQueues):
    def __init__(self, clock: MovableClock, fuse: Fuse) -> None:
        super().__init__(QUEUES, clock)
        self._fuse = fuse

    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        self._fuse.before_write()
        await super().put(queue, *bodies, delay_s=delay_s)
        self._fuse.after_write()


class FusedBlobs(MemoryBlobs):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__(BLOB_NAMES_MAX)
        self._fuse = fuse

    async def put(self, name: str, content: bytes) -> None:
        self._fuse.before_write()
        await super().put(name, content)
        self._fuse.after_write()

    async def delete(self, name: str) -> None:
        self._fuse.before_write()
        await super().delete(name)
        self._fuse.after_write()


def fused_storage(clock: MovableClock, fuse: Fuse) -> MemoryStorage:
    storage = MemoryStorage(clock, STORAGE_NAMES)
    storage.tables = FusedTables(fuse)
    storage.queues = FusedQueues(clock, fuse)
    storage.blobs = FusedBlobs(fuse)
    return storage
