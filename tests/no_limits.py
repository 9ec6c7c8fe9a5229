"""A pacer for tests without rate limits: it never reads storage, and everything may go at once."""

from __future__ import annotations

from postroom.clock import Clock
from postroom.pacing.pacer import Pacer
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage


class NoLimits(Pacer):
    def __init__(self, clock: Clock) -> None:
        super().__init__(
            MemoryStorage(clock, STORAGE_NAMES).tables, clock, "nobody", lanes=1, lease_s=30.0
        )

    async def keep_alive(self, *, must_know: bool = False) -> None:
        return
