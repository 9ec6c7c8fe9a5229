"""Bringing in many people: every row counted once, whatever happens."""

from __future__ import annotations

import asyncio
import io
import operator
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from operator import length_hint

import pytest

from postroom.domain.address import parse_address
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import MailingList
from postroom.flow import subscribe
from postroom.importing.csv_people import People
from postroom.importing.import_people import (
    BATCH_PEOPLE,
    IN_FLIGHT_MAX,
    ImportObserver,
    ImportTerms,
    import_people,
)
from postroom.importing.job import ImportCounts
from postroom.records import lists, subscribers
from postroom.records.names import STORAGE_NAMES, TABLES
from postroom.storage.memory import MemoryStorage, MemoryTables
from postroom.storage.port import Change, DeleteRange, Unavailable
from tests.acting import acting
from tests.clock import MovableClock

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
LIST = "contoso1"
MANY = BATCH_PEOPLE * (IN_FLIGHT_MAX + 3) + 5


class Watch(ImportObserver):
    def __init__(self, rows_max: int = 10**9) -> None:
        super().__init__()
        self.rows_left = rows_max
        self.refusals: list[BadRow] = []
        self.notes: list[BadRow] = []
        self.last = ImportCounts()

    def may_go_on(self) -> bool:
        self.rows_left -= 1
        return self.rows_left >= 0

    def refused(self, row: BadRow) -> None:
        self.refusals.append(row)

    def noted(self, row: BadRow) -> None:
        self.notes.append(row)

    def counted(self, counts: ImportCounts) -> None:
        self.last = counts


class TroubledTables(MemoryTables):
    """After some batches something happens: a failure, or another process at work."""

    batches_left = 10**9

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        self.batches_left -= 1
        if self.batches_left == 0:
            await self.trouble()
        return await super().batch(table, partition, changes)

    async def trouble(self) -> None:
        raise Unavailable("no answer")


class DeletingTables(TroubledTables):
    async def trouble(self) -> None:
        await lists.start_deleting(self, LIST)


class RacingTables(TroubledTables):
    """Somebody else adds the first of the batch just before us, twice in a row."""

    async def trouble(self) -> None:
        for number in (0, 1):
            address = parse_address(f"student{number}@contoso.edu")
            known = await subscribers.find(self, LIST, address.storage_key)
            if known is None:
                self.batches_left = 1  # and again before the next try
                newcomer = subscribe.new_subscriber(LIST, address, {}, True, NOW)
                await MemoryTables.batch(
                    self, subscribers.TABLE, LIST, subscribers.joining(newcomer)
                )
                return


async def storage_with(tables: TroubledTables) -> MemoryStorage:
    storage = MemoryStorage(MovableClock(), STORAGE_NAMES)
    storage.tables = tables
    await lists.create(
        storage.tables,
        MailingList(name=LIST, description="", sender="news@contoso.edu", created_at=NOW),
    )
    return storage


@pytest.fixture
async def storage() -> MemoryStorage:
    return await storage_with(TroubledTables(TABLES))


def rows(*addresses: str, header: str = "email") -> People:
    return People(iter(io.StringIO("\n".join([header, *addresses]) + "\n")), {})


def students(number: int) -> list[str]:
    return [f"student{at}@contoso.edu" for at in range(number)]


def terms(
    storage: MemoryStorage, *, verified: bool = True, is_rehearsal: bool = False
) -> ImportTerms:
    return ImportTerms(acting(storage, NOW), LIST, verified, is_rehearsal=is_rehearsal)


async def everyone(storage: MemoryStorage) -> dict[str, bool]:
    return {one.address: one.verified async for one in subscribers.everyone(storage.tables, LIST)}


async def test_everyone_joins_and_can_be_found_by_their_link(storage: MemoryStorage) -> None:
    watch = Watch()
    counts = await import_people(terms(storage), rows(*students(MANY)), watch)
    assert counts == watch.last == ImportCounts(added=MANY)
    guids = {one.guid async for one in subscribers.everyone(storage.tables, LIST)}
    assert len(guids) == MANY
    for guid in guids:
        found = await subscribers.find_by_guid(storage.tables, LIST, guid)
        assert found is not None
        assert len(guid) == 32


async def test_a_second_run_adds_only_who_is_missing(storage: MemoryStorage) -> None:
    await import_people(terms(storage), rows(*students(MANY)[::2]), Watch())
    counts = await import_people(terms(storage), rows(*students(MANY)), Watch())
    assert counts == ImportCounts(added=MANY // 2, already=MANY - MANY // 2)
    assert len(await everyone(storage)) == MANY


async def test_the_same_address_twice_counts_once(storage: MemoryStorage) -> None:
    near = ["ada@contoso.edu", "ADA@contoso.edu"]
    counts = await import_people(terms(storage), rows(*near, *students(MANY), *near), Watch())
    assert counts == ImportCounts(added=MANY + 1, already=1, duplicates=2)


async def test_people_who_unsubscribed_are_not_added_again(storage: MemoryStorage) -> None:
    await import_people(terms(storage), rows(*students(3)), Watch())
    left = parse_address("student1@contoso.edu")
    await subscribe.remove(acting(storage, NOW + timedelta(seconds=1)), LIST, left)
    watch = Watch()
    counts = await import_people(terms(storage), rows(*students(3)), watch)
    assert counts == ImportCounts(already=2, unsubscribed=1)
    assert [(row.line, row.value) for row in watch.refusals] == [(3, "student1@contoso.edu")]
    assert (await everyone(storage))["student1@contoso.edu"] is False


async def test_people_unsubscribed_in_an_export_do_not_join_another_list(
    storage: MemoryStorage,
) -> None:
    people = ["a@contoso.edu,unsubscribed", "b@contoso.edu,unverified", "c@contoso.edu,verified"]
    source = rows(*people, header="email,subscription")
    counts = await import_people(terms(storage), source, Watch())
    assert counts == ImportCounts(added=2, unsubscribed=1)
    assert await everyone(storage) == {"b@contoso.edu": False, "c@contoso.edu": True}


async def test_bad_rows_are_reported_and_the_rest_joins(storage: MemoryStorage) -> None:
    watch = Watch()
    counts = await import_people(
        terms(storage, verified=False), rows("a@contoso.edu", "nobody", "b@contoso.edu"), watch
    )
    assert counts == ImportCounts(added=2, bad=1)
    assert [row.line for row in watch.refusals] == [3]
    assert await everyone(storage) == {"a@contoso.edu": False, "b@contoso.edu": False}


async def test_a_rehearsal_counts_and_writes_nothing(storage: MemoryStorage) -> None:
    await import_people(terms(storage), rows(*students(10)), Watch())
    counts = await import_people(terms(storage, is_rehearsal=True), rows(*students(100)), Watch())
    assert counts == ImportCounts(added=90, already=10)
    assert len(await everyone(storage)) == 10


async def test_told_to_stop_it_finishes_what_is_in_hand(storage: MemoryStorage) -> None:
    people = (row for row in rows(*students(MANY)) if row)
    counts = await import_people(terms(storage), people, Watch(rows_max=120))
    assert counts == ImportCounts(added=120)
    assert len(await everyone(storage)) == 120


@pytest.mark.parametrize("row", ["", ",,,,", "nobody", '"open', 'x","'])
async def test_others_have_their_turn_whatever_the_rows_are(
    storage: MemoryStorage, row: str
) -> None:
    lines = iter(["email\n", *[f"{row}\n"] * 5000])
    read: list[int] = []

    async def beside() -> None:
        """Another task notes how much is left to read, as often as it gets its turn."""
        while read[-1:] != [0]:
            read.append(length_hint(lines))
            await asyncio.sleep(0)

    await asyncio.gather(beside(), import_people(terms(storage), People(lines, {}), Watch()))
    assert max(map(operator.sub, read, read[1:])) <= 200


async def test_told_to_stop_among_blank_rows_it_stops(storage: MemoryStorage) -> None:
    blank = repeat("\n", 10_000)
    people = People(chain(["email\n", "ada@contoso.edu\n"], blank), {})
    counts = await import_people(terms(storage), people, Watch(rows_max=10))
    assert counts == ImportCounts(added=1)
    assert list(blank)


async def test_when_storage_goes_away_the_next_run_adds_the_rest() -> None:
    tables = TroubledTables(TABLES)
    storage = await storage_with(tables)
    tables.batches_left = 6
    with pytest.raises(Unavailable):
        await import_people(terms(storage), rows(*students(MANY)), Watch())
    stored = len(await everyone(storage))
    assert stored % BATCH_PEOPLE == 0
    assert 5 * BATCH_PEOPLE <= stored < MANY
    counts = await import_people(terms(storage), rows(*students(MANY)), Watch())
    assert counts == ImportCounts(added=MANY - stored, already=stored)


async def test_two_imports_at_once_add_nobody_twice() -> None:
    tables = RacingTables(TABLES)
    storage = await storage_with(tables)
    tables.batches_left = 1
    counts = await import_people(terms(storage), rows(*students(10)), Watch())
    assert counts == ImportCounts(added=8, already=2)
    assert len(await everyone(storage)) == 10


async def test_a_list_that_is_not_there_takes_nobody(storage: MemoryStorage) -> None:
    with pytest.raises(NotFound, match="no list nowhere"):
        await import_people(
            ImportTerms(acting(storage, NOW), "nowhere", True), rows("a@b.org"), Watch()
        )


async def test_a_list_deleted_meanwhile_takes_nobody_else() -> None:
    tables = DeletingTables(TABLES)
    storage = await storage_with(tables)
    tables.batches_left = 2
    with pytest.raises(NotFound, match="was deleted"):
        await import_people(terms(storage), rows(*students(MANY)), Watch())
    assert len(await everyone(storage)) <= BATCH_PEOPLE * IN_FLIGHT_MAX


class WatchedTables(TroubledTables):
    """Notes who is stored together."""

    def __init__(self) -> None:
        super().__init__(TABLES)
        self.together: list[list[str]] = []

    async def batch(self, table: str, partition: str, changes: Sequence[Change]) -> list[str]:
        keys = [change.key for change in changes if not isinstance(change, DeleteRange)]
        people = [key for key in keys if key.startswith("email:")]
        self.together += [people] if people else []
        return await super().batch(table, partition, changes)


async def test_a_crowd_is_put_in_order_and_nobody_is_lost_or_counted_twice() -> None:
    tables = WatchedTables()
    storage = await storage_with(tables)
    mixed = [*students(MANY)[::-3], "nobody", *students(MANY)]
    terms = ImportTerms(acting(tables, NOW), LIST, True, group_rows=MANY * 2)
    counts = await import_people(terms, rows(*mixed), Watch())
    assert counts == ImportCounts(added=MANY, duplicates=MANY // 3, bad=1)
    assert len(await everyone(storage)) == MANY
    stored = [key for people in tables.together for key in people]
    assert stored == sorted(stored)
    assert len(tables.together) == -(-MANY // BATCH_PEOPLE)


async def test_told_to_stop_in_a_crowd_it_does_not_go_through_all_of_it() -> None:
    tables = WatchedTables()
    await storage_with(tables)
    terms = ImportTerms(acting(tables, NOW), LIST, True, group_rows=MANY)
    people = (row for row in rows(*students(MANY)) if row)
    counts = await import_people(terms, people, Watch(rows_max=MANY + 2))
    assert counts == ImportCounts(added=BATCH_PEOPLE * 3)
