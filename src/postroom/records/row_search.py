"""Find rows among many: a page within a bounded time, however few rows match.

An engine answers a scan with short pages when few rows match. They are joined until the page is
full or the time is over; then the page is shown as far as it got, and the reader may continue.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from postroom.clock import Clock
from postroom.storage.port import Keys, KeysWithin, Properties, Row, Tables

FOUND_WITHIN_S = 0.06  # the last scan, up to 0.04 s, and the page itself come on top
COMPARED_AT_ONCE = 500  # rows: a few milliseconds


class FoundRows(msgspec.Struct, frozen=True):
    rows: list[Row]
    next: str | None  # more may follow, even if nothing was found


async def search_rows(
    tables: Tables,
    clock: Clock,
    table: str,
    keys: Keys,
    *,
    where: Properties | None = None,
    limit: int,
    after: str | None = None,
    within_s: float = FOUND_WITHIN_S,
) -> FoundRows:
    """Return up to `limit` rows that have all properties of `where`; `after` is the last `next`."""
    rows: list[Row] = []
    until = clock.monotonic() + within_s
    while True:
        page = await tables.scan(table, keys, where=where, limit=limit - len(rows), after=after)
        rows += page.rows
        after = page.next
        if after is None or len(rows) == limit or clock.monotonic() >= until:
            return FoundRows(rows, after)


async def search_partition(
    tables: Tables,
    clock: Clock,
    table: str,
    keys: KeysWithin,
    matches: Callable[[Row], bool],
    *,
    limit: int,
    after: str | None = None,
    within_s: float = FOUND_WITHIN_S,
) -> FoundRows:
    """The same for one partition, compared here; `next` is the last key that was examined."""
    rows: list[Row] = []
    until = clock.monotonic() + within_s
    start = max(keys.start, f"{after} ") if after else keys.start  # a space sorts before all others
    continuation: str | None = None
    seen: str | None = None
    while True:
        page = await tables.scan(
            table,
            KeysWithin(keys.partition, start, keys.stop),
            limit=COMPARED_AT_ONCE,
            after=continuation,
        )
        for row in page.rows:
            if len(rows) == limit:
                return FoundRows(rows, seen)
            seen = row.key
            if matches(row):
                rows.append(row)
        continuation = page.next
        if continuation is None:
            return FoundRows(rows, None)
        if seen is not None and clock.monotonic() >= until:
            return FoundRows(rows, seen)
