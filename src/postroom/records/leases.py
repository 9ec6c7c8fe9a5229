"""Leases: exclusive rights by name, each a guarded row with owner, fence and expiry.

They need only tables, so they are the same on every engine. A holder that stalls past its expiry
may wake up and write; the fence, and the etags of the rows it writes, make that harmless.

The expiry is wall-clock time, and clocks drift and are set. So nothing relies on it alone: a holder
times its own lease with the monotonic clock (sending/lease.py), and a lease that was not renewed
for its whole duration counts as expired, whatever its expiry says (RenewalTracker).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from postroom.clock import Clock
from postroom.domain.trouble import Trouble
from postroom.records.rows import find_row, readable_rows, to_properties, write_row
from postroom.storage.port import Conflict, KeysWithin, Tables, Troubles, Unavailable

SCHEDULER = "scheduler"  # the name of its lease
LONGEST = timedelta(hours=1)
NO_TROUBLES = Troubles()
FORGOTTEN_AFTER = timedelta(days=1)
_TABLE = "service"
_PARTITION = "lease"
_SENDER, _SENDERS_END = "sender-", "sender."


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    fence: int  # grows by one with every change of the owner
    expires_at: datetime
    lasts_s: float = 0.0  # from its last renewal
    troubles: Troubles = NO_TROUBLES  # of its holder with storage, shown on pages
    mail_trouble: Trouble | None = None  # what keeps a sender from sending, shown on pages
    etag: str = ""  # of its row

    def is_held(self, now: datetime) -> bool:
        """Also False if it ends later than any lease can, because then a wrong clock wrote it."""
        return now < self.expires_at < now + LONGEST


async def hold(
    tables: Tables,
    name: str,
    owner: str,
    *,
    now: datetime,
    lease_s: float,
    kept: Lease | None = None,
    troubles: Troubles = NO_TROUBLES,
    mail_trouble: Trouble | None = None,
    renewals: RenewalTracker | None = None,
    is_dead: Callable[[str], bool] = lambda owner: False,
) -> Lease | None:
    """Claim the lease or renew it; None if another owner has it, or claims it at this moment.

    `kept` is what the last call returned: then the row need not be read again. `renewals`
    distinguishes a dead holder from one whose clock is ahead of ours; `is_dead` knows at once about
    processes of this machine.
    """
    known = kept or await _read(tables, name)
    is_ours = known is None or known.owner == owner or is_dead(known.owner)
    if known and not is_ours and _is_kept(known, now, renewals):
        return None
    fence = 1 if known is None else known.fence + (known.owner != owner)
    lease = Lease(
        name=name,
        owner=owner,
        fence=fence,
        expires_at=now + timedelta(seconds=lease_s),
        lasts_s=lease_s,
        troubles=troubles,
        mail_trouble=mail_trouble,
    )
    try:
        return await _write(tables, lease, known)
    except (Conflict, Unavailable):
        return None  # without an answer there is no lease


async def _read(tables: Tables, name: str) -> Lease | None:
    found = await find_row(tables, _TABLE, _PARTITION, name, Lease)
    return msgspec.structs.replace(found.value, etag=found.etag) if found else None


async def _write(tables: Tables, lease: Lease, known: Lease | None) -> Lease:
    etag = known.etag if known else None
    new = await write_row(tables, _TABLE, _PARTITION, lease.name, to_properties(lease), etag)
    return msgspec.structs.replace(lease, etag=new)


async def holder(tables: Tables, name: str, *, now: datetime) -> Lease | None:
    lease = await _read(tables, name)
    return lease if lease and lease.is_held(now) else None


def sender_lease(owner: str) -> str:
    return _SENDER + owner


async def is_alive(
    tables: Tables, sender: str, now: datetime, renewals: RenewalTracker | None = None
) -> bool:
    """Whether a sender is alive, as far as its lease shows."""
    lease = await _read(tables, sender_lease(sender))
    return lease is not None and _is_kept(lease, now, renewals)


def _is_kept(lease: Lease, now: datetime, renewals: RenewalTracker | None) -> bool:
    """Not expired by our clock, and renewed in time as far as we have seen."""
    if renewals is None:
        return lease.is_held(now)
    return now < lease.expires_at and renewals.is_alive(lease)


async def living(tables: Tables, now: datetime) -> list[Lease]:
    found = readable_rows(tables, _TABLE, KeysWithin(_PARTITION), Lease)
    return [lease async for lease, _ in found if lease.is_held(now)]


def senders_among(held: Iterable[Lease]) -> int:
    return sum(lease.name.startswith(_SENDER) for lease in held)


def mail_troubles_among(held: Iterable[Lease]) -> list[Trouble]:
    """Return what keeps running senders from sending, at most one trouble of each."""
    return [lease.mail_trouble for lease in held if lease.mail_trouble]


async def forget_long_expired(tables: Tables, now: datetime) -> None:
    """Delete the rows of senders that ended long ago, because every start adds one."""
    keys = KeysWithin(_PARTITION, _SENDER, _SENDERS_END)
    async for lease, row in readable_rows(tables, _TABLE, keys, Lease):
        if lease.expires_at + FORGOTTEN_AFTER < now:
            await tables.delete(_TABLE, _PARTITION, row.key)


async def give_up(tables: Tables, lease: Lease) -> None:
    """Let another process claim it at once. The row stays, because it has the fence."""
    known = await _read(tables, lease.name)
    if known is None or known.owner != lease.owner:
        return
    never = datetime.fromtimestamp(0, lease.expires_at.tzinfo)
    ended = msgspec.structs.replace(
        known, expires_at=never, troubles=NO_TROUBLES, mail_trouble=None, etag=""
    )
    with contextlib.suppress(Conflict):  # another process has it already
        await _write(tables, ended, known)


class RenewalTracker:
    """Tracks when each lease was last renewed, by our own monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}  # name: etag, and when it was first seen

    def is_alive(self, lease: Lease) -> bool:
        """Whether it was renewed within its duration, as far as we have seen."""
        now_s = self._clock.monotonic()
        etag, since_s = self._seen.get(lease.name, ("", now_s))
        if etag != lease.etag:
            self._seen[lease.name] = (lease.etag, now_s)
            oldest_s = now_s - LONGEST.total_seconds()
            self._seen = {name: seen for name, seen in self._seen.items() if seen[1] >= oldest_s}
            return True
        return now_s < since_s + lease.lasts_s
