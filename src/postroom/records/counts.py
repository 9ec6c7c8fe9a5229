"""The number of people on a list, stored so that no page ever counts them.

delta:<time>-<nonce>    a change of the counts, written in the batch that changes the people
count                   all deltas folded so far
day:<yyyy-mm-dd>        joined and left that day, of the deltas folded so far

A delta exists if and only if the change does. Folding adds deltas to `count` and `day` and deletes
them in one write guarded by the etag of `count`, so a crash at any point counts each delta once. If
two processes fold at once, one of them gets a Conflict.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec

from postroom.domain.subscriber import Subscriber
from postroom.records.rows import all_rows, find_row, first_rows, from_properties, to_properties
from postroom.records.sortable_time import parse_sortable, sortable
from postroom.records.stored import Stored
from postroom.storage.port import (
    BATCH_CHANGES_MAX,
    Change,
    Delete,
    Insert,
    KeysWithin,
    Replace,
    Row,
    Tables,
    Upsert,
)

TABLE = "mailinglist"
DELTAS_READ_MAX = 1000  # not folded yet, which a page that shows counts adds up
DELTAS_A_FOLD = 50_000  # an import of two million people; about a second
FOLD_CHANGES_MAX = BATCH_CHANGES_MAX
_READS_MAX = 3
_COUNT, _DELTA, _DAY = "count", "delta:", "day:"
_END = "~"
_NONCE_BYTES = 8  # an import writes thousands of deltas with one time


class ListCounts(msgspec.Struct, frozen=True):
    verified: int = 0
    unverified: int = 0
    inactive: int = 0

    @property
    def people(self) -> int:
        """How many are subscribed, verified or not."""
        return self.verified + self.unverified


class Delta(ListCounts, frozen=True):
    """A change of the counts. People join or leave when they start or stop being mailed."""

    joined: int = 0
    left: int = 0


class DailyGrowth(msgspec.Struct, frozen=True):
    joined: int = 0
    left: int = 0


NOBODY = ListCounts()


def changes(
    people: Iterable[tuple[Subscriber | None, Subscriber | None]], at: datetime
) -> list[Change]:
    """Return one delta for the changes of people, before and after; empty if no count changes."""
    verified = unverified = inactive = joined = left = 0
    for before, after in people:
        was = _counts_of(before)
        is_ = _counts_of(after)
        verified += is_.verified - was.verified
        unverified += is_.unverified - was.unverified
        inactive += is_.inactive - was.inactive
        joined += is_.verified > was.verified
        left += is_.verified < was.verified
    delta = Delta(verified, unverified, inactive, joined=joined, left=left)
    return [_delta_row(delta, at)] if delta != Delta() else []


def newcomers(people: Sequence[Subscriber], at: datetime) -> Change:
    """Return the delta of people who are added in one batch, subscribed or inactive."""
    inactive = sum(one.inactive_reason is not None for one in people)
    verified = sum(one.verified for one in people)
    unverified = len(people) - verified - inactive
    return _delta_row(Delta(verified, unverified, inactive, joined=verified), at)


def _counts_of(one: Subscriber | None) -> ListCounts:
    if one is None:
        return NOBODY
    if one.inactive_reason:
        return ListCounts(inactive=1)
    return ListCounts(verified=1) if one.verified else ListCounts(unverified=1)


def _delta_row(delta: Delta, at: datetime) -> Insert:
    nonce = secrets.token_hex(_NONCE_BYTES)
    return Insert(f"{_DELTA}{sortable(at)}-{nonce}", to_properties(delta))


async def read(tables: Tables, list_name: str) -> ListCounts:
    """Read the current counts; they lag while over 1000 deltas are not folded."""
    found = await _read_count(tables, list_name)
    for _try in range(_READS_MAX):
        rows, _ = await first_rows(tables, TABLE, _deltas_of(list_name), limit=DELTAS_READ_MAX)
        again = await _read_count(tables, list_name)
        if again.etag == found.etag:
            return _sum(found.value, (_read_delta(row).delta for row in rows))
        found = again  # folded meanwhile: it has some of these deltas, and others were missed
    return found.value


async def _read_count(tables: Tables, list_name: str) -> Stored[ListCounts]:
    found = await find_row(tables, TABLE, list_name, _COUNT, ListCounts)
    return found or Stored(NOBODY, "")


async def growth(
    tables: Tables, list_name: str, now: datetime, days: int = 30
) -> list[tuple[date, int, int]]:
    """Return (day, joined, left) of the last days including today, as far as they are folded."""
    today = now.astimezone(UTC).date()
    shown = [today - timedelta(days=ago) for ago in reversed(range(days))]
    keys = KeysWithin(list_name, f"{_DAY}{shown[0]}", f"{_DAY}{shown[-1]}{_END}")
    known = {
        row.key.removeprefix(_DAY): from_properties(row.properties, DailyGrowth)
        async for row in all_rows(tables, TABLE, keys)
    }
    found = [known.get(str(day), DailyGrowth()) for day in shown]
    return [(day, each.joined, each.left) for day, each in zip(shown, found, strict=True)]


class _OpenDelta(NamedTuple):
    key: str
    day: str  # in UTC, as in the key of its row
    delta: Delta


def _read_delta(row: Row) -> _OpenDelta:
    at = parse_sortable(row.key.removeprefix(_DELTA).partition("-")[0])
    return _OpenDelta(row.key, str(at.date()), from_properties(row.properties, Delta))


async def fold(tables: Tables, list_name: str) -> int:
    """Fold about DELTAS_A_FOLD deltas at most, and return how many.

    Conflict if another process folds too, or deletes the list; the other deltas stay.
    """
    tally: _FoldedCounts | None = None
    after: str | None = None
    while tally is None or tally.folded < DELTAS_A_FOLD:
        page = await tables.scan(TABLE, _deltas_of(list_name), after=after)
        if page.rows:
            tally = tally or _FoldedCounts(tables, list_name, await _read_count(tables, list_name))
            for batch in _batches([*map(_read_delta, page.rows)]):
                await tally.fold(batch)
        after = page.next
        if after is None:
            break
    return tally.folded if tally else 0


@dataclass
class _FoldedCounts:
    tables: Tables
    list_name: str
    counts: Stored[ListCounts]  # without an etag, the row does not exist yet
    days: dict[str, DailyGrowth] = field(default_factory=dict)
    folded: int = 0

    async def fold(self, deltas: Sequence[_OpenDelta]) -> None:
        counts = _sum(self.counts.value, (each.delta for each in deltas))
        row = to_properties(counts)
        etag = self.counts.etag
        days: dict[str, DailyGrowth] = {}
        for each in deltas:
            known = days.get(each.day) or await self._day(each.day)
            days[each.day] = DailyGrowth(
                known.joined + each.delta.joined, known.left + each.delta.left
            )
        changes: list[Change] = [
            Replace(_COUNT, row, etag) if etag else Insert(_COUNT, row),
            *(Upsert(_DAY + day, to_properties(each)) for day, each in days.items()),
            *(Delete(each.key) for each in deltas),
        ]
        etags = await self.tables.batch(TABLE, self.list_name, changes)
        self.counts = Stored(counts, etags[0])
        self.days |= days
        self.folded += len(deltas)

    async def _day(self, day: str) -> DailyGrowth:
        """Read the row once, because only a fold writes it."""
        if day not in self.days:
            found = await find_row(self.tables, TABLE, self.list_name, _DAY + day, DailyGrowth)
            self.days[day] = found.value if found else DailyGrowth()
        return self.days[day]


def _batches(deltas: Sequence[_OpenDelta]) -> Iterator[list[_OpenDelta]]:
    """Group deltas so that each group fits into one write with the count and its days."""
    batch: list[_OpenDelta] = []
    days: set[str] = set()
    for each in deltas:
        if 1 + len(days | {each.day}) + len(batch) + 1 > FOLD_CHANGES_MAX:
            yield batch
            batch, days = [], set()
        batch.append(each)
        days.add(each.day)
    if batch:
        yield batch


def _deltas_of(list_name: str) -> KeysWithin:
    return KeysWithin(list_name, _DELTA, _DELTA + _END)


def _sum(counts: ListCounts, deltas: Iterable[Delta]) -> ListCounts:
    verified, unverified, inactive = counts.verified, counts.unverified, counts.inactive
    for delta in deltas:
        verified += delta.verified
        unverified += delta.unverified
        inactive += delta.inactive
    return ListCounts(verified, unverified, inactive)
