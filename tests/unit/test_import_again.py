"""A second import: who is there is confirmed, updated or asked, as chosen, and nobody else."""

from __future__ import annotations

import dataclasses
import io
from datetime import timedelta
from typing import Any

import pytest

from postroom.domain.address import parse_address
from postroom.domain.asking import ASK_ONCE_IN
from postroom.domain.consent import Event, Trace
from postroom.domain.csv_people import People
from postroom.domain.import_job import COUNTED, Existing
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import ATTRIBUTES_MAX, Gone, Subscriber
from postroom.flow import subscribe
from postroom.flow.ask import Asker
from postroom.flow.bring_in import BATCH_PEOPLE, Counts, Intake, bring_in
from postroom.records import consents, counts, edits, lists, subscribers
from postroom.storage.port import SUBSCRIBE_QUEUE
from tests.scenario.clock import START, TownClock
from tests.unit.failing import Fuse, FusedTables, Killed, fused_storage
from tests.unit.test_bring_in import Watch

LIST = "contoso1"
BASIS = "import of people.csv: signed up at the fair"
MANY = 3 * BATCH_PEOPLE + 5


class Desk:
    """A list, and somebody who imports files into it."""

    def __init__(self) -> None:
        self.clock = TownClock()
        self.fuse = Fuse()
        self.storage = fused_storage(self.clock, self.fuse)
        self.tables = self.storage.tables
        self.watch = Watch()

    async def open(self) -> Desk:
        made = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(self.tables, made)
        return self

    async def bring_in(self, *rows: str, header: str = "email", **terms: Any) -> Counts:
        if terms.pop("ask", False):
            terms["asker"] = Asker(self.storage, self.clock, Trace(source=BASIS))
        people = People(iter(io.StringIO("\n".join([header, *rows]) + "\n")), {})
        verified = terms.pop("verified", False)
        intake = Intake(self.tables, LIST, verified, self.clock.now(), basis=BASIS, **terms)
        self.watch = Watch()
        return await bring_in(intake, people, self.watch)

    async def read(self, address: str) -> Subscriber:
        found = await subscribers.find(self.tables, LIST, parse_address(address).storage_key)
        assert found
        return found[0]

    async def events(self, address: str) -> list[tuple[str, str]]:
        key = parse_address(address).storage_key
        found = (await consents.history(self.tables, LIST, key)).events
        return [(each.event, each.source) for each in found]

    async def items(self) -> int:
        return await self.storage.queues.length(SUBSCRIBE_QUEUE)


@pytest.fixture
async def desk() -> Desk:
    return await Desk().open()


def students(number: int) -> list[str]:
    return [f"student{at}@contoso.edu" for at in range(number)]


def test_an_import_and_its_run_count_the_same_things() -> None:
    assert tuple(each.name for each in dataclasses.fields(Counts)) == COUNTED


# --- Confirming ---------------------------------------------------------------------------------


async def test_importing_again_as_confirmed_confirms_who_came_from_a_file(desk: Desk) -> None:
    await desk.bring_in(*students(MANY))
    desk.clock.move(60)
    rehearsed = await desk.bring_in(*students(MANY), verified=True, is_rehearsal=True)
    assert rehearsed == Counts(already=MANY, confirmed=MANY)
    assert await counts.read(desk.tables, LIST) == counts.Counts(unverified=MANY)
    assert await desk.bring_in(*students(MANY), verified=True) == rehearsed
    assert await counts.read(desk.tables, LIST) == counts.Counts(verified=MANY)
    one = await desk.read("student3@contoso.edu")
    assert (one.verified, one.since) == (True, START + timedelta(seconds=60))
    assert await desk.events("student3@contoso.edu") == [
        (Event.IMPORTED, BASIS),
        (Event.CONFIRMED, BASIS),
    ]
    again = await desk.bring_in(*students(MANY), verified=True)
    assert again == Counts(already=MANY)


async def test_who_signed_up_and_did_not_confirm_is_confirmed_and_the_record_says_how(
    desk: Desk,
) -> None:
    ada = parse_address("ada@contoso.edu")
    await subscribe.sign_up(desk.storage, LIST, ada, {}, desk.clock.now())
    desk.clock.move(60)
    assert await desk.bring_in("ada@contoso.edu", verified=True) == Counts(already=1, confirmed=1)
    one = await desk.read("ada@contoso.edu")
    assert (one.verified, one.expires) == (True, False)
    assert (await desk.events("ada@contoso.edu"))[-1] == (Event.CONFIRMED, BASIS)


@pytest.mark.parametrize("why", list(Gone))
async def test_who_is_gone_is_never_confirmed_updated_or_asked(desk: Desk, why: Gone) -> None:
    one = await subscribe.add(
        desk.tables, LIST, parse_address("ada@contoso.edu"), {}, verified=True, now=START
    )
    await subscribe.leave(desk.tables, LIST, one.guid, START, why)
    for terms in ({"verified": True}, {"ask": True}):
        found = await desk.bring_in(
            "ada@contoso.edu,Ada", header="email,name", existing=Existing.OVERWRITE, **terms
        )
        assert found == Counts(gone=1)
    after = await desk.read("ada@contoso.edu")
    assert (after.gone, after.verified, after.attributes) == (why, False, {})
    assert await desk.items() == 0


async def test_who_left_is_not_confirmed_because_somebody_typed_their_address(desk: Desk) -> None:
    """A stranger's sign-up must not open the way back for a file."""
    ada = parse_address("ada@contoso.edu")
    one = await subscribe.add(desk.tables, LIST, ada, {}, verified=True, now=START)
    await subscribe.leave(desk.tables, LIST, one.guid, START)
    await subscribe.sign_up(desk.storage, LIST, ada, {}, START)
    assert await desk.bring_in("ada@contoso.edu", verified=True) == Counts(gone=1)
    assert not (await desk.read("ada@contoso.edu")).verified
    assert "has not confirmed since" in desk.watch.refusals[0].reason


async def test_who_an_export_calls_unverified_is_not_confirmed(desk: Desk) -> None:
    rows = ("a@contoso.edu,unverified", "b@contoso.edu,verified")
    header = "email,subscription"
    await desk.bring_in(*rows, header=header)
    found = await desk.bring_in(*rows, header=header, verified=True)
    assert found == Counts(already=2, confirmed=1)
    assert not (await desk.read("a@contoso.edu")).verified


# --- Updating -----------------------------------------------------------------------------------

ADA = "ada@contoso.edu"


async def add_ada(desk: Desk, **attributes: str) -> None:
    ada = parse_address(ADA)
    await subscribe.add(desk.tables, LIST, ada, attributes, verified=True, now=START)


@pytest.mark.parametrize(
    ("existing", "updated", "after"),
    [
        (Existing.LEAVE, 0, {"name": "Ada", "city": "Wien"}),
        (Existing.FILL, 1, {"name": "Ada", "city": "Wien", "title": "Dr."}),
        (Existing.OVERWRITE, 1, {"name": "Ada L.", "city": "Wien", "title": "Dr."}),
    ],
)
async def test_fields_of_who_is_there_are_left_filled_in_or_overwritten(
    desk: Desk, existing: Existing, updated: int, after: dict[str, str]
) -> None:
    await add_ada(desk, name="Ada", city="Wien")
    row, terms = f"{ADA},Ada L.,,Dr.", {"header": "email,name,city,title", "existing": existing}
    expected = Counts(already=1, updated=updated)
    assert await desk.bring_in(row, is_rehearsal=True, **terms) == expected
    assert (await desk.read(ADA)).attributes == {"name": "Ada", "city": "Wien"}
    assert await desk.bring_in(row, **terms) == expected
    assert (await desk.read(ADA)).attributes == after
    assert await desk.bring_in(row, **terms) == Counts(already=1)  # nothing is left to do


async def test_a_row_that_would_give_somebody_too_many_fields_is_refused(desk: Desk) -> None:
    await add_ada(desk, **{f"old_{at}": "x" for at in range(ATTRIBUTES_MAX)})
    row, header = f"{ADA},x", "email,one_more"
    found = await desk.bring_in(row, header=header, existing=Existing.FILL)
    assert found == Counts(bad=1)
    assert desk.watch.refusals[0].value == ADA


async def test_one_import_confirms_and_updates_the_same_person_and_counts_both(desk: Desk) -> None:
    await desk.bring_in(ADA)
    terms: dict[str, Any] = {"verified": True, "existing": Existing.FILL}
    found = await desk.bring_in(f"{ADA},Ada", header="email,name", **terms)
    assert found == Counts(already=1, confirmed=1, updated=1)
    assert found.rows == 1


async def test_who_changes_at_the_same_moment_keeps_that_change(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.bring_in(*students(3))
    together, tries = edits.replace_together, iter([True])

    async def late(*arguments: Any) -> None:
        if next(tries, False):
            found = await subscribers.find(desk.tables, LIST, "student1@contoso.edu")
            assert found
            await subscribe.leave(desk.tables, LIST, found[0].guid, START)
        await together(*arguments)

    monkeypatch.setattr(edits, "replace_together", late)
    found = await desk.bring_in(*students(3), verified=True)
    assert found == Counts(already=2, confirmed=2, gone=1)
    assert (await desk.read("student1@contoso.edu")).gone is Gone.LEFT
    assert await counts.read(desk.tables, LIST) == counts.Counts(verified=2, gone=1)


# --- Asking -------------------------------------------------------------------------------------


async def test_everybody_in_the_file_who_is_unverified_is_asked_once(desk: Desk) -> None:
    await add_ada(desk)
    await desk.bring_in("bob@contoso.edu")
    rows = [ADA, "bob@contoso.edu", *students(MANY)]
    expected = Counts(added=MANY, already=2, asked=MANY + 1)
    assert await desk.bring_in(*rows, ask=True, is_rehearsal=True) == expected
    assert await desk.items() == 0
    assert await desk.bring_in(*rows, ask=True) == expected
    assert await desk.items() == MANY + 1
    assert (await desk.events("student1@contoso.edu"))[-1] == (Event.INVITED, BASIS)
    assert (await desk.bring_in(*rows, ask=True)).asked == 0
    desk.clock.move(ASK_ONCE_IN.total_seconds())
    assert (await desk.bring_in(*rows, ask=True)).asked == MANY + 1


async def test_the_usual_import_costs_nothing_more_than_before(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of newcomers is one write and one look at the list, and nothing for a person."""
    reads, get = [], FusedTables.get

    async def counted(tables: FusedTables, table: str, partition: str, key: str) -> Any:
        reads.append(key)
        return await get(tables, table, partition, key)

    monkeypatch.setattr(FusedTables, "get", counted)
    desk.fuse.set(-1)
    await desk.bring_in(*students(BATCH_PEOPLE), verified=True)
    assert [key for key in reads if key.startswith("email:")] == []
    assert desk.fuse.writes == 2  # the people, and the counts folded at the end


# --- Killed, and gone on ------------------------------------------------------------------------


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("ask", [False, True])
async def test_an_import_killed_at_any_write_is_finished_by_the_next_run(
    ask: bool, is_after: bool
) -> None:
    rows = [f"{each},Ada" for each in students(MANY)]
    terms: dict[str, Any] = {"header": "email,name", "existing": Existing.OVERWRITE}
    terms |= {"ask": True} if ask else {"verified": True}
    for kills_at in range(1, 200):
        desk = await Desk().open()
        await desk.bring_in(*[f"{each},old" for each in students(MANY)[::2]], header="email,name")
        desk.fuse.set(kills_at, is_after=is_after)
        try:
            await desk.bring_in(*rows, **terms)
        except Killed:
            desk.fuse.set(-1)
        if 0 < desk.fuse.writes < kills_at:
            assert kills_at > MANY // BATCH_PEOPLE
            return
        assert (await desk.bring_in(*rows, **terms)).rows == MANY
        everyone = [one async for one in subscribers.everyone(desk.tables, LIST)]
        assert len(everyone) == len({one.key for one in everyone}) == MANY
        assert {one.attributes["name"] for one in everyone} == {"Ada"}
        assert {one.verified for one in everyone} == {not ask}
        kept = counts.Counts(unverified=MANY) if ask else counts.Counts(verified=MANY)
        assert await counts.read(desk.tables, LIST) == kept
        assert await desk.items() >= (MANY if ask else 0)
        assert await desk.items() <= (MANY + BATCH_PEOPLE if ask else 0)
        again = await desk.bring_in(*rows, **terms)
        assert again == Counts(already=MANY)
    pytest.fail("the import never came to its end")
