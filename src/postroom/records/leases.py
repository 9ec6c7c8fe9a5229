"""Leases: a named exclusive right, as a guarded row with owner, fence and expiry.

Built on tables alone, so they are the same on every engine. A holder that stalls past its expiry
may wake up and write: the fence, and the etags of whatever it writes, keep that harmless.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from postroom.clock import Clock
from postroom.records.rows import from_properties, readable_rows, to_properties
from postroom.storage.port import Conflict, Tables, Unavailable, Within

LONGEST = timedelta(hours=1)
FORGOTTEN_AFTER = timedelta(days=1)
_TABLE = "service"
_PARTITION = "lease"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    fence: int  # grows by one whenever the right changes hands
    expires_at: datetime

    def is_held(self, now: datetime) -> bool:
        """One that ends further away than any lease is long was written by a wrong clock."""
        return now < self.expires_at < now + LONGEST


async def hold(
    tables: Tables, name: str, owner: str, *, now: datetime, lease_s: float
) -> Lease | None:
    """Take the right or keep it; None while another owner has it, or when the race was lost."""
    row = await tables.get(_TABLE, _PARTITION, name)
    expires_at = now + timedelta(seconds=lease_s)
    try:
        if row is None:
            lease = Lease(name=name, owner=owner, fence=1, expires_at=expires_at)
            await tables.insert(_TABLE, _PARTITION, name, to_properties(lease))
            return lease
        known = from_properties(row.properties, Lease)
        if known.owner != owner and known.is_held(now):
            return None
        fence = known.fence if known.owner == owner else known.fence + 1
        lease = Lease(name=name, owner=owner, fence=fence, expires_at=expires_at)
        await tables.replace(_TABLE, _PARTITION, name, to_properties(lease), row.etag)
        return lease
    except (Conflict, Unavailable):
        return None  # no answer is no right


async def holder(tables: Tables, name: str, *, now: datetime) -> Lease | None:
    """Who has the right now."""
    row = await tables.get(_TABLE, _PARTITION, name)
    lease = from_properties(row.properties, Lease) if row else None
    return lease if lease and lease.is_held(now) else None


def sender_lease(owner: str) -> str:
    return f"sender-{owner}"


async def is_alive(tables: Tables, sender: str, now: datetime) -> bool:
    """As far as anybody can tell from another machine."""
    return await holder(tables, sender_lease(sender), now=now) is not None


async def living_senders(tables: Tables, now: datetime) -> int:
    keys = Within(_PARTITION, "sender-", "sender.")
    found = [lease async for lease, _ in readable_rows(tables, _TABLE, keys, Lease)]
    return sum(lease.is_held(now) for lease in found)


async def forget_long_expired(tables: Tables, now: datetime) -> None:
    """Rows of senders that are long gone: every start of a sender leaves one."""
    keys = Within(_PARTITION, "sender-", "sender.")
    async for lease, row in readable_rows(tables, _TABLE, keys, Lease):
        if lease.expires_at + FORGOTTEN_AFTER < now:
            await tables.delete(_TABLE, _PARTITION, row.key)


async def give_up(tables: Tables, lease: Lease) -> None:
    """Let the next one have it at once. The row stays: it carries the fence."""
    row = await tables.get(_TABLE, _PARTITION, lease.name)
    if row is None or from_properties(row.properties, Lease).owner != lease.owner:
        return
    ended = msgspec.structs.replace(
        lease, expires_at=datetime.fromtimestamp(0, lease.expires_at.tzinfo)
    )
    try:
        await tables.replace(_TABLE, _PARTITION, lease.name, to_properties(ended), row.etag)
    except Conflict:
        return  # somebody else has it already


class Right:
    """This sender's right to hand mails over: its lease, renewed beside the work."""

    def __init__(self, clock: Clock, owner: str) -> None:
        self.owner = owner
        self.stopping = False
        self._clock = clock
        self._until: datetime | None = None

    def renewed(self, until: datetime) -> None:
        self._until = until

    def holds(self) -> bool:
        return not self.stopping and self._until is not None and self._clock.now() < self._until
