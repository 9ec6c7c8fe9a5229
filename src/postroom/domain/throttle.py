"""A throttle: so many calls at once and so many on average, for each caller, without timers.

The generic cell rate algorithm (ITU-T I.371): of each caller only the moment is kept at which its
calls so far are paid off. Times are whole microseconds, so that nothing adds up to an error.

Several processes keep one limit by telling each other now and then how often they were called.
What is heard comes late: the time in which the caller seemed to owe nothing pays for it, each
moment of it once. So nobody waits who keeps within the limit in all; in the long run nobody gets
more than it; and what a caller gets beforehand is bounded: from every other process a burst, the
part of it that is not worth telling, there and here, and what comes in between two rounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping
from datetime import datetime, timedelta

import msgspec

NO_WAIT = timedelta()
CALLERS_TOLD_MAX = 200  # the heaviest: they fit into one property of a row
_CALLERS_HEARD_MAX = 1000  # of each process
_WORTH_TELLING = 4  # a quarter of the burst
_BURSTS_REMEMBERED = 4  # for how long what is not worth telling alone adds up
_REMEMBERED_MIN = timedelta(minutes=5)  # many rounds, also missed ones
_PAUSES_MAX = 8  # of an account
_SET_BACK = timedelta(minutes=1)  # calls that are counted late look like a clock by less


class Rate(msgspec.Struct, frozen=True):
    """So many calls in a time on average, and so many at once."""

    calls: int
    per: timedelta
    burst: int

    @property
    def interval(self) -> timedelta:
        return self.per / self.calls

    @property
    def credit(self) -> timedelta:
        return self.burst * self.interval

    def count(self, paid_off_at: datetime, now: datetime) -> tuple[datetime, timedelta]:
        """When all is paid off with one more call, and how long that call has to wait."""
        limit = now + self.credit
        # Further away than the limit it was written by a wrong clock: nobody waits for that.
        paid_off_at = min(max(paid_off_at, now), limit) + self.interval
        return paid_off_at, max(paid_off_at - limit, NO_WAIT)


class Told(msgspec.Struct, frozen=True):
    """What a process says of one caller."""

    calls: int  # taken by this process, since it knows the caller
    since: datetime  # the first that it had not told before, or now
    paid_off_at: datetime  # these, and all that it heard of
    recent: int  # of those not told before, made since the caller last owed nothing
    recent_since: datetime  # the first of these, or now


class Telling(msgspec.Struct, frozen=True):
    """What a process says of the callers of one throttle."""

    told_at: datetime
    follows: datetime | None  # when it told last time
    callers: Mapping[str, Told]


class _Heard(msgspec.Struct, frozen=True):
    calls: int
    told_at: datetime


class _Pause(msgspec.Struct):
    """A time in which the caller seemed to owe nothing."""

    start: datetime
    end: datetime
    left: timedelta  # of it: what has not yet paid for calls that were heard of late


class _Account:
    """What one caller owes, as far as this process knows."""

    __slots__ = (
        "calls",
        "paid_off_at",
        "pauses",
        "recent",
        "recent_since",
        "seen_at",
        "since",
        "told",
    )

    def __init__(self, now: datetime) -> None:
        self.paid_off_at = datetime.min.replace(tzinfo=now.tzinfo)
        self.pauses: list[_Pause] = []  # the oldest first; long ago, there was nothing else
        self.seen_at = now
        self.calls = 0
        self.told = 0  # of the calls
        self.since = now  # the first call that is not
        self.recent = 0  # of those that are not: after the last pause
        self.recent_since = now

    def settle(self, now: datetime, credit: timedelta, remembered: timedelta) -> None:
        """As it stands now."""
        if now < self.seen_at - _SET_BACK:  # nobody waits for a clock that was wrong
            self.paid_off_at = min(self.paid_off_at, now + credit)
            self.pauses = [_Pause(now - remembered, now, remembered)]
            self.seen_at = now
        self.seen_at = max(self.seen_at, now)
        if self.paid_off_at <= now:
            self._pause(max(self.paid_off_at, now - remembered), now)
            self.paid_off_at = now
            self.recent = 0

    def _pause(self, start: datetime, end: datetime) -> None:
        """It lasted until now; one that goes on is the same."""
        if start == end:
            return
        if self.pauses and self.pauses[-1].end == start:
            self.pauses[-1].end = end
            self.pauses[-1].left += end - start
        else:
            self.pauses.append(_Pause(start, end, end - start))
        if len(self.pauses) > _PAUSES_MAX:
            self._lump_together()

    def _lump_together(self) -> None:
        """Two pauses become one: those that are closest to each other for their age."""

        def roughness(at: int) -> float:
            one, next_ = self.pauses[at : at + 2]
            return (next_.end - one.start) / (self.seen_at - one.start)

        at = min(range(len(self.pauses) - 1), key=roughness)
        one, next_ = self.pauses[at : at + 2]
        self.pauses[at : at + 2] = [_Pause(one.start, next_.end, one.left + next_.left)]

    def count(self, interval: timedelta) -> None:
        """One more call, now."""
        self.paid_off_at += interval
        if self.calls == self.told:
            self.since = self.seen_at
        if not self.recent:
            self.recent_since = self.seen_at
        self.calls += 1
        self.recent += 1

    def tell(self) -> Told:
        since = self.since if self.calls > self.told else self.seen_at
        recent_since = self.recent_since if self.recent else self.seen_at
        told = Told(self.calls, since, self.paid_off_at, self.recent, recent_since)
        self.told, self.recent = self.calls, 0
        return told

    def add_late(self, work: timedelta, since: datetime, remembered: timedelta) -> None:
        """Calls that were made since then; at most what is certain to be owed.

        Pauses after that pay for them, the oldest first: the later ones may be needed for calls
        of which nobody has told yet.
        """
        work -= max(self.seen_at - remembered - since, NO_WAIT)
        for pause in self.pauses:
            paid = max(min(work, pause.left, pause.end - max(pause.start, since)), NO_WAIT)
            pause.left -= paid
            work -= paid
        self.paid_off_at += max(work, NO_WAIT)


class Throttle:
    """In memory, of one process; beyond `callers_max` the one counted longest ago is forgotten."""

    def __init__(self, calls: int, per: timedelta, *, burst: int, callers_max: int) -> None:
        rate = Rate(calls, per, burst)
        self._interval, self._credit = rate.interval, rate.credit
        self._remembered = max(_BURSTS_REMEMBERED * rate.credit, _REMEMBERED_MIN)
        self._worth_telling = max(1, burst // _WORTH_TELLING)
        self._callers_max = callers_max
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._news: set[str] = set()  # callers who used a good part of their burst
        self._told: set[str] = set()  # callers the others may still ask about
        self._heard: dict[str, dict[str, _Heard]] = {}

    def wait(self, caller: str, now: datetime) -> timedelta:
        """No wait, and the call is counted; or how long to wait, and it is not."""
        account = self._accounts.get(caller) or _Account(now)
        account.settle(now, self._credit, self._remembered)
        paid_off_at = account.paid_off_at + self._interval
        if paid_off_at > now + self._credit:
            return paid_off_at - now - self._credit
        account.count(self._interval)
        if account.calls - account.told >= self._worth_telling:
            self._news.add(caller)
        self._keep(caller, account)
        return NO_WAIT

    def __len__(self) -> int:
        return len(self._accounts)

    def _keep(self, caller: str, account: _Account) -> None:
        self._accounts[caller] = account
        self._accounts.move_to_end(caller)
        if len(self._accounts) > self._callers_max:
            forgotten, _ = self._accounts.popitem(last=False)
            self._news.discard(forgotten)
            self._told.discard(forgotten)

    # --- Telling and hearing ------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether somebody used a good part of their burst and the others do not know."""
        return bool(self._news)

    def tell(self, now: datetime) -> dict[str, Told]:
        """The callers that the others should know of, the heaviest alone if they are many."""
        for caller in self._told | self._news:
            self._accounts[caller].settle(now, self._credit, self._remembered)
        weights = {caller: self._weight(caller, now) for caller in self._told | self._news}
        heaviest = sorted(weights, key=lambda caller: weights[caller], reverse=True)
        self._told = {each for each in heaviest[:CALLERS_TOLD_MAX] if weights[each] > NO_WAIT}
        self._news.clear()  # who is left out makes news with the next call
        return {caller: self._accounts[caller].tell() for caller in self._told}

    def _weight(self, caller: str, now: datetime) -> timedelta:
        """What is owed, and what was called since it was told."""
        account = self._accounts[caller]
        return account.paid_off_at - now + (account.calls - account.told) * self._interval

    def hear(self, process: str, telling: Telling, now: datetime) -> None:
        """Count what another process was called since it was heard last."""
        heard = self._heard.setdefault(process, {})
        for caller, told in telling.callers.items():
            known = heard.pop(caller, None)
            heard[caller] = _Heard(told.calls, telling.told_at)
            account = self._accounts.get(caller) or _Account(now)
            account.settle(now, self._credit, self._remembered)
            if known is None or told.calls < known.calls:
                self._adopt(account, told, now)
            elif told.calls > known.calls:
                is_next = known.told_at == telling.follows
                since = told.since if is_next else known.told_at
                older = told.calls - known.calls - told.recent
                account.add_late(older * self._interval, since, self._remembered)
                recent = told.recent * self._interval
                account.add_late(recent, told.recent_since, self._remembered)
            self._keep(caller, account)
        while len(heard) > _CALLERS_HEARD_MAX:
            del heard[next(iter(heard))]

    def _adopt(self, account: _Account, told: Told, now: datetime) -> None:
        """At first sight, what another process says is owed, and what it cannot know of."""
        all_own = (account.calls - account.told) * self._interval - (now - account.since)
        recent = account.recent * self._interval - (now - account.recent_since)
        own = max(all_own, recent, NO_WAIT)
        owed_until = min(told.paid_off_at, now + self._remembered) + own
        account.paid_off_at = max(account.paid_off_at, owed_until)

    def forget_others(self, present: Container[str]) -> None:
        """Processes that are gone; what is owed to them stays."""
        self._heard = {each: heard for each, heard in self._heard.items() if each in present}
