"""Quotas: this sender's part of every rate limit, taken, renewed and given up in storage.

The rows are `service` / `limit` (records/rate_limits.py). Nothing is read while nothing is sent. A
renewal costs one read and, if anything changes, one guarded write of all limits together.
Dies half-way: a sender that is killed or cut off from storage stops when its quotas lapse, and the
others take them after a lease. A write without an answer counts as the lower of both values. Only
`renew(must_know=True)` raises for storage: a lane in the middle of a slice has outcomes to record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.rate_limit import (
    NOTHING,
    TRANSPORT,
    Bucket,
    RateLimit,
    ReturnTimes,
    Share,
    ShareRenewals,
    fair_share,
    lower_of,
    next_share,
    whom,
)
from postroom.domain.texts import _
from postroom.records import rate_limits
from postroom.records.rate_limits import LimitRow
from postroom.storage.port import Conflict, StorageError, Tables, Unavailable

log = structlog.get_logger("pacing")
RENEW_EVERY_S = 3.0  # while mails go out
UNKNOWN_S_MAX = 30.0  # limits not read for longer: nothing new is begun
ASK_EVERY_S = 1.0  # while we have less than our fair share
WANTED_S = 4.0  # a quota is kept this long after the last mail for it
RENEWALS_A_LEASE = 6  # of a quota that stays the same
VALID_LEASE_PART = 2 / 3  # our own view of a quota ends earlier than everybody else's
TRIES_MAX = 3  # of a renewal against the others' renewals
NEVER = float("-inf")


@dataclass
class Quota:
    limit: RateLimit
    bucket: Bucket
    share: Share = NOTHING
    valid_until: float = NEVER
    written_at: float = NEVER  # of the share in storage
    wanted_at: float = NEVER  # when there were last mails for it
    fair: Share = NOTHING  # the share we should end up with
    reserved: dict[int, int] = field(default_factory=dict)  # active lane: mails it has yet to send
    return_times: ReturnTimes = field(default_factory=ReturnTimes)

    def is_valid(self, now_s: float) -> bool:
        """Whether the share is certainly still ours; if not, saved tokens are lost."""
        if now_s >= self.valid_until:
            self.change_share(NOTHING, now_s)
            return False
        return True

    def can_send(self, now_s: float) -> bool:
        return (
            self.is_valid(now_s)
            and (not self.limit.mails_per_s or self.share.mails_per_s > 0)
            and (not self.limit.connections or self.share.connections > 0)
        )

    def is_in_use(self, now_s: float) -> bool:
        """Whether there are mails for it, or were recently."""
        return any(self.reserved.values()) or now_s - self.wanted_at < WANTED_S

    def change_share(self, share: Share, now_s: float) -> None:
        self.share = share
        self.bucket.change_share(share.mails_per_s, self.limit.mails_per_s, now_s)


class Quotas:
    def __init__(self, tables: Tables, clock: Clock, owner: str, *, lease_s: float) -> None:
        self.by_name: dict[str, Quota] = {}
        self.connected: set[int] = set()  # lanes with an open connection
        self.limits_unknown = False  # the last read failed
        self._tables = tables
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._share_renewals = ShareRenewals()
        self._renew_at = NEVER
        self._known_at = NEVER
        self._renewals = 0  # counted here because the row may drop our share meanwhile
        self._renewing = asyncio.Lock()

    def want(self, names: Iterable[str]) -> None:
        """Note that there are mails for these limits; without a quota, renew soon."""
        now_s = self.now_s()
        for name in names:
            if quota := self.by_name.get(name):
                quota.wanted_at = now_s
                if not quota.can_send(now_s):
                    self._renew_at = min(self._renew_at, quota.written_at + ASK_EVERY_S)

    async def renew(self, *, must_know: bool) -> None:
        """Renew our quotas if it is time; `must_know` raises if the limits cannot be known.

        With `must_know` a caller waits for a renewal in progress, because no item is begun before
        the limits are known. Without it the caller continues with the limits it knows.
        """
        if must_know or not self._renewing.locked():
            async with self._renewing:
                await self._renew_if_due()
        if must_know and self.now_s() > self._known_at + UNKNOWN_S_MAX:
            raise Unavailable(_("The limits cannot be read. Check that storage works."))

    async def give_up(self) -> None:
        """Let the other senders have our quotas at once."""
        for quota in self.by_name.values():
            quota.wanted_at = NEVER
        if any(quota.written_at != NEVER for quota in self.by_name.values()):
            async with self._renewing:
                self._renew_at = NEVER
                await self._renew_if_due()

    def now_s(self) -> float:
        return self._clock.monotonic()

    def _is_wanted(self, quota: Quota) -> bool:
        """Whether it is in use, or has connections that must be closed before it is given up."""
        is_of_transport = quota.limit.name == TRANSPORT and bool(quota.limit.connections)
        return (is_of_transport and bool(self.connected)) or quota.is_in_use(self.now_s())

    async def _renew_if_due(self) -> None:
        if self.now_s() < self._renew_at:
            return
        try:
            await self._renew()
            self.limits_unknown = False
        except StorageError as error:
            self.limits_unknown = True
            self._renew_at = self.now_s() + ASK_EVERY_S
            log.warning("quotas_not_renewed", error=type(error).__name__, words=str(error)[:200])

    async def _renew(self) -> None:
        """Read all limits; take, keep or give up our share of each by one guarded write."""
        for _try in range(TRIES_MAX):
            read_at = self.now_s()
            self._renewals += 1
            rows = await rate_limits.all_limits(self._tables)
            if unreadable := [whom(name) for name, row in rows.items() if not row.is_readable]:
                sentence = _(
                    "The limit for {whom} cannot be read. Set it again, or clear it.",
                    whom=unreadable[0],
                )
                raise Unavailable(sentence)
            self._learn(rows, read_at)
            divided = {name: self._divide(name, row) for name, row in rows.items()}
            changed = {
                name: msgspec.structs.replace(row, shares=divided[name])
                for name, row in rows.items()
                if self._is_worth_a_write(name, row, divided[name])
            }
            if not changed or await self._write(changed):
                break
        wanted = [quota for quota in self.by_name.values() if self._is_wanted(quota)]
        has_fair_shares = all(_are_equal(quota.share, quota.fair) for quota in wanted)
        self._renew_at = read_at + (RENEW_EVERY_S if has_fair_shares else ASK_EVERY_S)

    def _learn(self, rows: Mapping[str, LimitRow], now_s: float) -> None:
        """Follow limits that are new, changed or cleared."""
        self._known_at = now_s
        for name in set(self.by_name) - set(rows):
            del self.by_name[name]
        for name, row in rows.items():
            if name not in self.by_name:
                self.by_name[name] = Quota(row.limit(name), Bucket(now_s))
                if name == TRANSPORT:
                    self.by_name[name].wanted_at = now_s  # we read it because there are mails
            self.by_name[name].limit = row.limit(name)

    def _divide(self, name: str, row: LimitRow) -> dict[str, Share]:
        """The shares of the living senders, with ours as it should be."""
        now_s = self.now_s()
        quota = self.by_name[name]
        expired = self._share_renewals.expired(name, row.shares, now_s=now_s, lease_s=self._lease_s)
        expired.discard(self._owner)
        shares = {each: share for each, share in row.shares.items() if each not in expired}
        if not self._is_wanted(quota):
            shares.pop(self._owner, None)
            return shares
        in_use = len(self.connected if name == TRANSPORT else quota.reserved)
        mine = next_share(quota.limit, row.shares, self._owner, expired=expired, in_use=in_use)
        quota.fair = fair_share(quota.limit, self._owner, {*shares, self._owner})
        return shares | {self._owner: msgspec.structs.replace(mine, renewal=self._renewals)}

    def _is_worth_a_write(self, name: str, row: LimitRow, divided: Mapping[str, Share]) -> bool:
        """Whether a sender came or went, our share changed, or it is time to renew it."""
        if divided.keys() != row.shares.keys():
            return True
        if self._owner not in divided:
            return False
        if not _are_equal(divided[self._owner], row.shares[self._owner]):
            return True
        return self.now_s() >= self.by_name[name].written_at + self._lease_s / RENEWALS_A_LEASE

    async def _write(self, rows: Mapping[str, LimitRow]) -> bool:
        """Slow down before the write, speed up after it; False if a row has changed since."""
        started_at = self.now_s()
        for name, row in rows.items():
            quota = self.by_name[name]
            mine = row.shares.get(self._owner, NOTHING)
            quota.change_share(lower_of(quota.share, mine), started_at)
        try:
            await rate_limits.write_shares(self._tables, rows)
        except Conflict:
            return False
        for name, row in rows.items():
            quota = self.by_name[name]
            is_ours = self._owner in row.shares
            quota.written_at = started_at if is_ours else NEVER
            quota.valid_until = quota.written_at + self._lease_s * VALID_LEASE_PART
            quota.change_share(row.shares.get(self._owner, NOTHING), self.now_s())
        return True


def _are_equal(one: Share, other: Share) -> bool:
    return (one.mails_per_s, one.connections) == (other.mails_per_s, other.connections)
