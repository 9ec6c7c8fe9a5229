"""A throttle: so many calls at once and so many on average, for each caller, without timers.

The generic cell rate algorithm (ITU-T I.371): of each caller only the moment is kept at which its
calls so far are paid off. Times are whole microseconds, so that nothing adds up to an error.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

NO_WAIT = timedelta()


class Throttle:
    """In memory, of one process; beyond `callers_max` the one counted longest ago is forgotten."""

    def __init__(self, calls: int, per: timedelta, *, burst: int, callers_max: int) -> None:
        self._interval = per / calls
        self._credit = burst * self._interval
        self._callers_max = callers_max
        self._paid_off_at: OrderedDict[str, datetime] = OrderedDict()

    def wait(self, caller: str, now: datetime) -> timedelta:
        """No wait, and the call is counted; or how long to wait, and it is not."""
        limit = now + self._credit
        # Further away than the limit it was written by a wrong clock: nobody waits for that.
        paid_off_at = min(max(self._paid_off_at.get(caller, now), now), limit) + self._interval
        if paid_off_at > limit:
            return paid_off_at - limit
        self._paid_off_at[caller] = paid_off_at
        self._paid_off_at.move_to_end(caller)
        if len(self._paid_off_at) > self._callers_max:
            self._paid_off_at.popitem(last=False)
        return NO_WAIT

    def forgive(self, caller: str) -> None:
        """Whoever was right after all starts afresh."""
        self._paid_off_at.pop(caller, None)

    def __len__(self) -> int:
        return len(self._paid_off_at)
