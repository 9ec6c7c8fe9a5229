"""A rate limit for each caller, by the generic cell rate algorithm (ITU-T I.371).

Why not simpler: a counter per hour allows twice the limit around the turn of the hour.
Why not exact: a limit against abuse may be a little off; see `web/throttles.py`.
Only one time is stored for each caller: when the calls made so far are paid off.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

import msgspec

NO_WAIT = timedelta()


class Rate(msgspec.Struct, frozen=True):
    """An average number of calls in a period, and the number allowed at once."""

    calls: int
    per: timedelta
    burst: int

    @property
    def interval(self) -> timedelta:
        return self.per / self.calls

    def count(self, paid_off_at: datetime, now: datetime) -> tuple[datetime, timedelta]:
        """When all is paid off with one more call, and how long that call has to wait."""
        limit = now + self.burst * self.interval
        # A time beyond the limit was written by a wrong clock: nobody waits for that.
        paid_off_at = min(max(paid_off_at, now), limit) + self.interval
        return paid_off_at, max(paid_off_at - limit, NO_WAIT)


class Throttle:
    """Kept in memory; beyond `callers_max` the caller counted longest ago is forgotten."""

    def __init__(self, rate: Rate, *, callers_max: int) -> None:
        self._rate = rate
        self._callers_max = callers_max
        self._paid_off_at: OrderedDict[str, datetime] = OrderedDict()

    def wait(self, caller: str, now: datetime) -> timedelta:
        """Count the call and return no wait; or return how long to wait, without counting it."""
        paid_off_at, wait = self._rate.count(self._paid_off_at.get(caller, now), now)
        if wait <= NO_WAIT:
            self._paid_off_at[caller] = paid_off_at
            self._paid_off_at.move_to_end(caller)
            if len(self._paid_off_at) > self._callers_max:
                self._paid_off_at.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._paid_off_at)
