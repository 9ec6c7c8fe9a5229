"""Rate limits: how one limit is divided among senders, and how a sender keeps to its share.

Shares are whole mails a second and whole connections; what is left over goes to the first in
order of names, so that all senders come to the same division without talking. A sender keeps to
its share by a bucket. The shares never add up to more than the limit, so that no second has more
turns than the limit, wherever it begins (docs/decisions/0005-one-rate-limit.md).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Container, Mapping

import msgspec

from postroom.domain.address import BadAddress, parse_address
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _

TRANSPORT = "transport"
MAILS_PER_S_MIN, MAILS_PER_S_MAX = 0.01, 1_000_000.0
CONNECTIONS_MAX = 10_000
SECOND_S = 1.02  # counted as one: a mail leaves a moment after the clock was read for it
CATCH_UP_S = 0.1  # of its rate is what a sender held up for a moment, say by storage, may make up
HANDFUL_S = 0.005  # mails of so long go to the line together: fewer wake-ups at high rates


class RateLimit(msgspec.Struct, frozen=True):
    """Of the transport, or of one recipient domain; 0 means that there is none."""

    name: str
    mails_per_s: float = 0.0
    connections: int = 0


class Share(msgspec.Struct, frozen=True, array_like=True):
    """One sender's part of a limit; an empty one waits for its part."""

    mails_per_s: float = 0.0
    connections: int = 0
    renewal: int = 0  # never the same twice of one holder: how others see that it lives


NOTHING = Share()


def check_limit(name: str, mails_per_s: float | None, connections: int | None) -> RateLimit:
    """A limit as somebody typed it; BadInput says what is wrong."""
    if mails_per_s is None and connections is None:
        raise BadInput(_("Enter emails per second, connections, or both."))
    return RateLimit(
        name,
        0.0 if mails_per_s is None else check_mails_per_s(mails_per_s),
        0 if connections is None else check_connections(connections),
    )


def check_mails_per_s(typed: float | str) -> float:
    try:
        number = float(typed)
    except ValueError:
        number = math.nan  # in no range
    if not MAILS_PER_S_MIN <= number <= MAILS_PER_S_MAX:
        raise BadInput(_("Emails per second must be between 0.01 and 1,000,000."))
    return number


def check_connections(typed: int | str) -> int:
    try:
        number = int(typed)
    except ValueError:
        number = 0  # out of range
    if not 1 <= number <= CONNECTIONS_MAX:
        raise BadInput(_("Connections must be from 1 to 10,000."))
    return number


def limit_name(domain: str) -> str:
    """What a limit is known by: a recipient domain, or nothing for all mails."""
    return check_domain(domain) if domain else TRANSPORT


def whom(name: str) -> Text:
    """Whom a limit is for, within a sentence."""
    return _("all emails") if name == TRANSPORT else _("emails to {domain}", domain=name)


def rate_text(mails_per_s: float) -> str:
    """Every digit that counts, and no more: 1,000,000 and 0.5."""
    return f"{mails_per_s:,}".removesuffix(".0")


def check_domain(text: str) -> str:
    """A recipient domain in the one spelling by which it is known."""
    try:
        return parse_address(f"x@{text.strip()}").domain
    except BadAddress as error:
        raise BadInput(
            _("“{text}” is not a domain such as contoso.edu.", text=text[:80])
        ) from error


def domain_of(address: str) -> str:
    """Of an address that was checked when it came in."""
    return address.rpartition("@")[2].lower()


# --- Dividing ---------------------------------------------------------------------------------


def fair_share(limit: RateLimit, owner: str, members: Collection[str]) -> Share:
    """What everybody should have in the end; nothing for who comes after the last whole mail."""
    seats = len(members)
    if limit.mails_per_s:
        seats = min(seats, max(1, int(limit.mails_per_s)))
    if limit.connections:
        seats = min(seats, limit.connections)
    rank = sorted(members).index(owner)
    if rank >= seats:
        return NOTHING
    whole = int(limit.mails_per_s)
    mails: float = whole // seats + (rank < whole % seats)
    if rank == 0:
        mails += limit.mails_per_s - whole
    connections = limit.connections // seats + (rank < limit.connections % seats)
    return Share(mails, connections)


def next_share(
    limit: RateLimit,
    shares: Mapping[str, Share],
    owner: str,
    *,
    gone: Container[str],
    in_use: int = 0,
) -> Share:
    """What a sender may take now: its fair share, as far as the others leave it.

    `gone` are senders whose share has run out, `in_use` the connections that cannot be given back
    yet.
    """
    others = {each: share for each, share in shares.items() if each not in gone and each != owner}
    now, fair = shares.get(owner, NOTHING), fair_share(limit, owner, {*others, owner})
    mails_free = limit.mails_per_s - sum(share.mails_per_s for share in others.values())
    lines_free = limit.connections - sum(share.connections for share in others.values())
    lines = min(fair.connections, max(now.connections, lines_free))
    return Share(
        max(0.0, min(fair.mails_per_s, max(now.mails_per_s, mails_free))),
        max(0, lines, min(in_use, now.connections)),
        now.renewal,
    )


def lower_of(one: Share, other: Share) -> Share:
    """What is certain while nobody knows which of two is in force."""
    return Share(
        min(one.mails_per_s, other.mails_per_s), min(one.connections, other.connections), 0
    )


class Presence:
    """Who has been seen alive, by our clock alone: a renewal that does not change is a death."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}

    def gone(
        self, name: str, shares: Mapping[str, Share], *, now_s: float, lease_s: float
    ) -> set[str]:
        """Those of a limit whose share has stood unchanged for a whole lease."""
        for owner, share in shares.items():
            known = self._seen.get((name, owner))
            if known is None or known[0] != share.renewal or known[1] > now_s:
                self._seen[name, owner] = (share.renewal, now_s)
        for key in [key for key in self._seen if key[0] == name and key[1] not in shares]:
            del self._seen[key]
        return {owner for owner in shares if now_s - self._seen[name, owner][1] >= lease_s}


# --- Keeping to a share -----------------------------------------------------------------------


class Bucket:
    """Turns at a share's rate: evenly, and in no second more than the share.

    Turns come evenly and are saved up for CATCH_UP_S at most, so that whoever was held up for a
    moment makes up for it. What was taken within the last second is remembered: that alone bounds
    every second, wherever it begins.
    """

    def __init__(self, now_s: float) -> None:
        self.rate = 0.0
        self._share = 0.0
        self._turns = 0.0
        self._at = now_s
        self._taken: deque[tuple[float, int]] = deque()  # within the last second: when, how many
        self._taken_sum = 0
        self._before = (now_s, 0.0)  # since when there is no more than now, and what there was

    def follow(self, share: float, limit: float, now_s: float) -> None:
        """Another share of a limit; nothing saved up goes with it.

        A larger one begins in debt, for what those who had it may have saved up and used just
        before. Within the second in which it gets smaller, the larger one bounds it.
        """
        self._move_to(now_s)
        if share == self._share:
            return
        self._turns = min(self._turns, 0.0)
        if share > self._share:
            self._turns -= 1 + limit * CATCH_UP_S
        else:
            self._before = (now_s, max(self._share, self._share_before()))
        self._share, self.rate = share, share / SECOND_S

    def ready(self, now_s: float) -> int:
        self._move_to(now_s)
        return max(0, min(int(self._turns), self._second_max() - self._taken_sum))

    def take(self, turns: int) -> None:
        """No more than are ready."""
        if turns:
            self._turns -= turns
            self._taken.append((self._at, turns))
            self._taken_sum += turns

    def wait_s(self, turns: int) -> float:
        """Until so many are ready; they can be no more than the bucket holds."""
        if not self.rate:
            return math.inf
        turns = min(turns, int(self._depth))
        until_s = self._at + (turns - self._turns) / self.rate
        free = self._second_max() - self._taken_sum
        for taken_at, number in self._taken:
            if free >= turns:
                break
            free += number
            until_s = max(until_s, taken_at + SECOND_S)
        return max(0.0, until_s - self._at)

    @property
    def handful(self) -> int:
        """How many are worth a wake-up."""
        return max(1, int(self.rate * HANDFUL_S))

    @property
    def _depth(self) -> float:
        return 1 + self.rate * CATCH_UP_S

    def _second_max(self) -> int:
        return math.ceil(max(self._share, self._share_before()))

    def _share_before(self) -> float:
        since, share = self._before
        return share if self._at < since + SECOND_S else 0.0

    def _move_to(self, now_s: float) -> None:
        if now_s < self._at:  # a clock set back gives nothing, and holds nobody up
            self._taken = deque((min(when, now_s), number) for when, number in self._taken)
        gained = max(0.0, now_s - self._at) * self.rate
        self._turns = min(self._turns + gained, self._depth)
        self._at = now_s
        while self._taken and self._taken[0][0] <= now_s - SECOND_S:
            self._taken_sum -= self._taken.popleft()[1]


class Bookings:
    """When those that have no turn soon should come back: one after the other, at the rate."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def book(self, mails: int, rate: float, *, now_s: float, ahead_s_max: float) -> float:
        """The time at which so many of one slice come back together."""
        latest = now_s + ahead_s_max
        start = min(max(self._until_s, now_s), latest)
        took_s = mails / rate if rate else 0.0
        self._until_s = min(start + took_s, latest)
        return start
