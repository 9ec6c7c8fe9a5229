"""The audit log as rows: `audit` / `log` / <time, newest first>-<order><nonce>.

Append-only: an entry is inserted before its action begins, and written once more to record how it
ended. Nothing else changes it, and it is deleted only by age.
Dies half-way: an action that was not recorded was not begun, because if its entry cannot be
written, the action is not started. An action that died is in the log as started, without an end; a
person has to check whether it was done.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import count

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.audit import AuditEntry, AuditKind, AuditOutcome, mask_addresses
from postroom.records.row_search import FOUND_WITHIN_S, search_partition
from postroom.records.rows import readable, to_properties
from postroom.records.sortable_time import sortable_newest_first
from postroom.storage.port import BATCH_CHANGES_MAX, Delete, KeysWithin, Row, StorageError, Tables

log = structlog.get_logger("records")
TABLE = "audit"
_PARTITION = "log"
EXPIRED_BATCHES_A_SWEEP = 50
_EXPORTED_A_PAGE = 500
# Entries of one process within a millisecond stay in order.
_PLACES = 10**6
_begun = count()


class BegunEntry(msgspec.Struct, frozen=True):
    key: str
    etag: str
    entry: AuditEntry


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    person: str = ""  # part of a name or an IP address
    kind: AuditKind | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: str = ""  # part of what was changed, or of its values


class AuditPage(msgspec.Struct, frozen=True):
    entries: list[AuditEntry]
    next: str | None  # more may follow, even if this page is empty


async def begin(tables: Tables, entry: AuditEntry) -> BegunEntry:
    place = _PLACES - next(_begun) % _PLACES - 1
    key = f"{sortable_newest_first(entry.at)}-{place:06}{secrets.token_hex(3)}"
    etag = await tables.insert(TABLE, _PARTITION, key, to_properties(entry))
    return BegunEntry(key, etag, entry)


async def end(tables: Tables, begun: BegunEntry, outcome: AuditOutcome) -> None:
    """Record how it ended; if that fails, the entry stays without an end."""
    ended = to_properties(msgspec.structs.replace(begun.entry, outcome=outcome))
    try:
        await tables.replace(TABLE, _PARTITION, begun.key, ended, begun.etag)
    except StorageError as error:
        log.warning("audit_end_lost", kind=begun.entry.kind.value, error=type(error).__name__)


async def page(
    tables: Tables,
    clock: Clock,
    wanted: AuditFilter,
    *,
    limit: int,
    after: str | None = None,
    within_s: float = FOUND_WITHIN_S,
) -> AuditPage:
    """Entries that match, newest first; a page may be short because time ran out."""
    start = sortable_newest_first(wanted.before) + "~" if wanted.before else ""
    stop = sortable_newest_first(wanted.since) + "~" if wanted.since else ""
    found = await search_partition(
        tables,
        clock,
        TABLE,
        KeysWithin(_PARTITION, start, stop),
        lambda row: _matches(row, wanted),
        limit=limit,
        after=after,
        within_s=within_s,
    )
    return AuditPage([each.value for each in readable(found.rows, AuditEntry)], found.next)


async def everything(
    tables: Tables, clock: Clock, wanted: AuditFilter
) -> AsyncIterator[AuditEntry]:
    """All entries that match, newest first, page by page."""
    after: str | None = None
    while True:
        found = await page(tables, clock, wanted, limit=_EXPORTED_A_PAGE, after=after)
        for entry in found.entries:
            yield entry
        if found.next is None:
            return
        after = found.next


async def expire(tables: Tables, now: datetime, *, keep_days: int) -> int:
    """Delete entries older than `keep_days`, a bounded number at a time; return how many."""
    deleted = 0
    keys = KeysWithin(_PARTITION, sortable_newest_first(now - timedelta(days=keep_days)))
    for _batch in range(EXPIRED_BATCHES_A_SWEEP):
        old = await tables.scan(TABLE, keys, limit=BATCH_CHANGES_MAX)
        if old.rows:
            await tables.batch(TABLE, _PARTITION, [Delete(row.key) for row in old.rows])
            deleted += len(old.rows)
        if old.next is None:
            break
    return deleted


def _matches(row: Row, wanted: AuditFilter) -> bool:
    """Compare as text, without decoding every row; an address is searched as it is masked."""

    def text(*names: str) -> str:
        return " ".join(str(row.properties.get(name, "")) for name in names).casefold()

    if wanted.kind and row.properties.get("Kind") != wanted.kind.value:
        return False
    if wanted.person and wanted.person.casefold() not in text("Actor", "Client"):
        return False
    if not wanted.text:
        return True
    places = text("Name", "Before", "After", "Action")
    return any(each.casefold() in places for each in (wanted.text, mask_addresses(wanted.text)))
