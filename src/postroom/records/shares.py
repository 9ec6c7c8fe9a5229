"""Shares: this sender's part of every limit, taken, renewed and given up through storage.

The sender's own view of `service` / `limit`. Nothing is read while nothing is sent; a look costs
one read, a change or a renewal one guarded write of all limits together.
When something dies: we, killed or cut off from storage, go on no longer than our shares count, and
the others take them after a lease. A write without an answer counts as the lower of both. Only
`look` raises for storage: a lane in the middle of a slice has outcomes to write down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.rate_limit import (
    NOTHING,
    TRANSPORT,
    Bookings,
    Bucket,
    Presence,
    RateLimit,
    Share,
    fair_share,
    lower_of,
    next_share,
    whom,
)
from postroom.domain.texts import _
from postroom.records import rate_limits
from postroom.records.rate_limits import LimitRow
from postroom.storage.port import Conflict, StorageError, Tables, Unavailable

log = structlog.get_logger("shares")
LOOK_EVERY_S = 3.0  # while mails go out
UNKNOWN_S = 30.0  # storage does not tell for so long: nothing new is begun
ASK_EVERY_S = 1.0  # while we have less than our fair share
WANTED_S = 4.0  # a share is kept so long after the last mail for it
RENEWALS_A_LEASE = 6  # of a share that stays the same
COUNTS_LEASE_PART = 2 / 3  # our own view of a share ends earlier than everybody else's
TRIES_MAX = 3  # of a renewal against the others' renewals
NEVER = float("-inf")


@dataclass
class Part:
    """What this sender has of one limit."""

    limit: RateLimit
    bucket: Bucket
    share: Share = NOTHING
    counts_until: float = NEVER
    written_at: float = NEVER  # of the share that stands in storage
    wanted_at: float = NEVER  # when there were last mails for it
    fair: Share = NOTHING  # what we should have in the end
    waiting: int = 0  # mails in lanes whose turn has not come
    carriers: set[object] = field(default_factory=set)  # lanes that carry mails for it
    bookings: Bookings = field(default_factory=Bookings)

    def counts(self, now_s: float) -> bool:
        """Whether our share is certainly ours; once it is not, nothing stays saved up."""
        if now_s >= self.counts_until:
            self.follow(NOTHING, now_s)
            return False
        return True

    def gives_anything(self, now_s: float) -> bool:
        return (
            self.counts(now_s)
            and (not self.limit.mails_per_s or self.share.mails_per_s > 0)
            and (not self.limit.connections or self.share.connections > 0)
        )

    def follow(self, share: Share, now_s: float) -> None:
        self.share = share
        self.bucket.follow(share.mails_per_s, self.limit.mails_per_s, now_s)


class Shares:
    def __init__(self, tables: Tables, clock: Clock, owner: str, *, lease_s: float) -> None:
        self.parts: dict[str, Part] = {}
        self.lines_open = 0  # connections, as the lanes tell
        self.lines_short = 0  # lanes that wait for one
        self._tables = tables
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._presence = Presence()
        self._look_at = NEVER
        self._known_at = NEVER
        self._renewals = 0  # counted here and not in the row, which may forget us meanwhile
        self._renewing = asyncio.Lock()
        self.is_in_the_dark = False  # the last look did not tell

    async def look(self) -> None:
        """Before an item is begun: know the limits; StorageError if they cannot be known.

        Whoever comes meanwhile waits: nobody hands over a mail before the limits are known.
        """
        async with self._renewing:
            await self._renew_if_due()
        if self.now_s() > self._known_at + UNKNOWN_S:
            raise Unavailable(_("The limits cannot be read; is storage there?"))

    async def keep(self) -> None:
        """In the middle of work: renew our shares if it is time, or go on with what is known."""
        if not self._renewing.locked():
            async with self._renewing:
                await self._renew_if_due()

    def want(self, part: Part) -> None:
        """There are mails for a limit: without a share, the next look comes soon."""
        part.wanted_at = self.now_s()
        if not part.gives_anything(part.wanted_at):
            self._look_at = min(self._look_at, part.written_at + ASK_EVERY_S)

    async def give_up(self) -> None:
        """Let the others have our shares at once."""
        for part in self.parts.values():
            part.wanted_at = NEVER
        if self.holds_any:
            async with self._renewing:
                self._look_at = NEVER
                await self._renew_if_due()

    @property
    def holds_any(self) -> bool:
        return any(part.written_at != NEVER for part in self.parts.values())

    def is_in_use(self, part: Part) -> bool:
        """There are mails for it, or there were lately."""
        return bool(part.waiting) or self.now_s() - part.wanted_at < WANTED_S

    def _is_wanted(self, part: Part) -> bool:
        """It is in use, or has lines that must be closed before it is given up."""
        has_lines = part.limit.name == TRANSPORT and part.limit.connections and self.lines_open
        return bool(has_lines) or self.is_in_use(part)

    async def _renew_if_due(self) -> None:
        if self.now_s() < self._look_at:
            return
        try:
            await self._renew()
            self.is_in_the_dark = False
        except StorageError as error:
            self.is_in_the_dark = True
            self._look_at = self.now_s() + ASK_EVERY_S
            log.warning("shares_not_renewed", error=type(error).__name__, words=str(error)[:200])

    async def _renew(self) -> None:
        """Read all limits; take, keep or give up our share of each by one guarded write."""
        for _try in range(TRIES_MAX):
            looked_at = self.now_s()
            self._renewals += 1
            rows = await rate_limits.all_limits(self._tables)
            _check_readable(rows)
            self._learn(rows, looked_at)
            divided = {name: self._divided(name, row) for name, row in rows.items()}
            changed = {name for name, row in rows.items() if self._is_new(name, row, divided[name])}
            if not changed or await self._write(
                {
                    name: msgspec.structs.replace(rows[name], shares=divided[name])
                    for name in changed
                }
            ):
                break
        wanted = [part for part in self.parts.values() if self._is_wanted(part)]
        is_content = all(_same(part.share, part.fair) for part in wanted)
        self._look_at = looked_at + (LOOK_EVERY_S if is_content else ASK_EVERY_S)

    def _learn(self, rows: Mapping[str, LimitRow], now_s: float) -> None:
        """Limits that are new, changed or cleared."""
        self._known_at = now_s
        for name in set(self.parts) - set(rows):
            del self.parts[name]
        for name, row in rows.items():
            if name not in self.parts:
                self.parts[name] = Part(row.limit(name), Bucket(now_s))
                if name == TRANSPORT:
                    self.parts[name].wanted_at = now_s  # we look because there are mails
            self.parts[name].limit = row.limit(name)

    def _divided(self, name: str, row: LimitRow) -> dict[str, Share]:
        """The shares of the living, with ours as it should be."""
        now_s, part = self.now_s(), self.parts[name]
        gone = self._presence.gone(name, row.shares, now_s=now_s, lease_s=self._lease_s)
        gone.discard(self._owner)
        shares = {each: share for each, share in row.shares.items() if each not in gone}
        if not self._is_wanted(part):
            shares.pop(self._owner, None)
            return shares
        in_use = self.lines_open if name == TRANSPORT else len(part.carriers)
        mine = next_share(part.limit, row.shares, self._owner, gone=gone, in_use=in_use)
        part.fair = fair_share(part.limit, self._owner, {*shares, self._owner})
        return shares | {self._owner: msgspec.structs.replace(mine, renewal=self._renewals)}

    def _is_new(self, name: str, row: LimitRow, divided: Mapping[str, Share]) -> bool:
        """Worth a write: somebody came or went, ours changed, or it is to be renewed."""
        if divided.keys() != row.shares.keys():
            return True
        if self._owner not in divided:
            return False
        renew_at = self.parts[name].written_at + self._lease_s / RENEWALS_A_LEASE
        return not _same(divided[self._owner], row.shares[self._owner]) or self.now_s() >= renew_at

    async def _write(self, rows: Mapping[str, LimitRow]) -> bool:
        """Slower before the write, faster after it; False if a row changed meanwhile."""
        started_at = self.now_s()
        for name, row in rows.items():
            part = self.parts[name]
            part.follow(lower_of(part.share, row.shares.get(self._owner, NOTHING)), started_at)
        try:
            await rate_limits.write_shares(self._tables, rows)
        except Conflict:
            return False
        for name, row in rows.items():
            self._settle(self.parts[name], row.shares.get(self._owner), started_at)
        return True

    def _settle(self, part: Part, mine: Share | None, written_at: float) -> None:
        """It stands in storage, and counts from the start of the write on."""
        part.written_at = written_at if mine else NEVER
        part.counts_until = written_at + self._lease_s * COUNTS_LEASE_PART if mine else NEVER
        part.follow(mine or NOTHING, self.now_s())

    def now_s(self) -> float:
        """Seconds that no setting of the clock changes."""
        return self._clock.monotonic()


def _check_readable(rows: Mapping[str, LimitRow]) -> None:
    for name, row in rows.items():
        if not row.is_readable:
            raise Unavailable(
                _(
                    "The limit for {whom} cannot be read: set it again, or clear it.",
                    whom=whom(name),
                )
            )


def _same(one: Share, other: Share) -> bool:
    return (one.mails_per_s, one.connections) == (other.mails_per_s, other.connections)
