"""A second import: who is there is confirmed, updated or asked, as chosen, and nobody else."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest

from postroom.act import Act
from postroom.domain.address import parse_address
from postroom.domain.asking import ASK_ONCE_IN
from postroom.domain.consent import ConsentSource, Event, SourceKind, Trace
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import ATTRIBUTES_MAX, InactiveReason, Subscriber
from postroom.flow import subscribe
from postroom.importing.csv_people import People
from postroom.importing.import_people import BATCH_PEOPLE, ImportTerms, import_people
from postroom.importing.job import ExistingFields, ImportCounts
from postroom.records import consents, counts, edits, lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from tests.acting import acting
from tests.clock import START, MovableClock
from tests.unit.failing import Fuse, FusedTables, Killed, fused_storage
from tests.unit.test_import_people import Watch

LIST = "contoso1"
FAIR = ConsentSource(SourceKind.IMPORT, "people.csv", basis="signed up at the fair")
MANY = 3 * BATCH_PEOPLE + 5


class Desk:
    """A list, and somebody who imports files into it."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.fuse = Fuse()
        self.storage = fused_storage(self.clock, self.fuse)
        self.tables = self.storage.tables
        self.watch = Watch()

    async def open(self) -> Desk:
        made = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(self.tables, made)
        return self

    async def import_people(self, *rows: str, header: str = "email", **terms: Any) -> ImportCounts:
        people = People(iter(io.StringIO("\n".join([header, *rows]) + "\n")), {})
        verified = terms.pop("verified", False)
        act = Act(self.storage, self.clock, self.clock.now(), Trace(source=FAIR))
        chosen = ImportTerms(act, LIST, verified, **terms)
        self.watch = Watch()
        return await import_people(chosen, people, self.watch)

    async def read(self, address: str) -> Subscriber:
        found = await subscribers.find(self.tables, LIST, parse_address(address).storage_key)
        assert found
        return found[0]

    async def events(self, address: str) -> list[tuple[str, ConsentSource]]:
        key = parse_address(address).storage_key
        found = (await consents.history(self.tables, LIST, key)).events
        return [(each.event, each.source) for each in found]

    async def items(self) -> int:
        return await self.storage.queues.length(SINGLE_MAIL_QUEUE)


@pytest.fixture
async def context() -> Desk:
    return await Desk().open()


def students(number: int) -> list[str]:
    return [f"student{at}@contoso.edu" for at in range(number)]


# --- Confirming ---------------------------------------------------------------------------------


async def test_importing_again_as_confirmed_confirms_who_came_from_a_file(context: Desk) -> None:
    await context.import_people(*students(MANY))
    context.clock.move(60)
    rehearsed = await context.import_people(*students(MANY), verified=True, is_rehearsal=True)
    assert rehearsed == ImportCounts(already=MANY, confirmed=MANY)
    assert await counts.read(context.tables, LIST) == counts.ListCounts(unverified=MANY)
    assert await context.import_people(*students(MANY), verified=True) == rehearsed
    assert await counts.read(context.tables, LIST) == counts.ListCounts(verified=MANY)
    one = await context.read("student3@contoso.edu")
    assert (one.verified, one.since) == (True, START + timedelta(seconds=60))
    assert await context.events("student3@contoso.edu") == [
        (Event.IMPORTED, FAIR),
        (Event.CONFIRMED, FAIR),
    ]
    again = await context.import_people(*students(MANY), verified=True)
    assert again == ImportCounts(already=MANY)


async def test_who_signed_up_and_did_not_confirm_is_confirmed_and_the_record_says_how(
    context: Desk,
) -> None:
    ada = parse_address("ada@contoso.edu")
    await subscribe.sign_up(acting(context.storage, context.clock.now()), LIST, ada, {})
    context.clock.move(60)
    assert await context.import_people("ada@contoso.edu", verified=True) == ImportCounts(
        already=1, confirmed=1
    )
    one = await context.read("ada@contoso.edu")
    assert (one.verified, one.expires) == (True, False)
    assert (await context.events("ada@contoso.edu"))[-1] == (Event.CONFIRMED, FAIR)


@pytest.mark.parametrize("why", list(InactiveReason))
async def test_an_inactive_person_is_never_confirmed_updated_or_asked(
    context: Desk, why: InactiveReason
) -> None:
    one = await subscribe.add(
        acting(context.tables, START), LIST, parse_address("ada@contoso.edu"), {}, verified=True
    )
    await subscribe.leave(acting(context.tables, START), LIST, one.guid, why)
    for terms in ({"verified": True}, {"ask": True}):
        found = await context.import_people(
            "ada@contoso.edu,Ada", header="email,name", existing=ExistingFields.OVERWRITE, **terms
        )
        assert found == ImportCounts(unsubscribed=1)
    after = await context.read("ada@contoso.edu")
    assert (after.inactive_reason, after.verified, after.attributes) == (why, False, {})
    assert await context.items() == 0


async def test_people_who_unsubscribed_are_not_confirmed_because_somebody_typed_their_address(
    context: Desk,
) -> None:
    """A stranger's sign-up must not open the way back for a file."""
    ada = parse_address("ada@contoso.edu")
    one = await subscribe.add(acting(context.tables, START), LIST, ada, {}, verified=True)
    await subscribe.leave(acting(context.tables, START), LIST, one.guid)
    await subscribe.sign_up(acting(context.storage, START), LIST, ada, {})
    assert await context.import_people("ada@contoso.edu", verified=True) == ImportCounts(
        unsubscribed=1
    )
    assert not (await context.read("ada@contoso.edu")).verified
    assert "has not confirmed since" in context.watch.refusals[0].reason


async def test_who_an_export_calls_unverified_is_not_confirmed(context: Desk) -> None:
    rows = ("a@contoso.edu,unverified", "b@contoso.edu,verified")
    header = "email,subscription"
    await context.import_people(*rows, header=header)
    found = await context.import_people(*rows, header=header, verified=True)
    assert found == ImportCounts(already=2, confirmed=1)
    assert not (await context.read("a@contoso.edu")).verified


# --- Updating -----------------------------------------------------------------------------------

ADA = "ada@contoso.edu"


async def add_ada(context: Desk, **attributes: str) -> None:
    ada = parse_address(ADA)
    await subscribe.add(acting(context.tables, START), LIST, ada, attributes, verified=True)


@pytest.mark.parametrize(
    ("existing", "updated", "after"),
    [
        (ExistingFields.LEAVE, 0, {"name": "Ada", "city": "Wien"}),
        (ExistingFields.FILL, 1, {"name": "Ada", "city": "Wien", "title": "Dr."}),
        (ExistingFields.OVERWRITE, 1, {"name": "Ada L.", "city": "Wien", "title": "Dr."}),
    ],
)
async def test_fields_of_who_is_there_are_left_filled_in_or_overwritten(
    context: Desk, existing: ExistingFields, updated: int, after: dict[str, str]
) -> None:
    await add_ada(context, name="Ada", city="Wien")
    row, terms = f"{ADA},Ada L.,,Dr.", {"header": "email,name,city,title", "existing": existing}
    expected = ImportCounts(already=1, updated=updated)
    assert await context.import_people(row, is_rehearsal=True, **terms) == expected
    assert (await context.read(ADA)).attributes == {"name": "Ada", "city": "Wien"}
    assert await context.import_people(row, **terms) == expected
    assert (await context.read(ADA)).attributes == after
    assert await context.import_people(row, **terms) == ImportCounts(
        already=1
    )  # nothing is left to do


async def test_a_row_that_would_give_somebody_too_many_fields_is_refused(context: Desk) -> None:
    await add_ada(context, **{f"old_{at}": "x" for at in range(ATTRIBUTES_MAX)})
    row, header = f"{ADA},x", "email,one_more"
    found = await context.import_people(row, header=header, existing=ExistingFields.FILL)
    assert found == ImportCounts(bad=1)
    assert context.watch.refusals[0].value == ADA


async def test_one_import_confirms_and_updates_the_same_person_and_counts_both(
    context: Desk,
) -> None:
    await context.import_people(ADA)
    terms: dict[str, Any] = {"verified": True, "existing": ExistingFields.FILL}
    found = await context.import_people(f"{ADA},Ada", header="email,name", **terms)
    assert found == ImportCounts(already=1, confirmed=1, updated=1)
    assert found.rows == 1


async def test_who_changes_at_the_same_moment_keeps_that_change(
    context: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await context.import_people(*students(3))
    together, tries = edits.replace_together, iter([True])

    async def late(*arguments: Any) -> None:
        if next(tries, False):
            found = await subscribers.find(context.tables, LIST, "student1@contoso.edu")
            assert found
            await subscribe.leave(acting(context.tables, START), LIST, found[0].guid)
        await together(*arguments)

    monkeypatch.setattr(edits, "replace_together", late)
    found = await context.import_people(*students(3), verified=True)
    assert found == ImportCounts(already=2, confirmed=2, unsubscribed=1)
    assert (
        await context.read("student1@contoso.edu")
    ).inactive_reason is InactiveReason.UNSUBSCRIBED
    assert await counts.read(context.tables, LIST) == counts.ListCounts(verified=2, inactive=1)


# --- Asking -------------------------------------------------------------------------------------


async def test_everybody_in_the_file_who_is_unverified_is_asked_once(context: Desk) -> None:
    await add_ada(context)
    await context.import_people("bob@contoso.edu")
    rows = [ADA, "bob@contoso.edu", *students(MANY)]
    expected = ImportCounts(added=MANY, already=2, asked=MANY + 1)
    assert await context.import_people(*rows, ask=True, is_rehearsal=True) == expected
    assert await context.items() == 0
    assert await context.import_people(*rows, ask=True) == expected
    assert await context.items() == MANY + 1
    assert (await context.events("student1@contoso.edu"))[-1] == (Event.INVITED, FAIR)
    assert (await context.import_people(*rows, ask=True)).asked == 0
    context.clock.move(ASK_ONCE_IN.total_seconds())
    assert (await context.import_people(*rows, ask=True)).asked == MANY + 1


async def test_the_usual_import_costs_nothing_more_than_before(
    context: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of newcomers is one write and one look at the list, and nothing for a person."""
    reads, get = [], FusedTables.get

    async def counted(tables: FusedTables, table: str, partition: str, key: str) -> Any:
        reads.append(key)
        return await get(tables, table, partition, key)

    monkeypatch.setattr(FusedTables, "get", counted)
    context.fuse.set(-1)
    await context.import_people(*students(BATCH_PEOPLE), verified=True)
    assert [key for key in reads if key.startswith("email:")] == []
    assert context.fuse.writes == 2  # the people, and the counts folded at the end


# --- Killed, and gone on ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("ask", [False, True])
async def test_an_import_killed_at_any_write_is_finished_by_the_next_run(
    ask: bool, is_after: bool
) -> None:
    rows = [f"{each},Ada" for each in students(MANY)]
    terms: dict[str, Any] = {"header": "email,name", "existing": ExistingFields.OVERWRITE}
    terms |= {"ask": True} if ask else {"verified": True}
    for kills_at in range(1, 200):
        context = await Desk().open()
        await context.import_people(
            *[f"{each},old" for each in students(MANY)[::2]], header="email,name"
        )
        context.fuse.set(kills_at, is_after=is_after)
        try:
            await context.import_people(*rows, **terms)
        except Killed:
            context.fuse.set(-1)
        if 0 < context.fuse.writes < kills_at:
            assert kills_at > MANY // BATCH_PEOPLE
            return
        assert (await context.import_people(*rows, **terms)).rows == MANY
        everyone = [one async for one in subscribers.everyone(context.tables, LIST)]
        assert len(everyone) == len({one.key for one in everyone}) == MANY
        assert {one.attributes["name"] for one in everyone} == {"Ada"}
        assert {one.verified for one in everyone} == {not ask}
        kept = counts.ListCounts(unverified=MANY) if ask else counts.ListCounts(verified=MANY)
        assert await counts.read(context.tables, LIST) == kept
        assert await context.items() >= (MANY if ask else 0)
        assert await context.items() <= (MANY + BATCH_PEOPLE if ask else 0)
        again = await context.import_people(*rows, **terms)
        assert again == ImportCounts(already=MANY)
    pytest.fail("the import never came to its end")
