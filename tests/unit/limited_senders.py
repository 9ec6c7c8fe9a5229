"""Senders under a limit without anything else of a sender: true time, skewed clocks, bad lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.pacing.pacer import Pacer
from postroom.records import rate_limits
from postroom.records.names import STORAGE_NAMES
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
LEASE_S = 30.0
LANE = 1
ADDRESSES = ["ada@contoso.edu"] * 600


class World:
    """True time, which nobody sees, and one storage."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.storage = CountingStorage(MemoryStorage(SkewedClock(self, 0.0), STORAGE_NAMES))
        self.sent: list[float] = []  # when each mail was sent, by true time


class SkewedClock:
    def __init__(self, world: World, off_s: float) -> None:
        self._world = world
        self._off_s = off_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self._world.now_s + self._off_s)

    def monotonic(self) -> float:
        return self._world.now_s

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


async def nothing() -> None:
    return


class BadLine:
    """A sender's way to storage: its next write may meet something before and after it."""

    def __init__(self, world: World) -> None:
        self._tables: Any = world.storage.tables
        self.before: Callable[[], Awaitable[None]] = nothing
        self.after: Callable[[], Awaitable[None]] = nothing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    async def batch(self, *arguments: Any) -> list[str]:
        before, self.before = self.before, nothing
        after, self.after = self.after, nothing
        await before()
        etags: list[str] = await self._tables.batch(*arguments)
        await after()
        return etags


class Sender:
    def __init__(self, world: World, name: str, off_s: float = 0.0, *, lanes: int = 4) -> None:
        self.world = world
        self.line = BadLine(world)
        clock = SkewedClock(world, off_s)
        tables: Any = self.line
        self.pacer = Pacer(tables, clock, name, lanes=lanes, lease_s=LEASE_S)
        self.is_alive = True

    async def send(self, mails: int = 600) -> int:
        """Send all that may go now, as a lane in the middle of a slice."""
        await self.pacer.keep_alive()
        admission = await self.pacer.admit(LANE, ADDRESSES[:mails])
        is_valid = self.pacer.sent(LANE, ADDRESSES[: len(admission.now)])
        if is_valid is None:
            return 0  # nothing is known yet: this is before the limit was found
        self.world.sent += [self.world.now_s] * len(admission.now)
        return len(admission.now)


async def under(limit: float, number: int, connections: int = 0) -> tuple[World, list[Sender]]:
    world = World()
    await rate_limits.set_limit(world.storage.tables, RateLimit(TRANSPORT, limit, connections))
    return world, [Sender(world, f"s{each}") for each in range(number)]
