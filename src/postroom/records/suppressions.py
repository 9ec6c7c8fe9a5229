"""The suppression list as rows of one partition.

    suppression / address / email:<address key>       an address, why and how far
    suppression / address / hash:<digest>             the same of an erased person, without address
    suppression / address / log:<time>:<name>         the marks of new or widened entries

An entry and its log row are one write. The log tells senders and the scheduler within seconds about
new entries; the sweep deletes it once the snapshot (suppression_filter.py) has them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from postroom.domain.suppression import Suppression, mark_of, widened
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import (
    FORMAT,
    all_rows,
    find_row,
    from_properties,
    stored,
    to_properties,
)
from postroom.records.sortable_time import parse_sortable, sortable
from postroom.records.stored import Stored
from postroom.storage.port import (
    BATCH_CHANGES_MAX,
    Change,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Replace,
    Tables,
    Upsert,
)

TABLE = "suppression"
PARTITION = "address"
EMAIL, HASH, LOG = "email:", "hash:", "log:"
END = "~"


def erased_name(secret: str, key: str) -> str:
    """The name of an erased person's row: nobody without the secret finds the address from it."""
    return HASH + hmac.new(secret.encode(), b"erased\0" + key.encode(), hashlib.sha256).hexdigest()


def row_name(entry: Suppression, secret: str, key: str) -> str:
    return EMAIL + key if entry.key else erased_name(secret, key)


async def find(tables: Tables, secret: str, key: str) -> Stored[Suppression] | None:
    """The entry of an address, also if it was erased."""
    for name in (EMAIL + key, erased_name(secret, key)):
        if found := await find_row(tables, TABLE, PARTITION, name, Suppression):
            return found
    return None


async def find_many(tables: Tables, secret: str, keys: Sequence[str]) -> dict[str, Suppression]:
    """The entries of some addresses: one by one if they are few, else by a range query."""
    few = len(keys) <= 32
    found: dict[str, Suppression] = {}
    if few:
        for key in keys:
            if entry := await find(tables, secret, key):
                found[key] = entry.value
        return found
    wanted = set(keys)
    span = KeysWithin(PARTITION, EMAIL + min(keys), EMAIL + max(keys) + END)
    async for row in all_rows(tables, TABLE, span):
        key = row.key.removeprefix(EMAIL)
        if key in wanted:
            found[key] = from_properties(row.properties, Suppression)
    erased = {erased_name(secret, key): key for key in wanted - found.keys()}
    async for row in all_rows(tables, TABLE, KeysWithin(PARTITION, HASH, HASH + END)):
        if row.key in erased:
            found[erased[row.key]] = from_properties(row.properties, Suppression)
    return found


async def put(
    tables: Tables, secret: str, key: str, entry: Suppression, now: datetime
) -> Suppression:
    """Add an entry, or widen the one that is there; return what is stored."""

    async def write() -> Suppression:
        name = row_name(entry, secret, key)
        known = await find_row(tables, TABLE, PARTITION, name, Suppression)
        after = widened(known.value if known else None, entry)
        changes: list[Change] = [_log_row(await _end_of_log(tables, now), name, [after])]
        if known is None:
            changes.append(Insert(name, to_properties(after)))
        elif after != known.value:
            changes.append(Replace(name, to_properties(after), known.etag))
        await tables.batch(TABLE, PARTITION, changes)  # logged again, in case it was overlooked
        return after

    return await retry_on_conflict(write)


async def put_new(
    tables: Tables, secret: str, entries: Sequence[tuple[str, Suppression]], now: datetime
) -> int:
    """Add up to NEW_MAX entries in one write, each key once; those that are there are widened."""
    changes: list[Change] = [
        Insert(row_name(entry, secret, key), to_properties(entry)) for key, entry in entries
    ]
    log_at = await _end_of_log(tables, now)
    changes.append(_log_row(log_at, changes[0].key, [entry for _key, entry in entries]))
    try:
        await tables.batch(TABLE, PARTITION, changes)
        return len(entries)
    except Conflict:
        added = 0
        for key, entry in entries:
            known = await find(tables, secret, key)
            await put(tables, secret, key, entry, now)
            added += known is None
        return added


NEW_MAX = BATCH_CHANGES_MAX - 1  # entries that `put_new` takes, with one row in the log


async def remove(tables: Tables, secret: str, key: str) -> Suppression | None:
    """Remove the entry of an address; return what it was."""
    removed: Suppression | None = None
    for name in (EMAIL + key, erased_name(secret, key)):
        if found := await find_row(tables, TABLE, PARTITION, name, Suppression):
            with contextlib.suppress(Conflict):
                await tables.delete(TABLE, PARTITION, name, found.etag)
                removed = found.value
    return removed


class SuppressionPage(msgspec.Struct, frozen=True):
    """Some entries in key order, and where the next page begins."""

    entries: list[Suppression]
    next: str | None


async def page(
    tables: Tables, *, prefix: str = "", after: str = "", limit: int = 50
) -> SuppressionPage:
    """Entries whose address key begins with the prefix; erased people are not among them."""
    start = f"{EMAIL}{after} " if after else EMAIL + prefix
    keys = KeysWithin(PARTITION, max(start, EMAIL + prefix), EMAIL + prefix + END)
    entries: list[Suppression] = []
    async for row in all_rows(tables, TABLE, keys):
        if len(entries) == limit:
            return SuppressionPage(entries, entries[-1].key)
        entries.append(from_properties(row.properties, Suppression))
    return SuppressionPage(entries, None)


async def everyone(tables: Tables) -> AsyncIterator[tuple[str, Stored[Suppression]]]:
    """All entries with the names of their rows, erased people last."""
    for kind in (EMAIL, HASH):
        async for row in all_rows(tables, TABLE, KeysWithin(PARTITION, kind, kind + END)):
            yield row.key, stored(row, Suppression)


async def marks_since(tables: Tables, since: datetime) -> AsyncIterator[tuple[datetime, int]]:
    """The marks of new entries since a time, with the time of each; some may come twice."""
    keys = KeysWithin(PARTITION, LOG + sortable(since), LOG + END)
    async for row in all_rows(tables, TABLE, keys):
        at = parse_sortable(row.key.split(":", 2)[1])
        marks = str(row.properties["Marks"])
        for start in range(0, len(marks), 8):
            yield at, int(marks[start : start + 8], 16)


async def forget_log(tables: Tables, before: datetime) -> None:
    """Delete log rows that the snapshot covers."""
    keys = KeysWithin(PARTITION, LOG, LOG + sortable(before))
    rows: list[Change] = []
    async for row in all_rows(tables, TABLE, keys):
        rows.append(Delete(row.key))
        if len(rows) == BATCH_CHANGES_MAX:
            await tables.batch(TABLE, PARTITION, rows)
            rows = []
    if rows:
        await tables.batch(TABLE, PARTITION, rows)


def _log_row(at: datetime, name: str, entries: Sequence[Suppression]) -> Upsert:
    marks = "".join(f"{entry.mark or mark_of(entry.key):08x}" for entry in entries)
    return Upsert(f"{LOG}{sortable(at)}:{name}", {"Format": FORMAT, "Marks": marks})


async def _end_of_log(tables: Tables, now: datetime) -> datetime:
    """The time for a new log row: now, or that of the newest row if our clock is behind."""
    newest = now
    async for at, _mark in marks_since(tables, now):
        newest = max(newest, at)
    return newest
