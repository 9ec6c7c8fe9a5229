"""A throttle: so many calls at once and so many on average, for each caller, without timers.

The generic cell rate algorithm (ITU-T I.371): of each caller only the moment is kept at which its
calls so far are paid off. Times are whole microseconds, so that nothing adds up to an error.

Several processes keep one limit by telling each other now and then how often they were called.
What is heard comes late: the time in which the caller seemed to owe nothing pays for it, each
moment of it once. So nobody waits who keeps within the limit in all; in the long run nobody gets
more than it; and what a caller gets beforehand is bounded: from every other process a burst, the
part of it that is not worth telling, and what comes in between two rounds of telling.
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


class Telling(msgspec.Struct, frozen=True):
    """What a process says of the callers of one throttle."""

    told_at: datetime
    follows: datetime | None  # when it told last time
    callers: Mapping[str, Told]


class _Heard(msgspec.Struct, frozen=True):
    calls: int
    told_at: datetime


class _Account:
    """What one caller owes, as far as this process knows."""

    __slots__ = ("calls", "idle", "idle_before", "paid_off_at", "seen_at", "since", "told")

    def __init__(self, now: datetime) -> None:
        self.paid_off_at = self.seen_at = now
        self.idle_before = now  # the whole time
        self.idle = NO_WAIT  # after that, and not yet used to pay for what is heard late
        self.calls = 0
        self.told = 0  # of the calls
        self.since = now  # the first call that is not

    def settle(self, now: datetime, credit: timedelta, remembered: timedelta) -> None:
        """As it stands now."""
        if now < self.seen_at - _SET_BACK:  # nobody waits for a clock that was wrong
            self.paid_off_at = min(self.paid_off_at, now + credit)
            self.seen_at = now
        self.seen_at = max(self.seen_at, now)
        idle = now - self.paid_off_at
        if idle >= remembered:
            self.idle_before, self.idle = now, NO_WAIT
        elif idle > NO_WAIT:
            self.idle = min(self.idle + idle, remembered)
        self.paid_off_at = max(self.paid_off_at, now)

    def add_late(self, work: timedelta, since: datetime, remembered: timedelta) -> None:
        """Calls that were made since then; at most what is certain to be owed."""
        now = self.seen_at
        work -= max(self.idle_before - since, now - remembered - since, NO_WAIT)
        paid = max(min(work, self.idle, now - since), NO_WAIT)
        self.idle -= paid
        self.paid_off_at += max(work - paid, NO_WAIT)


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
        account.paid_off_at = paid_off_at
        if account.calls == account.told:
            account.since = now
        account.calls += 1
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
        return {caller: self._tell_of(caller, now) for caller in self._told}

    def _weight(self, caller: str, now: datetime) -> timedelta:
        """What is owed, and what was called since it was told."""
        account = self._accounts[caller]
        return account.paid_off_at - now + (account.calls - account.told) * self._interval

    def _tell_of(self, caller: str, now: datetime) -> Told:
        account = self._accounts[caller]
        since = account.since if account.calls > account.told else now
        account.told = account.calls
        return Told(account.calls, since, account.paid_off_at)

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
                work = (told.calls - known.calls) * self._interval
                is_next = known.told_at == telling.follows
                since = told.since if is_next else known.told_at
                account.add_late(work, since, self._remembered)
            self._keep(caller, account)
        while len(heard) > _CALLERS_HEARD_MAX:
            del heard[next(iter(heard))]

    def _adopt(self, account: _Account, told: Told, now: datetime) -> None:
        """At first sight, what another process says is owed, and what it cannot know of."""
        own = (account.calls - account.told) * self._interval - (now - account.since)
        owed_until = min(told.paid_off_at, now + self._remembered) + max(own, NO_WAIT)
        account.paid_off_at = max(account.paid_off_at, owed_until)

    def forget_others(self, present: Container[str]) -> None:
        """Processes that are gone; what is owed to them stays."""
        self._heard = {each: heard for each, heard in self._heard.items() if each in present}
