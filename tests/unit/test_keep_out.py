"""Keeping people off a list: whoever is there leaves, and nobody else is added by mistake."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from postroom.domain.address import parse_address
from postroom.domain.consent import ConsentSource, Event, SourceKind, Trace
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason
from postroom.flow import subscribe
from postroom.importing.csv_people import People
from postroom.importing.import_people import (
    BATCH_PEOPLE,
    ImportObserver,
    ImportTerms,
    import_people,
)
from postroom.importing.job import ImportCounts
from postroom.records import consents, counts, lists, subscribers
from postroom.records.names import TABLES
from postroom.storage.memory import MemoryTables
from postroom.storage.port import Change, Row, Unavailable
from tests.acting import acting

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
LIST = "contoso1"
COURT = ConsentSource(SourceKind.IMPORT, "no.csv", basis="court")
MANY = BATCH_PEOPLE * 5 + 3


class SlowTables(MemoryTables):
    """Every look lets the others go first; after some batches storage goes away."""

    batches_left = 10**9

    async def get(self, table: str, partition: str, key: str) -> Row | None:
        await asyncio.sleep(0)
        return await super().get(table, partition, key)

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        self.batches_left -= 1
        if self.batches_left == 0:
            raise Unavailable("no answer")
        return await super().batch(table, partition, changes)


class Watch(ImportObserver):
    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[BadRow] = []

    def refused(self, row: BadRow) -> None:
        self.refusals.append(row)

    def noted(self, row: BadRow) -> None:
        raise AssertionError(row)


@pytest.fixture
async def tables() -> SlowTables:
    tables = SlowTables(TABLES)
    made = MailingList(name=LIST, description="", sender="news@contoso.edu", created_at=NOW)
    await lists.create(tables, made)
    return tables


def students(number: int) -> list[str]:
    return [f"student{at}@contoso.edu" for at in range(number)]


async def keep_out(tables: SlowTables, *addresses: str, is_rehearsal: bool = False) -> ImportCounts:
    people = People(iter(io.StringIO("\n".join(["email", *addresses]) + "\n")), {})
    terms = ImportTerms(
        acting(tables, NOW, Trace(source=COURT)),
        LIST,
        True,
        is_rehearsal,
        keep_out=True,
    )
    return await import_people(terms, people, Watch())


async def join(tables: SlowTables, address: str) -> None:
    await subscribe.add(
        acting(tables, NOW), LIST, parse_address(address), {"a": "b"}, verified=True
    )


async def gone(tables: SlowTables, address: str) -> InactiveReason | None:
    found = await subscribers.find(tables, LIST, parse_address(address).storage_key)
    assert found
    return found[0].inactive_reason


async def test_known_and_unknown_people_become_inactive_and_stay_so(tables: SlowTables) -> None:
    await join(tables, "student0@contoso.edu")
    assert await keep_out(tables, *students(MANY)) == ImportCounts(added=MANY)
    for address in students(MANY):
        assert await gone(tables, address) is InactiveReason.REMOVED
        with pytest.raises(AlreadyThere):
            await join(tables, address)
    assert await counts.read(tables, LIST) == counts.ListCounts(inactive=MANY)
    assert await keep_out(tables, *students(MANY)) == ImportCounts(already=MANY)


async def test_the_record_says_by_which_file(tables: SlowTables) -> None:
    await join(tables, "student0@contoso.edu")
    await keep_out(tables, *students(2))
    there = (await consents.history(tables, LIST, "student0@contoso.edu")).events
    assert [(each.event, each.source) for each in there[1:]] == [(Event.REMOVED, COURT)]
    [never] = (await consents.history(tables, LIST, "student1@contoso.edu")).events
    assert (never.event, never.source) == (Event.IMPORTED, COURT)


async def test_why_somebody_is_inactive_is_not_rewritten(tables: SlowTables) -> None:
    await join(tables, "student0@contoso.edu")
    found = await subscribers.find(tables, LIST, "student0@contoso.edu")
    assert found
    await subscribe.leave(acting(tables, NOW), LIST, found[0].guid)
    assert await keep_out(tables, *students(1)) == ImportCounts(already=1)
    assert await gone(tables, "student0@contoso.edu") is InactiveReason.UNSUBSCRIBED


async def test_who_is_kept_out_leaves_by_a_departure_that_senders_see(tables: SlowTables) -> None:
    await join(tables, "student0@contoso.edu")
    await keep_out(tables, *students(2))
    left = await subscribers.left_since(tables, LIST, NOW)
    assert len(left.departures) == 1


async def test_a_rehearsal_counts_everybody_and_changes_nobody(tables: SlowTables) -> None:
    for address in students(10):
        await join(tables, address)
    found = await keep_out(tables, *students(MANY), is_rehearsal=True)
    assert found == ImportCounts(added=MANY)
    assert await counts.read(tables, LIST) == counts.ListCounts(verified=10)


async def test_batches_that_are_looked_at_together_lose_no_count(tables: SlowTables) -> None:
    people = People(iter(io.StringIO("\n".join(["email", *students(MANY)]))), {})
    found = await import_people(
        ImportTerms(acting(tables, NOW), LIST, True, is_rehearsal=True), people, Watch()
    )
    assert found == ImportCounts(added=MANY)


async def test_after_a_failure_the_next_run_does_the_rest(tables: SlowTables) -> None:
    for address in students(BATCH_PEOPLE):
        await join(tables, address)
    tables.batches_left = BATCH_PEOPLE // 2
    with pytest.raises(Unavailable):
        await keep_out(tables, *students(MANY))
    tables.batches_left = 10**9
    again = await keep_out(tables, *students(MANY))
    assert again.rows == MANY
    assert again.already > 0
    assert await counts.read(tables, LIST) == counts.ListCounts(inactive=MANY)


async def test_who_confirms_at_the_same_moment_is_kept_out_all_the_same(
    tables: SlowTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(tables, "student0@contoso.edu")
    leave, edits = subscribers.leave, iter([True])

    async def leave_late(*arguments: object, **more: object) -> None:
        if next(edits, False):
            found = await subscribers.find(tables, LIST, "student0@contoso.edu")
            assert found
            key, etag = found[0].key, found[1]
            await subscribe.edit(
                acting(tables, NOW), LIST, key, verified=False, attributes={}, etag=etag
            )
        await leave(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(subscribers, "leave", leave_late)
    assert await keep_out(tables, *students(1)) == ImportCounts(added=1)
    assert await gone(tables, "student0@contoso.edu") is InactiveReason.REMOVED
