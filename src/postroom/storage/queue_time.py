"""The clock of the queues, which follows the wall clock but never goes back.

An item hidden for a minute must reappear after a minute, even if the wall clock is set back by
hours in between. So the time of a queue is the monotonic clock plus an offset, and only a wall
clock that is ahead raises the offset. All processes share the offset, so it is stored with the
items. `seen_us` carries the time across a restart of the machine, which resets the monotonic clock.
Azure's queues have their own clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from postroom.clock import Clock

STEP_US = 1_000_000  # a wall clock ahead by less than this was not set forward
SEEN_EVERY_US = 60_000_000
SECOND_US = 1_000_000


class QueueTime(NamedTuple):
    boot: str
    offset_us: int
    seen_us: int  # exact to SEEN_EVERY_US


class Clocks(NamedTuple):
    boot: str
    wall_us: int
    monotonic_us: int


def read_clocks(clock: Clock, boot: str) -> Clocks:
    wall_us = round(clock.now().timestamp() * SECOND_US)
    return Clocks(boot, wall_us, round(clock.monotonic() * SECOND_US))


def from_queue_time(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / SECOND_US, UTC)


def queue_time(stored: QueueTime | None, clocks: Clocks) -> tuple[int, QueueTime]:
    """Return the time now, and what to store, which equals `stored` if nothing changes."""
    offset_us = clocks.wall_us - clocks.monotonic_us
    if stored is None:
        return clocks.wall_us, QueueTime(clocks.boot, offset_us, clocks.wall_us)
    if stored.boot != clocks.boot:
        now_us = max(clocks.wall_us, stored.seen_us)
        return now_us, QueueTime(clocks.boot, now_us - clocks.monotonic_us, now_us)
    if offset_us > stored.offset_us + STEP_US:
        return clocks.wall_us, QueueTime(stored.boot, offset_us, clocks.wall_us)
    now_us = clocks.monotonic_us + stored.offset_us
    if now_us > stored.seen_us + SEEN_EVERY_US:
        return now_us, stored._replace(seen_us=now_us)
    return now_us, stored
