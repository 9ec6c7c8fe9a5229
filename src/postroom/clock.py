"""Time is passed in, so that tests and the simulation can move it.

The wall clock shows the time for people, and may be set back or forward at any moment. The
monotonic clock never goes back, so it is used to measure durations and to wait.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC, as the wall clock shows it."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; the same for all processes of this machine until it restarts."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    def monotonic(self) -> float:
        """Include the time a suspended machine slept, where the system provides it."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def boot_id() -> str:
    """Return an id of the time since this machine started; empty where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class StepWatch:
    """Detects that the wall clock was set, by comparing it with the monotonic one."""

    STEP_S = 2.0  # less is slewing, which moves it by milliseconds

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_s = self._offset()

    def stepped_s(self) -> float:
        """Return how far it was set since the last call; negative if back, 0 if not at all."""
        before = self._offset_s
        self._offset_s = self._offset()
        step_s = self._offset_s - before
        return step_s if abs(step_s) >= self.STEP_S else 0.0

    def _offset(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()
