"""Traces as rows, newest first.

    trace / <level>-<falling hour> / <falling time>-<falling number>-<instance>    every trace
    trace / message-<ref>, person-<id> / the same key    a copy of each that names one
    trace / counts / <falling hour>-<instance>    how many an instance wrote in an hour

A page by level, message or person reads only rows of that kind. Any other filter examines rows one
by one, a limited number per page; the page then has the position from which to continue.
Dies half-way: a count may be too high; a copy may be missing, but its trace exists. Expiry deletes
copies first and counts last, so that nothing is left that cannot be found.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from postroom.domain.trace_entry import TraceEntry, TraceLevel
from postroom.records.rows import (
    Unreadable,
    all_rows,
    first_rows,
    from_properties,
    to_properties,
)
from postroom.records.sortable_time import parse_newest_first, sortable_newest_first
from postroom.storage.port import (
    BATCH_CHANGES_MAX,
    SCAN_ROWS_MAX,
    Change,
    Conflict,
    Delete,
    Keys,
    KeysAcross,
    KeysWithin,
    Properties,
    Row,
    Tables,
    Upsert,
)

TABLE = "trace"
SCANS_A_PAGE = 8  # of up to 1000 rows: a tenth of a second, even when nothing matches
EXPIRED_BATCHES_A_SWEEP = 300
_COUNTS = "counts"
_HOURS_MAX = 999_999
_NUMBERS = 1_000_000
_END = "."  # follows the hyphen after the name of a level
_KEY = re.compile(r"[0-9]{15}-[0-9]{6}-[0-9A-Za-z._-]{1,60}")


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which traces to show; empty values match everything."""

    level: TraceLevel = TraceLevel.INFO  # at least
    role: str = ""
    instance: str = ""
    ref: str = ""
    person: str = ""
    text: str = ""  # anywhere in the English sentence, or the name of the event
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, row: Properties) -> bool:
        """Whether to show a row; it is tested as it is stored, because most are not shown."""
        return (
            all(row.get(name) == value for name, value in self._exact.items())
            and row.get("Level") in self.level.and_above
            and (
                not self.text
                or self.text.lower() in str(row.get("Details")).lower()
                or self.text == row.get("Event")
            )
        )

    @property
    def _exact(self) -> dict[str, str]:
        names = {"Role": self.role, "Instance": self.instance}
        names |= {"MessageRef": self.ref, "Person": self.person}
        return {name: value for name, value in names.items() if value}

    @property
    def needs_examination(self) -> bool:
        """Whether rows must be read that may not match."""
        by_copy = bool(self.ref or self.person)
        others = (self.role, self.instance, self.text, self.ref and self.person)
        return any(others) or (by_copy and self.level is not TraceLevel.DEBUG)


class KeyedTrace(NamedTuple):
    key: str
    entry: TraceEntry


class TracePage(NamedTuple):
    traces: list[KeyedTrace]
    next: str | None  # where the next page begins; None: there is nothing older
    is_complete: bool  # False: it is short because the limit of examined rows was reached


def trace_key(at: datetime, number: int, instance: str) -> str:
    """A key that falls with time; `number` counts the traces of one process."""
    return f"{sortable_newest_first(at)}-{_NUMBERS - 1 - number % _NUMBERS:06d}-{instance}"


def is_trace_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def time_of(key: str) -> datetime:
    """The time of a trace, to the millisecond."""
    return parse_newest_first(key[:15])


async def write(tables: Tables, traces: Sequence[KeyedTrace]) -> None:
    """Write the traces, then their copies. Harmless if repeated."""
    main: dict[str, list[Change]] = defaultdict(list)
    copies: dict[str, list[Change]] = defaultdict(list)
    for key, entry in traces:
        change = Upsert(key, to_properties(entry))
        main[f"{entry.level}-{_hour(entry.at)}"].append(change)
        for partition in _copied_to(entry):
            copies[partition].append(change)
    for partition, changes in (*main.items(), *copies.items()):
        for start in range(0, len(changes), BATCH_CHANGES_MAX):
            await tables.batch(TABLE, partition, changes[start : start + BATCH_CHANGES_MAX])


async def note_count(tables: Tables, instance: str, at: datetime, rows: int) -> None:
    """Note how many rows an instance has written in this hour, before it writes them."""
    await tables.upsert(TABLE, _COUNTS, f"{_hour(at)}-{instance}", {"Rows": rows, "Format": 1})


async def read_page(
    tables: Tables,
    wanted: TraceFilter,
    *,
    limit: int,
    before: str = "",
    scans: int = SCANS_A_PAGE,
) -> TracePage:
    """Return traces older than the key `before`, newest first."""
    readers = _readers(tables, wanted, limit, before)
    found: list[KeyedTrace] = []
    while len(found) < limit:
        while empty := [each for each in readers if each.is_empty]:
            if scans <= 0 and all(each.reached > before for each in empty):
                break  # not before each has got somewhere, or the next page would be the same
            for reader in empty:
                await reader.read()
            scans -= len(empty)
        unread = [each.reached for each in readers if each.is_empty]
        waiting = [each for each in readers if each.waiting]
        first = min(waiting, key=lambda each: each.waiting[0].key, default=None)
        if unread and (first is None or first.waiting[0].key > min(unread)):
            return TracePage(found, min(unread), is_complete=False)
        if first is None:
            return TracePage(found, None, is_complete=True)
        found.append(first.waiting.pop(0))
    has_more = any(each.waiting or not each.is_done for each in readers)
    return TracePage(found, found[-1].key if has_more else None, is_complete=True)


@dataclass
class _TraceReader:
    """Reads rows of one kind, newest first; those that match wait to be taken."""

    tables: Tables
    ranges: list[Keys]
    wanted: TraceFilter
    limit: int  # rows a scan
    last: str  # keys from here on are too old; empty: none is
    reached: str = ""  # the last key that was examined
    waiting: list[KeyedTrace] = field(default_factory=list)
    _after: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to read."""
        return not self.ranges

    @property
    def is_empty(self) -> bool:
        """Whether it must be read before anything older is shown."""
        return not self.waiting and not self.is_done

    async def read(self) -> None:
        page = await self.tables.scan(TABLE, self.ranges[0], limit=self.limit, after=self._after)
        self._after = page.next
        if page.next is None:
            self.ranges.pop(0)
        for row in page.rows:
            if self.last and row.key >= self.last:
                self.ranges.clear()
                return
            self.reached = row.key
            if self.wanted.matches(row.properties) and (entry := _entry(row)):
                self.waiting.append(KeyedTrace(row.key, entry))


def _readers(tables: Tables, wanted: TraceFilter, limit: int, before: str) -> list[_TraceReader]:
    until = sortable_newest_first(wanted.until) if wanted.until else ""
    first = max(f"{before} " if before else "", until)
    last = sortable_newest_first(wanted.since) if wanted.since else ""
    size = SCAN_ROWS_MAX if wanted.needs_examination else min(limit + 1, SCAN_ROWS_MAX)
    if wanted.ref or wanted.person:
        partition = f"message-{wanted.ref}" if wanted.ref else f"person-{wanted.person}"
        return [_TraceReader(tables, [KeysWithin(partition, first)], wanted, size, last, before)]
    return [
        _TraceReader(tables, _ranges(level, first, last), wanted, size, last, before)
        for level in wanted.level.and_above
    ]


def _ranges(level: TraceLevel, first: str, last: str) -> list[Keys]:
    stop = f"{level}-{_later(_hour(parse_newest_first(last[:15])))}" if last else f"{level}{_END}"
    if not first:
        return [KeysAcross(f"{level}-", stop)]
    hour = _hour(parse_newest_first(first[:15]))
    rest = KeysAcross(f"{level}-{_later(hour)}", stop)
    within = KeysWithin(f"{level}-{hour}", first)
    return [within, rest] if rest.start < rest.stop else [within]


def _hour(at: datetime) -> str:
    return f"{_HOURS_MAX - int(at.timestamp() // 3600):06d}"


def _later(hour: str) -> str:
    """The next partition in order, which is of the hour before."""
    return f"{int(hour) + 1:06d}"


def _copied_to(entry: TraceEntry) -> list[str]:
    by_message = [f"message-{entry.ref}"] if entry.ref else []
    return by_message + ([f"person-{entry.person}"] if entry.person else [])


def _entry(row: Row) -> TraceEntry | None:
    try:
        return from_properties(row.properties, TraceEntry)
    except Unreadable:  # of another version: the other traces matter more
        return None


# --- Expiry -----------------------------------------------------------------------------------


async def expire(tables: Tables, now: datetime, *, keep_days: float, rows_max: int) -> int:
    """Delete whole hours that are too old or too many, the oldest first; return how many rows.

    A bounded number of rows at a time: the next sweep continues.
    """
    oldest = _hour(now - timedelta(days=keep_days))
    counts: dict[str, list[str]] = defaultdict(list)  # keys by hour
    expired: list[str] = []
    rows = 0
    async for row in all_rows(tables, TABLE, KeysWithin(_COUNTS)):  # the newest first
        hour = row.key[: len(oldest)]
        rows += int(row.properties.get("Rows", 0))
        is_over = hour > oldest or rows > rows_max
        if is_over and hour > _hour(now) and hour not in counts:  # never the current hour
            expired.append(hour)
        counts[hour].append(row.key)
    room = EXPIRED_BATCHES_A_SWEEP * BATCH_CHANGES_MAX
    deleted = 0
    for hour in reversed(expired):
        deleted += await _delete_hour(tables, hour, room - deleted)
        if deleted >= room:
            break
        await _delete_keys(tables, _COUNTS, counts[hour])
    return deleted


async def _delete_hour(tables: Tables, hour: str, room: int) -> int:
    deleted = 0
    for level in TraceLevel:
        async for rows in _batches(tables, f"{level}-{hour}"):
            for partition, keys in _copies_of(rows).items():
                await _delete_keys(tables, partition, keys)
            await _delete_keys(tables, f"{level}-{hour}", [row.key for row in rows])
            deleted += len(rows)
            if deleted >= room:
                return deleted
    return deleted


def _copies_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The keys of the copies, by partition."""
    copies: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        entry = _entry(row)
        for partition in _copied_to(entry) if entry else []:
            copies[partition].append(row.key)
    return copies


async def _batches(tables: Tables, partition: str) -> AsyncIterator[list[Row]]:
    """The first rows, again and again, because the caller deletes them."""
    while True:
        rows, _more = await first_rows(
            tables, TABLE, KeysWithin(partition), limit=BATCH_CHANGES_MAX
        )
        if not rows:
            return
        yield rows


async def _delete_keys(tables: Tables, partition: str, keys: Sequence[str]) -> None:
    """Delete rows, some of which may be gone already."""
    try:
        await tables.batch(TABLE, partition, [Delete(key) for key in keys])
    except Conflict:
        for key in keys:
            await tables.delete(TABLE, partition, key)
