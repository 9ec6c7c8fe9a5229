"""Import suppressions: add everybody in a stream of rows to the suppression list.

Before: a stream of rows, each an address with its values from the file, or a bad row.
After: every address is suppressed, at least as far as the file or the terms require; an existing
entry stays, or is widened. Memory holds one group of rows, however long the stream is.
Dies half-way: some batches are stored, each as a whole. If it is run again with the same file,
existing entries count as already suppressed, and the rest is added.
Commit point: each batch, all or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.csv_rows import BadRow
from postroom.domain.suppression import (
    Suppression,
    SuppressionScope,
    check_lists,
    source_of,
    widened,
)
from postroom.importing.suppression_rows import SuppressionRow
from postroom.records import lists, suppressions
from postroom.records.suppressions import NEW_MAX, PutCounts

# Sorted by address before they are stored: neighbours share pages in storage.
GROUP_ROWS = 20_000
IN_FLIGHT_MAX = 8  # batches: enough for a group commit to pay
_TICK = timedelta(milliseconds=1)  # the resolution of the log


@dataclass(frozen=True)
class SuppressionTerms:
    """The values for rows that do not have their own."""

    act: Act
    secret: str
    scope: SuppressionScope = SuppressionScope.BULK
    list_names: tuple[str, ...] = ()
    group_rows: int = GROUP_ROWS


@dataclass
class SuppressionCounts:
    """The results so far."""

    added: int = 0
    widened: int = 0
    already: int = 0
    bad: int = 0

    @property
    def rows(self) -> int:
        return self.added + self.widened + self.already + self.bad


class SuppressionObserver(Protocol):
    def may_go_on(self) -> bool: ...
    def refused(self, row: BadRow) -> None: ...
    def counted(self, counts: SuppressionCounts) -> None: ...


async def import_suppressions(
    terms: SuppressionTerms,
    rows: Iterable[SuppressionRow | BadRow | None],
    observer: SuppressionObserver,
) -> SuppressionCounts:
    """Import all rows, or as many as the observer allows; return the counts."""
    names = check_lists(terms.scope, terms.list_names)
    for name in terms.list_names:
        await lists.read(terms.act.tables, name)
    file = terms.act.trace.source.name
    async with terms.act.audited(AuditKind.SUPPRESSION, file, AuditAction.IMPORT):
        return await _import_rows(terms, names, rows, observer)


async def _import_rows(
    terms: SuppressionTerms,
    names: str,
    rows: Iterable[SuppressionRow | BadRow | None],
    observer: SuppressionObserver,
) -> SuppressionCounts:
    group = _SuppressionGroup(terms, names, observer, log_at=terms.act.clock.now())
    for row in rows:
        if not observer.may_go_on():
            return group.counts
        match row:
            case None:
                await asyncio.sleep(0)  # so that the rest of the process can run
            case BadRow():
                group.counts.bad += 1
                observer.refused(row)
            case _:
                group.add(row)
        if group.rows >= terms.group_rows:
            await group.store()
    await group.store()
    return group.counts


@dataclass
class _SuppressionGroup:
    """The rows that are sorted and stored together."""

    terms: SuppressionTerms
    list_names: str
    observer: SuppressionObserver
    log_at: datetime
    counts: SuppressionCounts = field(default_factory=SuppressionCounts)
    rows: int = 0
    _entries: dict[str, Suppression] = field(default_factory=dict)  # by key: nobody is in it twice

    def add(self, row: SuppressionRow) -> None:
        self.rows += 1
        key = row.address.storage_key
        entry = self._entry(row)
        if key in self._entries:
            self.counts.already += 1
            entry = widened(self._entries[key], entry)
        self._entries[key] = entry

    def _entry(self, row: SuppressionRow) -> Suppression:
        act = self.terms.act
        return Suppression(
            key=row.address.storage_key,
            address=row.address.typed,
            scope=row.scope or self.terms.scope,
            reason=row.reason,
            since=min(row.since, act.now) if row.since else act.now,
            lists=row.lists if row.scope else self.list_names,
            source=row.source or source_of(act.trace.source),
            status=row.status,
            words=row.words,
            note=row.note,
        )

    async def store(self) -> None:
        act = self.terms.act
        entries = sorted(self._entries.items())
        self._entries = {}
        self.rows = 0
        # Reads log rows newer than our own last one: none, unless our clock is behind.
        self.log_at = await suppressions.end_of_log(
            act.tables, max(act.clock.now(), self.log_at + _TICK)
        )
        batches = [entries[at : at + NEW_MAX] for at in range(0, len(entries), NEW_MAX)]
        for at in range(0, len(batches), IN_FLIGHT_MAX):
            if at and not self.observer.may_go_on():
                break
            stored = await asyncio.gather(
                *(
                    suppressions.put_new(act.tables, self.terms.secret, batch, self.log_at)
                    for batch in batches[at : at + IN_FLIGHT_MAX]
                )
            )
            self._count(stored)
        await suppressions.repeat_in_log(
            act.tables, [entry for _key, entry in entries], self.log_at
        )

    def _count(self, stored: Iterable[PutCounts]) -> None:
        for each in stored:
            self.counts.added += each.added
            self.counts.widened += each.widened
            self.counts.already += each.unchanged
        self.observer.counted(self.counts)
