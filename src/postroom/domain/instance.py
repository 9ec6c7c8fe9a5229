"""Running instances: one process of a role, what it reports about itself, and how fast it works."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Any

import msgspec

from postroom.domain.scaling import ScalingChange, SenderLimits

MEASURED_S = 10.0  # a rate is measured over this time: shorter ones jump with every batch


class Vitals(msgspec.Struct, frozen=True):
    """What a process reports with every heartbeat."""

    done: int = 0  # emails handed over, or requests answered, since the start
    busy: int = 0  # items or requests in hand
    is_held_back: bool = False  # it waits for the mail server, a rate limit or the disk
    is_leading: bool = False  # of all schedulers, this one acts


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One process, as described by its row."""

    role: str
    host: str
    pid: int
    version: str
    since: datetime
    seen_at: datetime
    lasts_s: float  # without news for so long, it has ended
    busy: int = 0
    per_s: float = 0.0  # emails or requests
    is_held_back: bool = False
    is_leading: bool = False
    limits: SenderLimits | None = None  # of a supervisor
    changes: tuple[ScalingChange, ...] = ()  # of the number of its senders, the newest first

    @property
    def id(self) -> str:
        return instance_id(self.host, self.pid)

    def is_running(self, now: datetime) -> bool:
        """A row that a wrong clock wrote for the far future does not count."""
        lasts = timedelta(seconds=self.lasts_s)
        return self.seen_at - lasts <= now < self.seen_at + lasts


def instance_id(host: str, pid: int) -> str:
    return f"{host}.{pid}"


def instance_data(instance: RunningInstance) -> dict[str, Any]:
    """An instance as programs see it."""
    limits = instance.limits
    return {
        "role": instance.role,
        "host": instance.host,
        "pid": instance.pid,
        "version": instance.version,
        "since": instance.since,
        "seen_at": instance.seen_at,
        "in_hand": instance.busy,
        "per_second": instance.per_s,
        "held_back": instance.is_held_back,
        "active": instance.is_leading,
        "senders_min": limits.minimum if limits else None,
        "senders_max": limits.maximum if limits else None,
        "changes": [
            {
                "at": change.at,
                "before": change.before,
                "after": change.after,
                "cause": change.reason.cause.value,
                "reason": str(change.reason.sentence),
            }
            for change in instance.changes
        ],
    }


class RateMeter:
    """Measures a rate from a count that only grows."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def note(self, count: int, at_s: float) -> None:
        self._counts.append((at_s, count))
        while self._counts[0][0] < at_s - MEASURED_S:
            self._counts.popleft()

    @property
    def per_s(self) -> float:
        if len(self._counts) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._counts[0], self._counts[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else 0.0
