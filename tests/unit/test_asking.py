"""Asking people to confirm: never too often, nobody left out, whatever dies when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroom.act import Act
from postroom.actions import ask_to_confirm
from postroom.actions.ask_to_confirm import ITEMS_AHEAD_MAX, PAGE_PEOPLE, PEOPLE_AT_ONCE
from postroom.domain.address import parse_address
from postroom.domain.ask_job import SILENT_AFTER, AskJob
from postroom.domain.asking import ASK_ONCE_IN, ASKS_MAX, ASKS_WITHIN, CannotAsk
from postroom.domain.consent import COMMAND_LINE, Event, by_user
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, Subscriber
from postroom.flow import subscribe
from postroom.records import ask_jobs, consents, counts, lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Change, Replace, Unavailable
from tests.acting import acting
from tests.clock import START, MovableClock
from tests.unit.failing import Fuse, FusedTables, Killed, fused_storage

LIST = "contoso1"
TRACE = by_user("ada@contoso.edu", "")


class Office:
    """A list in storage that can be told to fail, and somebody who asks."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.fuse = Fuse()
        self.storage: MemoryStorage = fused_storage(self.clock, self.fuse)
        self.woken = 0
        self.asker = Act(self.storage, self.clock, START, TRACE, self._wake)

    def _wake(self, role: str) -> None:
        self.woken += 1

    async def join(self, name: str, *, verified: bool = False) -> Subscriber:
        address, now = parse_address(f"{name}@contoso.edu"), self.clock.now()
        return await subscribe.add(acting(self.storage, now), LIST, address, {}, verified=verified)

    async def crowd(self, number: int) -> None:
        for at in range(number):
            await self.join(f"student{at:04}")

    async def read(self, name: str) -> Subscriber:
        found = await subscribers.find(self.storage.tables, LIST, f"{name}@contoso.edu")
        assert found
        return found[0]

    async def ask(self, name: str) -> CannotAsk | None:
        return await ask_to_confirm.ask_one(self.asker, LIST, f"{name}@contoso.edu")

    async def take_items(self) -> Counter[str]:
        """As a sender does: how often each GUID was to be mailed."""
        found: Counter[str] = Counter()
        while claims := await self.storage.queues.claim(SINGLE_MAIL_QUEUE, limit=32, lease_s=60):
            for claim in claims:
                found[claim.body.partition(",")[0]] += 1
                await self.storage.queues.complete(claim)
        return found

    async def run(self) -> AskJob:
        tables, now = self.storage.tables, self.clock.now()
        total = (await ask_to_confirm.tally(tables, LIST, self.clock)).askable
        job, etag = await ask_to_confirm.start(
            tables, LIST, by="ada", total=total, run=f"run {self.fuse.writes}", now=now
        )
        return await ask_to_confirm.run(self.asker, job, etag)


@pytest.fixture
async def office() -> Office:
    made = Office()
    await lists.create(
        made.storage.tables,
        MailingList(name=LIST, description="", sender="news@contoso.edu", created_at=START),
    )
    return made


# --- One person ---------------------------------------------------------------------------------


async def test_who_has_not_confirmed_is_asked_and_the_record_says_by_whom(office: Office) -> None:
    one = await office.join("ada")
    assert await office.ask("ada") is None
    assert await office.take_items() == {one.guid: 1}
    assert office.woken == 1
    events = (await consents.history(office.storage.tables, LIST, one.key)).events
    assert [(each.event, each.source) for each in events] == [
        (Event.ADDED, COMMAND_LINE.source),
        (Event.INVITED, TRACE.source),
    ]


async def test_nobody_is_asked_twice_within_a_day(office: Office) -> None:
    await office.join("ada")
    assert await office.ask("ada") is None
    office.clock.move(ASK_ONCE_IN.total_seconds() - 1)
    assert await office.ask("ada") is CannotAsk.LATELY
    office.clock.move(1)
    assert await office.ask("ada") is None
    assert sum((await office.take_items()).values()) == 2


async def test_who_signed_up_a_moment_ago_is_not_asked_again(office: Office) -> None:
    address, now = parse_address("ada@contoso.edu"), office.clock.now()
    await subscribe.sign_up(acting(office.storage, now), LIST, address, {})
    assert await office.ask("ada") is CannotAsk.LATELY


async def test_nobody_is_asked_more_than_three_times_in_thirty_days(office: Office) -> None:
    await office.join("ada")
    for _ in range(ASKS_MAX):
        assert await office.ask("ada") is None
        office.clock.move(2 * ASK_ONCE_IN.total_seconds())
    assert await office.ask("ada") is CannotAsk.OFTEN
    since_first = ASKS_MAX * 2 * ASK_ONCE_IN
    office.clock.move((ASKS_WITHIN - since_first).total_seconds())
    assert await office.ask("ada") is None  # the first one is thirty days ago
    office.clock.move(ASK_ONCE_IN.total_seconds())
    assert await office.ask("ada") is CannotAsk.OFTEN  # the second one is not


async def test_who_confirmed_or_left_is_not_asked(office: Office) -> None:
    await office.join("ada", verified=True)
    bob = await office.join("bob")
    await subscribe.leave(
        acting(office.storage, office.clock.now()), LIST, bob.guid, InactiveReason.UNSUBSCRIBED
    )
    assert await office.ask("ada") is CannotAsk.CONFIRMED
    assert await office.ask("bob") is CannotAsk.INACTIVE
    assert await office.ask("nobody") is CannotAsk.INACTIVE
    assert await office.take_items() == {}


async def test_people_who_unsubscribed_are_not_asked_because_somebody_typed_their_address(
    office: Office,
) -> None:
    one = await office.join("ada", verified=True)
    tables, now = office.storage.tables, office.clock.now()
    await subscribe.leave(acting(tables, now), LIST, one.guid)
    await subscribe.sign_up(acting(office.storage, now), LIST, parse_address("ada@contoso.edu"), {})
    office.clock.move(2 * ASK_ONCE_IN.total_seconds())
    assert await office.ask("ada") is CannotAsk.UNSUBSCRIBED_BEFORE


async def test_who_signed_up_is_kept_for_longer_once_they_are_asked_again(office: Office) -> None:
    address = parse_address("ada@contoso.edu")
    await subscribe.sign_up(acting(office.storage, office.clock.now()), LIST, address, {})
    office.clock.move(2 * ASK_ONCE_IN.total_seconds())
    assert await office.ask("ada") is None
    found = await office.read("ada")
    assert found.asked_at == office.clock.now()
    assert found.expires


# --- A whole list -------------------------------------------------------------------------------


async def test_everybody_who_may_be_asked_is_asked_once(office: Office) -> None:
    await office.crowd(PAGE_PEOPLE + PEOPLE_AT_ONCE + 3)
    await office.join("verified", verified=True)
    await office.ask("student0005")
    office.clock.move(1)
    found = await ask_to_confirm.tally(office.storage.tables, LIST, office.clock)
    assert (found.askable, found.lately, found.often) == (PAGE_PEOPLE + PEOPLE_AT_ONCE + 2, 1, 0)
    job = await office.run()
    assert (job.status, job.asked) == (JobStatus.DONE, found.askable)
    items = await office.take_items()
    assert len(items) == PAGE_PEOPLE + PEOPLE_AT_ONCE + 3
    assert set(items.values()) == {1}
    office.clock.move(1)
    again = await office.run()
    assert (again.asked, again.skipped) == (0, PAGE_PEOPLE + PEOPLE_AT_ONCE + 3)


async def test_a_long_queue_is_waited_for_and_a_dead_one_is_not(office: Office) -> None:
    """People who sign up at the same time must not wait behind a whole list."""
    await office.crowd(3 * PEOPLE_AT_ONCE)
    await office.storage.queues.put(SINGLE_MAIL_QUEUE, *["x,y"] * ITEMS_AHEAD_MAX)
    began = office.clock.now()
    job = await office.run()
    assert job.asked == 3 * PEOPLE_AT_ONCE
    waited = ask_to_confirm.POLLS_MAX * ask_to_confirm.POLL_EVERY_S * 3
    assert office.clock.now() - began == timedelta(seconds=waited)


async def test_two_runs_on_one_list_are_refused(office: Office) -> None:
    tables, now = office.storage.tables, office.clock.now()
    await ask_to_confirm.start(tables, LIST, by="ada", total=1, run="first", now=now)
    with pytest.raises(WrongState, match="being asked"):
        await ask_to_confirm.start(tables, LIST, by="bob", total=1, run="second", now=now)
    with pytest.raises(NotFound):
        await ask_to_confirm.start(tables, "nowhere", by="bob", total=1, run="second", now=now)


async def test_a_run_that_is_told_to_stop_stops_and_the_next_does_the_rest(office: Office) -> None:
    await office.crowd(3 * PEOPLE_AT_ONCE)
    tables, now = office.storage.tables, office.clock.now()
    job, etag = await ask_to_confirm.start(tables, LIST, by="a", total=99, run="1", now=now)
    await ask_to_confirm.stop(tables, LIST)
    stopped = await ask_to_confirm.run(office.asker, job, etag)
    assert (stopped.status, stopped.asked) == (JobStatus.STOPPED, PEOPLE_AT_ONCE)
    done = await office.run()
    assert (done.status, done.asked, done.total) == (JobStatus.DONE, 3 * PEOPLE_AT_ONCE, 99)
    assert set((await office.take_items()).values()) == {1}


async def test_a_run_that_another_process_took_over_stops(office: Office) -> None:
    await office.crowd(2 * PEOPLE_AT_ONCE)
    tables, now = office.storage.tables, office.clock.now()
    job, etag = await ask_to_confirm.start(tables, LIST, by="a", total=1, run="slow", now=now)
    office.clock.move(SILENT_AFTER.total_seconds())
    await ask_to_confirm.start(tables, LIST, by="b", total=1, run="next", now=office.clock.now())
    await ask_to_confirm.run(office.asker, job, etag)
    found = await ask_jobs.find(tables, LIST)
    assert found
    assert (found[0].run, found[0].asked) == ("next", 0)
    assert sum((await office.take_items()).values()) == PEOPLE_AT_ONCE


async def test_a_run_on_a_list_that_is_deleted_says_so(office: Office) -> None:
    await office.crowd(2)
    tables, now = office.storage.tables, office.clock.now()
    job, etag = await ask_to_confirm.start(tables, LIST, by="a", total=1, run="1", now=now)
    await lists.start_deleting(tables, LIST)
    failed = await ask_to_confirm.run(office.asker, job, etag)
    assert (failed.status, failed.mistake) == (JobStatus.FAILED, f"The list {LIST} was deleted.")
    assert await office.take_items() == {}


async def test_when_storage_goes_away_the_run_says_so_and_continues_later(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.crowd(3 * PEOPLE_AT_ONCE)
    with monkeypatch.context() as patched:
        calls = iter([False, True])

        async def put(*_: object, **_more: object) -> None:
            if next(calls, False):
                raise Unavailable("no answer")

        patched.setattr(office.storage.queues, "put", put)
        failed = await office.run()
    assert (failed.status, failed.asked) == (JobStatus.FAILED, PEOPLE_AT_ONCE)
    assert failed.mistake.startswith("Storage did not respond")
    assert (await office.run()).asked == 3 * PEOPLE_AT_ONCE


async def test_who_confirms_while_they_are_asked_stays_confirmed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.crowd(3)
    confirming = await office.read("student0001")
    batch, tries = FusedTables.batch, iter([True])

    async def late(
        tables: FusedTables, table: str, partition: str, changes: Sequence[Change]
    ) -> list[str]:
        is_group = sum(isinstance(change, Replace) for change in changes) == 3
        if is_group and next(tries, False):
            found = await subscribers.find(tables, LIST, confirming.key)
            assert found
            await subscribe.edit(
                acting(tables, START),
                LIST,
                confirming.key,
                verified=True,
                attributes={},
                etag=found[1],
            )
        return await batch(tables, table, partition, changes)

    monkeypatch.setattr(FusedTables, "batch", late)
    job = await office.run()
    assert next(tries, False) is False
    assert job.asked == 3
    assert (await office.read("student0001")).verified
    for name in ("student0000", "student0002"):
        assert (await office.read(name)).asked_at == START
    assert set((await office.take_items()).values()) == {1}
    assert await counts.read(office.storage.tables, LIST) == counts.ListCounts(1, 2, 0)


@pytest.mark.parametrize("is_after", [False, True])
async def test_killed_at_any_write_the_next_run_leaves_nobody_out(is_after: bool) -> None:
    """And asks at most one group twice: those whose items were put and whose rows were not."""
    people = 3 * PEOPLE_AT_ONCE + 2
    for kills_at in range(1, 100):
        office = Office()
        await lists.create(
            office.storage.tables,
            MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=START),
        )
        await office.crowd(people)
        office.fuse.set(kills_at, is_after=is_after)
        try:
            await office.run()
        except Killed:
            office.fuse.set(-1)
        else:
            assert kills_at > 3 * people // PEOPLE_AT_ONCE
            return
        office.clock.move(SILENT_AFTER.total_seconds())  # its row is silent now
        found = await ask_jobs.find(office.storage.tables, LIST)
        is_done = found is not None and found[0].status is JobStatus.DONE
        job = found[0] if found and is_done else await office.run()
        assert (job.status, job.asked, job.skipped) == (JobStatus.DONE, people, 0)
        items = await office.take_items()
        assert len(items) == people
        assert sum(items.values()) <= people + PEOPLE_AT_ONCE
        assert max(items.values()) <= 2
    pytest.fail("the run never came to its end")
