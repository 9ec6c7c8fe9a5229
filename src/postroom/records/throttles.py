"""Password attempts, counted over all web processes, as rows of `service`, partition `throttle`.

try-<hash>     until when the attempts of one caller are paid off

Callers are already hashed with a secret, so no row contains an address. The sweep deletes rows
whose time has passed.

Dies half-way: an attempt is counted before the password is checked, so a crash uses it up.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from postroom.domain.throttle import NO_WAIT, Rate
from postroom.records.rows import FORMAT, all_rows, check_format, write_row
from postroom.storage.port import Conflict, KeysWithin, Properties, Tables

CLOCKS_APART_MAX = timedelta(minutes=1)
TRY_CONFLICTS_MAX = 5
_TABLE = "service"
_PARTITION = "throttle"
_TRY = "try-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def count_try(tables: Tables, caller: str, rate: Rate, now: datetime) -> timedelta:
    """Count the attempt and return no wait; or return how long to wait, without counting it.

    This is exact under concurrency: if two attempts read the same row, one writes it and the other
    reads it again. A caller that loses every time is making very many attempts, and has to wait.
    """
    key = _TRY + caller
    for _try in range(TRY_CONFLICTS_MAX):
        row = await tables.get(_TABLE, _PARTITION, key)
        paid_off_at = now
        if row:
            check_format(row.properties)
            until_us = int(row.properties.get("UntilMicroseconds", 0))
            paid_off_at = _EPOCH + timedelta(microseconds=until_us)
        paid_off_at, wait = rate.count(paid_off_at, now)
        if wait > NO_WAIT:
            return wait
        properties: Properties = {"Format": FORMAT, "UntilMicroseconds": _microseconds(paid_off_at)}
        with contextlib.suppress(Conflict):
            etag = row.etag if row else None
            await write_row(tables, _TABLE, _PARTITION, key, properties, etag)
            return NO_WAIT
    return rate.interval


async def forgive_tries(tables: Tables, caller: str) -> None:
    """Start counting again after the right password."""
    await tables.delete(_TABLE, _PARTITION, _TRY + caller)


async def forget_expired(tables: Tables, now: datetime) -> None:
    """Delete rows whose time has passed; one that is written again meanwhile stays."""
    async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION)):
        until_us = row.properties.get("UntilMicroseconds", 0)
        if isinstance(until_us, int) and until_us < _microseconds(now - CLOCKS_APART_MAX):
            with contextlib.suppress(Conflict):
                await tables.delete(_TABLE, _PARTITION, row.key, row.etag)


def _microseconds(at: datetime) -> int:
    """Whole, so that the time does not shift by being stored."""
    return (at - _EPOCH) // timedelta(microseconds=1)
