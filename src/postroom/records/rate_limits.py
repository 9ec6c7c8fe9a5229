"""Rate limits as rows: `service` / `limit` / `transport` or `domain:<domain>`.

A row has the limit, which people set, and the shares of the senders that have emails for it. The
row's etag guards both, so that no change is lost. One scan reads all limits, and one batch renews a
sender's share in all of them.
Dies half-way: a batch is all or nothing. The share of a dead sender stays until the others have
seen it unchanged for a lease.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.rate_limit import TRANSPORT, RateLimit, Share
from postroom.domain.texts import _
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import (
    all_rows,
    from_properties,
    to_properties,
    unreadable_logged,
    write_row,
)
from postroom.storage.port import KeysWithin, Replace, Row, Tables

LIMITS_MAX = 50  # they are read together and renewed by one batch
TRIES_MAX = 20  # of a person's change against the senders' renewals
_TABLE, _PARTITION, _DOMAIN = "service", "limit", "domain:"


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    mails_per_s: float = 0.0
    connections: int = 0
    shares: dict[str, Share] = {}
    etag: str = ""  # of its row
    is_readable: bool = True  # no sender begins an item without knowing it

    def limit(self, name: str) -> RateLimit:
        return RateLimit(name, self.mails_per_s, self.connections)


async def all_limits(tables: Tables) -> dict[str, LimitRow]:
    """Every limit by its name: `transport` first, then the domains in order."""
    found = {
        row.key.removeprefix(_DOMAIN): _limit_row(row)
        async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION))
    }
    return {name: found[name] for name in sorted(found, key=lambda each: (each != TRANSPORT, each))}


def _limit_row(row: Row) -> LimitRow:
    found = LimitRow(is_readable=False)
    with unreadable_logged(table=_TABLE, key=row.key):
        found = from_properties(row.properties, LimitRow)
    return msgspec.structs.replace(found, etag=row.etag)


async def write_shares(tables: Tables, rows: Mapping[str, LimitRow]) -> None:
    """Write all or none; Conflict if any of the rows changed since it was read."""
    changes = [Replace(_key(name), to_properties(row), row.etag) for name, row in rows.items()]
    await tables.batch(_TABLE, _PARTITION, changes)


async def set_limit(tables: Tables, limit: RateLimit) -> None:
    """Set a limit; senders follow within seconds and divide it again."""

    async def write() -> None:
        limits = await all_limits(tables)
        known = limits.get(limit.name)
        if known is None and len(limits) >= LIMITS_MAX:
            raise BadInput(
                _("There are already {limit} limits. Clear one first.", limit=LIMITS_MAX)
            )
        shares = known.shares if known else {}
        row = LimitRow(mails_per_s=limit.mails_per_s, connections=limit.connections, shares=shares)
        etag = known.etag if known else None
        await write_row(tables, _TABLE, _PARTITION, _key(limit.name), to_properties(row), etag)

    await retry_on_conflict(write, tries=TRIES_MAX)


async def clear_limit(tables: Tables, name: str) -> bool:
    is_there = await tables.get(_TABLE, _PARTITION, _key(name)) is not None
    await tables.delete(_TABLE, _PARTITION, _key(name))
    return is_there


def _key(name: str) -> str:
    return name if name == TRANSPORT else _DOMAIN + name
