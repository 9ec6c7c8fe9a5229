"""How many people a list has, stored so that no page ever counts them.

delta:<time>-<nonce>    a change of the counts, written in the batch that changes the people
count                   all deltas folded so far
day:<yyyy-mm-dd>        joined and left that day, of the deltas folded so far

A delta exists if and only if the change does. Folding adds deltas to `count` and `day` and deletes
them by one write, guarded by the etag of `count`: whatever dies when, each is counted once. If two
processes fold at once, one of them gets a Conflict.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec

from postroom.domain.subscriber import Subscriber
from postroom.records.rows import all_rows, from_properties, to_properties
from postroom.records.sortable_time import moment, sortable
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
_LOOKS_MAX = 3
_COUNT, _DELTA, _DAY = "count", "delta:", "day:"
_END = "~"
_NONCE_BYTES = 8  # an import writes thousands of deltas with one time


class ListCounts(msgspec.Struct, frozen=True):
    """How many people of a list are verified, unverified and inactive."""

    verified: int = 0
    unverified: int = 0
    gone: int = 0

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


# --- Writing ----------------------------------------------------------------------------------


def change(before: Subscriber | None, after: Subscriber | None, at: datetime) -> list[Change]:
    """The delta of one person's change, for its batch; empty if no count changes."""
    return changes([(before, after)], at)


def changes(
    people: Iterable[tuple[Subscriber | None, Subscriber | None]], at: datetime
) -> list[Change]:
    """One delta for the changes of several people, before and after; empty if no count changes."""
    verified = unverified = gone = joined = left = 0
    for before, after in people:
        was, is_ = _standing(before), _standing(after)
        verified += is_.verified - was.verified
        unverified += is_.unverified - was.unverified
        gone += is_.gone - was.gone
        joined += is_.verified > was.verified
        left += is_.verified < was.verified
    delta = Delta(verified, unverified, gone, joined=joined, left=left)
    return [_noted(delta, at)] if delta != Delta() else []


def newcomers(people: Sequence[Subscriber], at: datetime) -> Change:
    """The delta of people who are added in one batch, as subscribed or as inactive."""
    gone = sum(one.gone is not None for one in people)
    verified = sum(one.verified for one in people)
    unverified = len(people) - verified - gone
    return _noted(Delta(verified, unverified, gone, joined=verified), at)


def _standing(one: Subscriber | None) -> ListCounts:
    if one is None:
        return NOBODY
    if one.gone:
        return ListCounts(gone=1)
    return ListCounts(verified=1) if one.verified else ListCounts(unverified=1)


def _noted(delta: Delta, at: datetime) -> Insert:
    nonce = secrets.token_hex(_NONCE_BYTES)
    return Insert(f"{_DELTA}{sortable(at)}-{nonce}", to_properties(delta))


# --- Reading ----------------------------------------------------------------------------------


async def read(tables: Tables, list_name: str) -> ListCounts:
    """The current counts; a little late while over 1000 deltas are not folded."""
    kept = await tables.get(TABLE, list_name, _COUNT)
    for _ in range(_LOOKS_MAX):
        deltas = await _waiting(tables, list_name)
        again = await tables.get(TABLE, list_name, _COUNT)
        if _etag(again) == _etag(kept):
            return _sum(_counts(kept), (each.delta for each in deltas))
        kept = again  # folded meanwhile: it has some of these deltas, and others were missed
    return _counts(kept)


async def growth(
    tables: Tables, list_name: str, now: datetime, days: int = 30
) -> list[tuple[date, int, int]]:
    """(day, joined, left) of the last days with today, as far as they are folded."""
    today = now.astimezone(UTC).date()
    shown = [today - timedelta(days=ago) for ago in reversed(range(days))]
    keys = KeysWithin(list_name, f"{_DAY}{shown[0]}", f"{_DAY}{shown[-1]}{_END}")
    known = {
        row.key.removeprefix(_DAY): from_properties(row.properties, DailyGrowth)
        async for row in all_rows(tables, TABLE, keys)
    }
    found = [known.get(str(day), DailyGrowth()) for day in shown]
    return [(day, each.joined, each.left) for day, each in zip(shown, found, strict=True)]


async def _waiting(tables: Tables, list_name: str) -> list[_Waiting]:
    """The oldest deltas that are not folded, at most DELTAS_READ_MAX."""
    deltas: list[_Waiting] = []
    after: str | None = None
    while len(deltas) < DELTAS_READ_MAX:
        limit = DELTAS_READ_MAX - len(deltas)
        page = await tables.scan(TABLE, _deltas_of(list_name), limit=limit, after=after)
        deltas += map(_read_delta, page.rows)
        after = page.next
        if after is None:
            break
    return deltas


class _Waiting(NamedTuple):
    """A delta that is not folded."""

    key: str
    day: str  # in UTC, as in the key of its row
    delta: Delta


def _read_delta(row: Row) -> _Waiting:
    at = moment(row.key.removeprefix(_DELTA).partition("-")[0])
    return _Waiting(row.key, str(at.date()), from_properties(row.properties, Delta))


# --- Folding ----------------------------------------------------------------------------------


async def fold(tables: Tables, list_name: str) -> int:
    """Fold deltas, about DELTAS_A_FOLD at most; how many.

    Conflict if another process folds, or deletes the list: what was not folded stays.
    """
    tally: _Tally | None = None
    after: str | None = None
    while tally is None or tally.folded < DELTAS_A_FOLD:
        page = await tables.scan(TABLE, _deltas_of(list_name), after=after)
        if page.rows:
            tally = tally or await _open_tally(tables, list_name)
            await tally.take(list(map(_read_delta, page.rows)))
        after = page.next
        if after is None:
            break
    return tally.folded if tally else 0


async def _open_tally(tables: Tables, list_name: str) -> _Tally:
    row = await tables.get(TABLE, list_name, _COUNT)
    return _Tally(tables, list_name, _counts(row), _etag(row))


@dataclass
class _Tally:
    """The stored counts of a list, while deltas are added to them."""

    tables: Tables
    list_name: str
    counts: ListCounts
    etag: str | None  # of the row; None: it does not exist yet
    days: dict[str, DailyGrowth] = field(default_factory=dict)
    folded: int = 0

    async def take(self, deltas: Sequence[_Waiting]) -> None:
        for batch in _batches(deltas):
            await self._take_batch(batch)

    async def _take_batch(self, deltas: Sequence[_Waiting]) -> None:
        """Count these and delete them, all or nothing."""
        counts = _sum(self.counts, (each.delta for each in deltas))
        days: dict[str, DailyGrowth] = {}
        for each in deltas:
            known = days.get(each.day) or await self._day(each.day)
            days[each.day] = DailyGrowth(
                known.joined + each.delta.joined, known.left + each.delta.left
            )
        changes: list[Change] = [
            self._kept(counts),
            *(Upsert(_DAY + day, to_properties(each)) for day, each in days.items()),
            *(Delete(each.key) for each in deltas),
        ]
        self.etag = (await self.tables.batch(TABLE, self.list_name, changes))[0]
        self.counts = counts
        self.days |= days
        self.folded += len(deltas)

    def _kept(self, counts: ListCounts) -> Change:
        if self.etag is None:
            return Insert(_COUNT, to_properties(counts))
        return Replace(_COUNT, to_properties(counts), self.etag)

    async def _day(self, day: str) -> DailyGrowth:
        """Read once: only a fold writes these rows."""
        if day not in self.days:
            row = await self.tables.get(TABLE, self.list_name, _DAY + day)
            self.days[day] = from_properties(row.properties, DailyGrowth) if row else DailyGrowth()
        return self.days[day]


def _batches(deltas: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
    """As many deltas as fit into one write with the count and their days."""
    batch: list[_Waiting] = []
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


def _counts(row: Row | None) -> ListCounts:
    return from_properties(row.properties, ListCounts) if row else NOBODY


def _etag(row: Row | None) -> str | None:
    return row.etag if row else None


def _sum(counts: ListCounts, deltas: Iterable[Delta]) -> ListCounts:
    verified, unverified, gone = counts.verified, counts.unverified, counts.gone
    for delta in deltas:
        verified += delta.verified
        unverified += delta.unverified
        gone += delta.gone
    return ListCounts(verified, unverified, gone)
