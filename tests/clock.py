"""The clock of the tests: moved by hand, so that hours of back-off take no time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
PATIENCE_S = 60.0  # of real time, for what takes milliseconds unless something is broken


class MovableClock:
    """Does not advance until it is moved, and moves whatever follows it.

    A sleep of at most `short_s` (storage is away) passes at once and moves the clock; a longer one
    (the heartbeat) ends when a test has moved the clock far enough.
    """

    def __init__(self, *, short_s: float = 5.0) -> None:
        self._now = START
        self._short_s = short_s
        self._passed_s = 0.0
        self.followers: list[Callable[[float], None]] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._somebody_sleeps = asyncio.Event()
        self._pauses = 0
        self._watched: list[tuple[int, asyncio.Event]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._passed_s

    def set(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._now += timedelta(seconds=seconds)

    def move(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._passed_s += seconds
        for follow in self.followers:
            follow(seconds)
        for until, sleeper in self._sleepers:
            if until <= self._passed_s and not sleeper.done():
                sleeper.set_result(None)
        self._sleepers = [one for one in self._sleepers if not one[1].done()]

    async def sleep(self, seconds: float) -> None:
        if seconds <= self._short_s:
            self.move(seconds)
            self._note_pause()
            await asyncio.sleep(0)
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._passed_s + seconds, sleeper))
        self._somebody_sleeps.set()
        await sleeper

    async def asleep(self, count: int) -> None:
        """Wait until so many have gone to sleep."""
        while sum(not sleeper.done() for _, sleeper in self._sleepers) < count:
            self._somebody_sleeps.clear()
            await soon(self._somebody_sleeps.wait())

    async def paused(self, times: int) -> None:
        """Wait until somebody has made so many more short pauses."""
        event = asyncio.Event()
        self._watched.append((self._pauses + times, event))
        await soon(event.wait())

    def _note_pause(self) -> None:
        self._pauses += 1
        for times, event in self._watched:
            if self._pauses >= times:
                event.set()


async def soon(what: Awaitable[object]) -> None:
    """Wait for a signal that must come; a scenario that hangs fails here and says where."""
    async with asyncio.timeout(PATIENCE_S):
        await what
