"""The pacer: when the mails of this sender may leave, under limits that all senders share.

Without a limit nothing waits here. With one, a lane asks before it hands mails over, and they leave
at the rate of our quota (quotas.py). Mails to a domain that would have to wait long are deferred
before they are announced, so that they do not hold up the others.
Dies half-way: mails that were counted but not sent make the rate lower, never higher. A deferral
is a time in the ledger, so the next sender that claims the batch sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from postroom.clock import Clock
from postroom.domain.delivery import LIMIT_DEFERRAL_S_MAX
from postroom.domain.rate_limit import TRANSPORT, domain_of
from postroom.pacing.quotas import Quota, Quotas
from postroom.storage.port import Tables

OVERBOOKED = 2.0  # deferred mails are due early: deferring again costs less than an idle lane
SLICE_S = 5.0  # about how long a slice may take: a pause or a departure takes effect this soon
POLL_S = 0.05  # between polls for a domain's tokens, which are saved up for longer
STOP_CHECK_S = 0.25  # longest wait without checking whether we should stop
NO_LIMIT = ""
MANY = 10**6  # where nothing is counted


class Admission(NamedTuple):
    """What a lane may do with the mails it asked about, by their places."""

    now: list[int]  # may be handed over at once
    deferred: Mapping[int, float] = MappingProxyType({})  # not to wait in a lane: when to return
    wait_s: float = 0.0  # until it is worth asking again for the others
    can_still_send: bool = True  # whether any of the others can go with the quotas we have
    needs_connection: bool = False  # all of our connections are open on other lanes


class Pacer:
    """Keeps one sender within the limits; shared by its lanes, which it knows by `Lane.id`."""

    def __init__(
        self, tables: Tables, clock: Clock, owner: str, *, lanes: int, lease_s: float
    ) -> None:
        self.deferred_until = 0.0  # the latest time given to any mail, by the monotonic clock
        self.held_back_at = -math.inf  # when a limit last let no mail go, by the monotonic clock
        self._quotas = Quotas(tables, clock, owner, lease_s=lease_s)
        self._by_name = self._quotas.by_name
        self._clock = clock
        self._lanes = lanes

    async def admit(self, lane: int, recipients: Sequence[str]) -> Admission:
        """Decide which mails the lane may hand over now, and which have to wait until later.

        Ask once before a slice is announced, and again before each hand-over. Nothing counts until
        `sent`; room at a limited domain is reserved for the lane until `release`.
        """
        if not self._by_name:
            return Admission(list(range(len(recipients))))
        names = self._limits_of(recipients)
        self._quotas.want({TRANSPORT, *names})
        await self._quotas.renew(must_know=False)
        now_s = self._quotas.now_s()
        deferred = self._defer(lane, names, now_s)
        waiting = [place for place in range(len(names)) if place not in deferred]
        kinds = {names[place] for place in waiting}
        connections_max = self._connections_max()
        connected = self._quotas.connected
        has_connection = (
            connections_max is None or lane in connected or len(connected) < connections_max
        )
        wall_s = self._clock.now().timestamp() - now_s
        ready = self._ready_places(lane, names, waiting, now_s) if has_connection else []
        if not ready:
            self.held_back_at = self._clock.monotonic()
        return Admission(
            ready,
            {place: until + wall_s for place, until in deferred.items()},
            self._wait_s(len(waiting)) if has_connection else STOP_CHECK_S,
            self._can_send(TRANSPORT, now_s) and any(self._can_send(one, now_s) for one in kinds),
            not has_connection,
        )

    def sent(self, lane: int, recipients: Sequence[str]) -> Callable[[], bool] | None:
        """Count mails that are about to be handed over, and the lane's connection.

        Call the result before each hand-over: it returns whether the mails may still go, because a
        sender that stalled may have lost its quota. None if nothing is limited.
        """
        self._quotas.connected.add(lane)
        if not self._by_name:
            return None
        names = self._limits_of(recipients)
        now_s = self._quotas.now_s()
        counted = [(TRANSPORT, len(names)), *((name, names.count(name)) for name in set(names))]
        found = [(self._by_name[name], mails) for name, mails in counted if name in self._by_name]
        for quota, mails in found:
            quota.wanted_at = now_s
            if quota.limit.name != TRANSPORT:
                quota.reserved[lane] = max(0, quota.reserved.get(lane, 0) - mails)
            if quota.limit.mails_per_s:
                quota.bucket.take(mails)
        return lambda: all(quota.is_valid(self._quotas.now_s()) for quota, _mails in found)

    async def keep_alive(self, *, must_know: bool = False) -> None:
        """Read the limits and renew our quotas if it is time, because there is work.

        `must_know` is for the start of an item: StorageError if the limits cannot be known.
        """
        self._quotas.want([TRANSPORT])
        await self._quotas.renew(must_know=must_know)

    async def release(self, lane: int | None = None, *, is_closed: bool = False) -> None:
        """End the lane's slice, or its connection if `is_closed`; without a lane, give up all."""
        if lane is None:
            await self._quotas.give_up()
            return
        for quota in self._by_name.values():
            quota.reserved.pop(lane, None)
        if is_closed:
            self._quotas.connected.discard(lane)

    @property
    def is_limited(self) -> bool:
        return bool(self._by_name)

    @property
    def lanes_max(self) -> int | None:
        """How many lanes may be in use, 0 while we have no quota; None if nothing limits them."""
        quota = self._by_name.get(TRANSPORT)
        if quota is not None and not quota.can_send(self._quotas.now_s()):
            return 0
        return self._connections_max()

    @property
    def limits_unknown(self) -> bool:
        return self._quotas.limits_unknown

    @property
    def is_in_use(self) -> bool:
        """Whether there are mails for any of the limits, or were recently."""
        now_s = self._quotas.now_s()
        return any(quota.is_in_use(now_s) for quota in self._by_name.values())

    @property
    def has_excess_connections(self) -> bool:
        """Whether more connections are open than we may have or need."""
        most = self._connections_max()
        return most is not None and len(self._quotas.connected) > (most if self.is_in_use else 0)

    def slice_max(self, most: int, seconds: float = SLICE_S) -> int:
        """How many mails, `most` at most, a lane can send in about this time."""
        quota = self._by_name.get(TRANSPORT)
        if quota is None or not quota.limit.mails_per_s:
            return most
        return max(1, min(most, int(quota.bucket.rate * seconds / self._lanes)))

    def _connections_max(self) -> int | None:
        """Connections we should have, even if more are still open; None if nothing limits them."""
        quota = self._by_name.get(TRANSPORT)
        if quota is None or not quota.limit.connections:
            return None
        if not quota.is_valid(self._quotas.now_s()):
            return 0
        return min(quota.share.connections, quota.fair.connections)

    def _may_send_to(self, lane: int, name: str) -> bool:
        """To a limited domain every active lane counts as a connection."""
        quota = self._by_name.get(name)
        if quota is None or not quota.limit.connections or lane in quota.reserved:
            return True
        return len(quota.reserved) < quota.share.connections

    def _limits_of(self, recipients: Sequence[str]) -> list[str]:
        """The name of the domain limit of each recipient, or NO_LIMIT."""
        if self._by_name.keys() <= {TRANSPORT}:
            return [NO_LIMIT] * len(recipients)
        domains = map(domain_of, recipients)
        return [domain if domain in self._by_name else NO_LIMIT for domain in domains]

    def _defer(self, lane: int, names: Sequence[str], now_s: float) -> dict[int, float]:
        """Reserve room at limited domains; mails without room get a time to be tried again."""
        deferred: dict[int, float] = {}
        for name in set(names) - {NO_LIMIT}:
            quota = self._by_name.get(name)
            if quota is None:
                continue  # cleared at this moment
            places = [place for place, each in enumerate(names) if each == name]
            room = quota.reserved.get(lane)
            if room is None:
                room = self._room(quota, now_s)
            if room:
                quota.reserved[lane] = min(room, len(places))
            if late := places[room:]:
                rate = quota.bucket.rate or quota.limit.mails_per_s
                until = quota.return_times.reserve(
                    min(len(late), _waiting_max(quota)),  # more would be deferred again
                    rate * OVERBOOKED,
                    now_s=now_s,
                    ahead_s_max=LIMIT_DEFERRAL_S_MAX,
                )
                deferred |= dict.fromkeys(late, max(until, now_s + STOP_CHECK_S))
        self.deferred_until = max([self.deferred_until, *deferred.values()])
        return deferred

    def _room(self, quota: Quota, now_s: float) -> int:
        """How many more mails to carry: some lanes stay free for others, and no wait is long."""
        lanes = max(1, self._lanes * 3 // 4)
        if quota.limit.connections:
            lanes = min(lanes, quota.share.connections)
        if not quota.is_valid(now_s) or len(quota.reserved) >= lanes:
            return 0
        return max(0, _waiting_max(quota) - sum(quota.reserved.values()))

    def _can_send(self, name: str, now_s: float) -> bool:
        quota = self._by_name.get(name)
        return quota is None or quota.can_send(now_s)

    def _ready_places(
        self, lane: int, names: Sequence[str], waiting: Sequence[int], now_s: float
    ) -> list[int]:
        """The places that may go now; none if a short wait makes a larger burst."""
        quota = self._by_name.get(TRANSPORT)
        room = self._ready(TRANSPORT, now_s)
        if quota and room < min(quota.bucket.burst, len(waiting)):
            return []
        left = {
            name: self._ready(name, now_s) if self._may_send_to(lane, name) else 0
            for name in {names[place] for place in waiting}
        }
        ready: list[int] = []
        for place in waiting:
            if len(ready) < room and left[names[place]] > 0:
                left[names[place]] -= 1
                ready.append(place)
        return ready

    def _ready(self, name: str, now_s: float) -> int:
        quota = self._by_name.get(name)
        if quota is None:
            return MANY
        if not quota.can_send(now_s):
            return 0
        return quota.bucket.ready(now_s) if quota.limit.mails_per_s else MANY

    def _wait_s(self, mails: int) -> float:
        """The time until the next burst; a short one if only domains hold the mails back."""
        quota = self._by_name.get(TRANSPORT)
        if quota is None or not quota.limit.mails_per_s:
            return POLL_S
        return min(quota.bucket.wait_s(min(mails, quota.bucket.burst)) or POLL_S, STOP_CHECK_S)


def _waiting_max(quota: Quota) -> int:
    """Mails to a limited domain that may wait in lanes."""
    return int(quota.bucket.rate * SLICE_S) + 1 if quota.limit.mails_per_s else MANY
