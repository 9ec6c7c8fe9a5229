"""Turns: when the mails of this sender may go, under limits that all senders share.

Without a limit nobody waits here. With one, a lane asks for turns just before it hands mails over,
and every turn is given once, at the rate of our share (shares.py). A domain's mails that have no
turn soon are put off before they are announced, so that they do not hold up the others.
When something dies: turns that were given and not used are lost. Put off is a time in the ledger,
so whoever takes the batch next knows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.clock import Clock
from postroom.domain.delivery import PUT_OFF_S_MAX
from postroom.domain.rate_limit import TRANSPORT, domain_of
from postroom.records.shares import Part, Shares
from postroom.storage.port import Tables

OVERBOOKED = 2.0  # those put off come back early: better put off again than a turn missed
SLICE_S = 5.0  # about how long a slice may take: so soon are a pause and a departure followed
SINGLES_S = 60.0  # a part of their claim
LOOK_S = 0.25  # longest wait for a turn without looking whether we are to stop
NO_LIMIT = ""
MANY = 10**6  # turns where nobody counts them


class Turns:
    """Of one sender; shared by its lanes."""

    def __init__(
        self, tables: Tables, clock: Clock, owner: str, *, lanes: int, lease_s: float
    ) -> None:
        self.shares = Shares(tables, clock, owner, lease_s=lease_s)
        self.put_off_until = 0.0  # the latest time that was given to anybody, by shares.now_s
        self._parts = self.shares.parts
        self._clock = clock
        self._lanes = lanes

    # --- What the role asks -------------------------------------------------------------------

    @property
    def is_limited(self) -> bool:
        return bool(self._parts)

    @property
    def has_share(self) -> bool:
        """Whether the transport's limit, if there is one, lets us send at all."""
        part = self._parts.get(TRANSPORT)
        return part is None or part.gives_anything(self.shares.now_s())

    @property
    def lines_max(self) -> int | None:
        """Connections we should have, also if more are not closed yet; None if nobody counts."""
        part = self._parts.get(TRANSPORT)
        if part is None or not part.limit.connections:
            return None
        if not part.counts(self.shares.now_s()):
            return 0
        return min(part.share.connections, part.fair.connections)

    @property
    def has_free_line(self) -> bool:
        """Whether one more connection may be opened."""
        lines_max = self.lines_max
        return lines_max is None or self.shares.lines_open < lines_max

    @property
    def has_spare_lines(self) -> bool:
        """Idle lanes keep connections that we may not have, or that others of our lanes need."""
        lines_max = self.lines_max
        needed = self.shares.lines_open + self.shares.lines_short
        return lines_max is not None and needed > lines_max

    @property
    def is_in_use(self) -> bool:
        """There were mails for any of the limits lately."""
        return any(map(self.shares.is_in_use, self._parts.values()))

    def want(self) -> None:
        """There are mails to send."""
        if part := self._parts.get(TRANSPORT):
            self.shares.want(part)

    async def ask(self) -> None:
        """There is an item: know the limits, and get a share of the transport's."""
        self.want()
        await self.shares.look()

    # --- What the stage asks ------------------------------------------------------------------

    def slice_size(self, most: int) -> int:
        """So many that a slice takes a few seconds, however slow the limit is."""
        part = self._parts.get(TRANSPORT)
        if part is None or not part.limit.mails_per_s:
            return most
        return max(1, min(most, int(part.bucket.rate * SLICE_S / self._lanes)))

    def singles(self, most: int) -> int:
        """So many mails to one person each that all have a turn while their claims last."""
        part = self._parts.get(TRANSPORT)
        if part is None or not part.limit.mails_per_s:
            return most
        return max(1, min(most, int(part.bucket.rate * SINGLES_S)))

    async def put_off(self, lane: object, addresses: Sequence[str]) -> dict[int, float]:
        """Who of a slice has no turn soon, by place, and when they should come back: wall time."""
        late: dict[int, float] = {}
        for name, places in self._places(self.limits_of(addresses)).items():
            if part := self._parts.get(name):
                self.shares.want(part)
                await self.shares.keep()
            if part := self._parts.get(name):  # unless it was cleared at this moment
                late |= self._late(part, lane, places)
        self.put_off_until = max([self.put_off_until, *late.values()])
        ahead_s = self._clock.now().timestamp() - self.shares.now_s()
        return {place: until + ahead_s for place, until in late.items()}

    def _places(self, limits: Sequence[str]) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for place, name in enumerate(limits):
            if name:
                places.setdefault(name, []).append(place)
        return places

    def _late(self, part: Part, lane: object, places: Sequence[int]) -> dict[int, float]:
        now_s = self.shares.now_s()
        room = self._room(part, now_s)
        if room:
            part.carriers.add(lane)  # until it has sent what it takes along
        late = places[room:]
        if not late:
            return {}
        rate = part.bucket.rate or part.limit.mails_per_s
        wanted = min(len(late), _slice_max(part))  # more of them would be put off again
        until = part.bookings.book(
            wanted, rate * OVERBOOKED, now_s=now_s, ahead_s_max=PUT_OFF_S_MAX
        )
        return dict.fromkeys(late, max(until, now_s + LOOK_S))

    def _room(self, part: Part, now_s: float) -> int:
        """How many more mails lanes may carry: not all lanes wait for one domain, nor for long."""
        lanes = max(1, self._lanes * 3 // 4)
        if part.limit.connections:
            lanes = min(lanes, part.share.connections)
        if not part.counts(now_s) or len(part.carriers) >= lanes:
            return 0
        return max(0, _slice_max(part) - part.waiting)

    # --- What a lane asks ---------------------------------------------------------------------

    def limits_of(self, addresses: Sequence[str]) -> list[str]:
        """The name of the domain limit each is under, or NO_LIMIT."""
        if self._parts.keys() <= {TRANSPORT}:
            return [NO_LIMIT] * len(addresses)
        domains = map(domain_of, addresses)
        return [domain if domain in self._parts else NO_LIMIT for domain in domains]

    def begin(self, limits: Sequence[str]) -> None:
        """A lane has these to send; `take` and `end` count them off."""
        for name in limits:
            if part := self._parts.get(name):
                part.waiting += 1

    def end(self, lane: object, limits: Sequence[str]) -> None:
        """The lane is done; these had no turn."""
        for each in self._parts.values():
            each.carriers.discard(lane)
        for name in limits:
            if part := self._parts.get(name):
                part.waiting = max(0, part.waiting - 1)

    def take(self, lane: object, limits: Sequence[str]) -> list[int]:
        """Whose turn it is now, by place; every turn is given once."""
        now_s, whole = self.shares.now_s(), self._parts.get(TRANSPORT)
        room = _ready(whole, now_s)
        if whole and room < min(whole.bucket.handful, len(limits)):
            return []  # with a few more it is worth the while
        ready = {name: self._ready_for(lane, name, now_s) for name in set(limits)}
        taken: list[int] = []
        for place, name in enumerate(limits):
            if len(taken) < room and ready[name] > 0:
                ready[name] -= 1
                taken.append(place)
                self._count_off(lane, name, now_s)
        if whole and whole.limit.mails_per_s:
            whole.bucket.take(len(taken))
        return taken

    def wait_s(self, lane: object, limits: Sequence[str]) -> float:
        """Until it is worth asking for turns again."""
        names = [name for name in set(limits) if self._has_line(lane, name)]
        soonest = min((self._wait_s(name, 1) for name in names), default=LOOK_S)
        return min(max(self._wait_s(TRANSPORT, len(limits)), soonest), LOOK_S)

    def may_hope(self, limits: Sequence[str]) -> bool:
        """Whether any of them will have a turn with the shares we have."""
        now_s = self.shares.now_s()
        parts = [self._parts.get(name) for name in set(limits)]
        can_go = any(part is None or part.gives_anything(now_s) for part in parts)
        return can_go and self.has_share

    def still_count(self, limits: Sequence[str]) -> bool:
        """Whether turns that were given may be used: who stalled may have lost the share."""
        now_s = self.shares.now_s()
        parts = (self._parts.get(name) for name in {TRANSPORT, *limits})
        return all(part is None or part.counts(now_s) for part in parts)

    def _ready_for(self, lane: object, name: str, now_s: float) -> int:
        return _ready(self._parts.get(name), now_s) if self._has_line(lane, name) else 0

    def _has_line(self, lane: object, name: str) -> bool:
        """To a domain a lane is a connection."""
        part = self._parts.get(name)
        if part is None or not part.limit.connections or lane in part.carriers:
            return True
        return len(part.carriers) < part.share.connections

    def _count_off(self, lane: object, name: str, now_s: float) -> None:
        if part := self._parts.get(name):
            part.waiting = max(0, part.waiting - 1)
            part.wanted_at = now_s
            part.carriers.add(lane)
            if part.limit.mails_per_s:
                part.bucket.take(1)

    def _wait_s(self, name: str, mails: int) -> float:
        part = self._parts.get(name)
        if part is None:
            return 0.0
        if not part.limit.mails_per_s:
            return 0.0 if part.gives_anything(self.shares.now_s()) else LOOK_S
        return part.bucket.wait_s(min(mails, part.bucket.handful))


def _slice_max(part: Part) -> int:
    """Mails to a domain that lanes may have waiting."""
    return int(part.bucket.rate * SLICE_S) + 1 if part.limit.mails_per_s else MANY


def _ready(part: Part | None, now_s: float) -> int:
    if part is None:
        return MANY
    if not part.gives_anything(now_s):
        return 0
    return part.bucket.ready(now_s) if part.limit.mails_per_s else MANY
