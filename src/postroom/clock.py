"""Time, handed in, so that tests and the simulation can move it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
