"""The suppression list as rows of one partition.

    suppression / address / email:<address key>       an address, why and how far
    suppression / address / hash:<digest>             the same of an erased person, without address
    suppression / address / log:<time>:<nonce>        the marks of new or widened entries

Entries and their log row are one write. Senders and the scheduler learn about new entries from the
log within seconds; the sweep deletes log rows once the snapshot (suppression_filter.py) has them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from postroom.domain.suppression import Suppression, mark_of, widened
from postroom.records.retry import TRIES_MAX, retry_on_conflict
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
)

TABLE = "suppression"
PARTITION = "address"
EMAIL, HASH, LOG = "email:", "hash:", "log:"
END = "~~~~"  # sorts after every key that follows a prefix
NEW_MAX = BATCH_CHANGES_MAX - 1  # entries that `put_new` takes; the last change is the log row
LOG_SKEW = timedelta(minutes=10)  # how far before the newest row it knows a process reads the log
_LOG_TRIES_MAX = 10
LOG_PAGE_ROWS = 250  # of an import: a page takes 1 MB while it is read, one of 1,000 takes 5
_MARK_CHARS = 8  # hexadecimal
_NONCE_BYTES = 6


def erased_name(secret: str, key: str) -> str:
    """The name of an erased person's row; it reveals the address to nobody without the secret."""
    return HASH + hmac.new(secret.encode(), b"erased\0" + key.encode(), hashlib.sha256).hexdigest()


def row_name(entry: Suppression, secret: str, key: str) -> str:
    return EMAIL + key if entry.key else erased_name(secret, key)


async def find(tables: Tables, secret: str, key: str) -> Stored[Suppression] | None:
    """The entry of an address, even if it was erased."""
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
    """Add an entry, or widen the existing one; return what is stored."""
    log_at = now

    async def write() -> Suppression:
        nonlocal log_at
        name = row_name(entry, secret, key)
        known = await find_row(tables, TABLE, PARTITION, name, Suppression)
        after = widened(known.value if known else None, entry)
        log_at = await end_of_log(tables, now)
        changes: list[Change] = [_log_row(log_at, [after])]
        if known is None:
            changes.append(Insert(name, to_properties(after)))
        elif after != known.value:
            changes.append(Replace(name, to_properties(after), known.etag))
        await tables.batch(TABLE, PARTITION, changes)  # logged again, in case it was overlooked
        return after

    written = await retry_on_conflict(write)
    await repeat_in_log(tables, [written], log_at)
    return written


class PutCounts(msgspec.Struct, frozen=True):
    """What `put_new` did."""

    added: int = 0
    widened: int = 0
    unchanged: int = 0


async def put_new(
    tables: Tables, secret: str, entries: Sequence[tuple[str, Suppression]], log_at: datetime
) -> PutCounts:
    """Add up to NEW_MAX entries in one write, each key once; existing ones are widened.

    `log_at` comes from `end_of_log`; afterwards the caller calls `repeat_in_log`. One log row has
    all their marks: senders read the log of the last minutes repeatedly, and a row for each of a
    million entries would keep them from sending.
    """
    names = [row_name(entry, secret, key) for key, entry in entries]
    given = [entry for _key, entry in entries]
    new = [Insert(name, to_properties(entry)) for name, entry in zip(names, given, strict=True)]
    try:
        await tables.batch(TABLE, PARTITION, [*new, _log_row(log_at, given)])
        return PutCounts(added=len(entries))
    except Conflict:  # some are there
        return await retry_on_conflict(lambda: _put_among_others(tables, names, entries, log_at))


async def _put_among_others(
    tables: Tables,
    names: Sequence[str],
    entries: Sequence[tuple[str, Suppression]],
    log_at: datetime,
) -> PutCounts:
    known = await asyncio.gather(
        *(find_row(tables, TABLE, PARTITION, name, Suppression) for name in names)
    )
    changes: list[Change] = []
    changed: list[Suppression] = []
    added = 0
    for name, (_key, entry), found in zip(names, entries, known, strict=True):
        after = widened(found.value if found else None, entry)
        if found and after == found.value:
            continue
        changed.append(after)
        added += found is None
        row = to_properties(after)
        changes.append(Replace(name, row, found.etag) if found else Insert(name, row))
    if changes:
        await tables.batch(TABLE, PARTITION, [*changes, _log_row(log_at, changed)])
    return PutCounts(added, len(changed) - added, len(entries) - len(changed))


async def remove(
    tables: Tables, secret: str, key: str, *, etag: str | None = None
) -> Suppression | None:
    """Remove the entry of an address; return what it was. Conflict if it has another etag."""

    async def delete() -> Suppression | None:
        removed: Suppression | None = None
        for name in (EMAIL + key, erased_name(secret, key)):
            if found := await find_row(tables, TABLE, PARTITION, name, Suppression):
                await tables.delete(TABLE, PARTITION, name, etag or found.etag)
                removed = removed or found.value
        return removed

    return await retry_on_conflict(delete, tries=1 if etag else TRIES_MAX)


async def forget_address(tables: Tables, key: str) -> None:
    """Delete the entry that has the address, once there is one with its hash."""
    await tables.delete(TABLE, PARTITION, EMAIL + key)


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
    async for row in all_rows(tables, TABLE, KeysWithin(PARTITION, EMAIL, HASH + END)):
        yield row.key, stored(row, Suppression)


class LoggedMarks(msgspec.Struct, frozen=True):
    """One row of the log."""

    row_key: str
    at: datetime
    text: str  # as stored: rows of an import are read again and again, but decoded once

    @property
    def marks(self) -> tuple[int, ...]:
        return struct.unpack(f">{len(self.text) // _MARK_CHARS}I", bytes.fromhex(self.text))

    @property
    def is_import(self) -> bool:
        return len(self.text) > _MARK_CHARS


async def marks_since(tables: Tables, since: datetime) -> AsyncIterator[LoggedMarks]:
    """The marks of new entries since a time; some may come twice."""
    keys = KeysWithin(PARTITION, log_start(since), LOG + END)
    async for row in all_rows(tables, TABLE, keys, page_rows=LOG_PAGE_ROWS):
        at = parse_sortable(row.key.split(":", 2)[1])
        yield LoggedMarks(row.key, at, str(row.properties["Marks"]))


def log_start(since: datetime) -> str:
    """The lowest key that a log row of this time may have."""
    return LOG + sortable(since)


async def forget_log(tables: Tables, before: datetime) -> None:
    """Delete log rows that the snapshot covers."""
    keys = KeysWithin(PARTITION, LOG, log_start(before))
    rows: list[Change] = []
    async for row in all_rows(tables, TABLE, keys, page_rows=LOG_PAGE_ROWS):
        rows.append(Delete(row.key))
        if len(rows) == BATCH_CHANGES_MAX:
            await tables.batch(TABLE, PARTITION, rows)
            rows = []
    if rows:
        await tables.batch(TABLE, PARTITION, rows)


async def end_of_log(tables: Tables, now: datetime) -> datetime:
    """The time for a new log row: now, or that of the newest row if our clock is behind."""
    newest = now
    async for logged in marks_since(tables, now):
        newest = max(newest, logged.at)
    return newest


async def repeat_in_log(tables: Tables, entries: Sequence[Suppression], log_at: datetime) -> None:
    """Log entries again if much newer rows arrived while they were being written.

    A process that has read those does not read as far back as the first rows.
    """
    for _try in range(_LOG_TRIES_MAX):
        late = log_at + LOG_SKEW / 2
        log_at = await end_of_log(tables, late)
        if log_at == late:
            return
        for start in range(0, len(entries), NEW_MAX):
            row = _log_row(log_at, entries[start : start + NEW_MAX])
            await tables.batch(TABLE, PARTITION, [row])
    raise Conflict("the log of suppressions grows too fast")


def _log_row(at: datetime, entries: Iterable[Suppression]) -> Insert:
    marks = "".join(f"{entry.mark or mark_of(entry.key):0{_MARK_CHARS}x}" for entry in entries)
    key = f"{LOG}{sortable(at)}:{secrets.token_hex(_NONCE_BYTES)}"
    return Insert(key, {"Format": FORMAT, "Marks": marks})
