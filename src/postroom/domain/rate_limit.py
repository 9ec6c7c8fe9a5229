"""Rate limits: how one limit is divided among senders, and how a sender keeps to its share.

Shares are whole mails a second and whole connections. What is left over goes to the first owners
in the order of their names, so that all senders compute the same division on their own. A sender
keeps to its share with a token bucket. The shares never add up to more than the limit, so that no
second, wherever it begins, has more mails than the limit (docs/decisions/0005-one-rate-limit.md).
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
SECOND_S = 1.02  # counts as one, because a mail leaves a moment after the clock was read
CATCH_UP_S = 0.1  # a sender held up for a moment, say by storage, may make up this much
BURST_S = 0.005  # mails of this time go to the line together: fewer wake-ups at high rates


class RateLimit(msgspec.Struct, frozen=True):
    """The limit of the transport or of one recipient domain; 0 means unlimited."""

    name: str
    mails_per_s: float = 0.0
    connections: int = 0


class Share(msgspec.Struct, frozen=True, array_like=True):
    """One sender's part of a limit; an empty one means that the sender waits for its part."""

    mails_per_s: float = 0.0
    connections: int = 0
    renewal: int = 0  # differs with every renewal: shows the others that the holder is alive


NOTHING = Share()


def check_limit(name: str, mails_per_s: float | None, connections: int | None) -> RateLimit:
    """Check a limit as a person typed it; BadInput says what is wrong."""
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
    """The name of a limit: a recipient domain, or `transport` for all mails."""
    return check_domain(domain) if domain else TRANSPORT


def whom(name: str) -> Text:
    """The emails a limit is for, as part of a sentence."""
    return _("all emails") if name == TRANSPORT else _("emails to {domain}", domain=name)


def rate_text(mails_per_s: float) -> str:
    """The rate with every significant digit: 1,000,000 and 0.5."""
    return f"{mails_per_s:,}".removesuffix(".0")


def limit_text(limit: RateLimit) -> str:
    """A limit in short, for the audit log."""
    rate = f"{rate_text(limit.mails_per_s)} a second" if limit.mails_per_s else ""
    connections = f"{limit.connections:,} connections" if limit.connections else ""
    return ", ".join(filter(None, (rate, connections)))


def check_domain(text: str) -> str:
    """A recipient domain in its normal spelling."""
    try:
        return parse_address(f"x@{text.strip()}").domain
    except BadAddress as error:
        raise BadInput(
            _("“{text}” is not a domain such as contoso.edu.", text=text[:80])
        ) from error


def domain_of(address: str) -> str:
    """The domain of an address that was already checked."""
    return address.rpartition("@")[2].lower()


def fair_share(limit: RateLimit, owner: str, members: Collection[str]) -> Share:
    """The share an owner should end up with; nothing once the whole mails are used up."""
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
    expired: Container[str],
    in_use: int = 0,
) -> Share:
    """The share a sender may have now: its fair share, or what the others leave of it.

    `expired` are owners whose share has lapsed, `in_use` the connections that cannot be given back
    yet.
    """
    others = {one: share for one, share in shares.items() if one not in expired and one != owner}
    now = shares.get(owner, NOTHING)
    fair = fair_share(limit, owner, {*others, owner})
    mails_free = limit.mails_per_s - sum(share.mails_per_s for share in others.values())
    connections_free = limit.connections - sum(share.connections for share in others.values())
    connections = min(fair.connections, max(now.connections, connections_free))
    return Share(
        max(0.0, min(fair.mails_per_s, max(now.mails_per_s, mails_free))),
        max(0, connections, min(in_use, now.connections)),
        now.renewal,
    )


def lower_of(one: Share, other: Share) -> Share:
    """The safe share while it is unknown which of the two is in force."""
    return Share(min(one.mails_per_s, other.mails_per_s), min(one.connections, other.connections))


class ShareRenewals:
    """Tracks when each share was last renewed, by our own clock alone."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}

    def expired(
        self, name: str, shares: Mapping[str, Share], *, now_s: float, lease_s: float
    ) -> set[str]:
        """Owners whose share of the limit has not changed for a whole lease."""
        for owner, share in shares.items():
            known = self._seen.get((name, owner))
            if known is None or known[0] != share.renewal or known[1] > now_s:
                self._seen[name, owner] = (share.renewal, now_s)
        for key in [key for key in self._seen if key[0] == name and key[1] not in shares]:
            del self._seen[key]
        return {owner for owner in shares if now_s - self._seen[name, owner][1] >= lease_s}


class Bucket:
    """A token bucket at a share's rate: even, and in no second more tokens than the share.

    Tokens are saved up for CATCH_UP_S at most, so that a sender that was held up for a moment can
    catch up. The bucket remembers what was taken within the last second, which bounds every second,
    wherever it begins.
    """

    def __init__(self, now_s: float) -> None:
        self.rate = 0.0
        self._share = 0.0
        self._tokens = 0.0
        self._at = now_s
        self._taken: deque[tuple[float, int]] = deque()  # within the last second: when, how many
        self._taken_sum = 0
        self._before = (now_s, 0.0)  # when the share last shrank, and what it was until then

    def change_share(self, share: float, limit: float, now_s: float) -> None:
        """Adopt another share of a limit; saved tokens are lost.

        A larger share begins in debt, for what its last holders may have saved up and used just
        before. Within the second in which a share shrinks, the larger one bounds it.
        """
        self._move_to(now_s)
        if share == self._share:
            return
        self._tokens = min(self._tokens, 0.0)
        if share > self._share:
            self._tokens -= 1 + limit * CATCH_UP_S
        else:
            self._before = (now_s, max(self._share, self._share_before()))
        self._share = share
        self.rate = share / SECOND_S

    def ready(self, now_s: float) -> int:
        self._move_to(now_s)
        second_max = math.ceil(max(self._share, self._share_before()))
        return max(0, min(int(self._tokens), second_max - self._taken_sum))

    def take(self, tokens: int) -> None:
        """Take at most as many as are ready."""
        if tokens:
            self._tokens -= tokens
            self._taken.append((self._at, tokens))
            self._taken_sum += tokens

    def wait_s(self, tokens: int) -> float:
        """The time until the rate gives this many, or as many as the bucket holds."""
        if not self.rate:
            return math.inf
        return max(0.0, (min(tokens, int(self._depth)) - self._tokens) / self.rate)

    @property
    def burst(self) -> int:
        """How many mails are worth a wake-up."""
        return max(1, int(self.rate * BURST_S))

    @property
    def _depth(self) -> float:
        return 1 + self.rate * CATCH_UP_S

    def _share_before(self) -> float:
        since, share = self._before
        return share if self._at < since + SECOND_S else 0.0

    def _move_to(self, now_s: float) -> None:
        if now_s < self._at:  # a clock set back gains no tokens and delays nobody
            self._taken = deque((min(when, now_s), number) for when, number in self._taken)
        gained = max(0.0, now_s - self._at) * self.rate
        self._tokens = min(self._tokens + gained, self._depth)
        self._at = now_s
        while self._taken and self._taken[0][0] <= now_s - SECOND_S:
            self._taken_sum -= self._taken.popleft()[1]


class ReturnTimes:
    """When mails deferred by a limit are due again: slice after slice, at the limit's rate."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def reserve(self, mails: int, rate: float, *, now_s: float, ahead_s_max: float) -> float:
        """The time at which these mails of one slice are due again."""
        latest = now_s + ahead_s_max
        start = min(max(self._until_s, now_s), latest)
        duration_s = mails / rate if rate else 0.0
        self._until_s = min(start + duration_s, latest)
        return start
