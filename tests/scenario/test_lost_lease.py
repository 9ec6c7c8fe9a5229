"""A lost lease: whoever stalled past it stops by himself, and his late writes conflict."""

from __future__ import annotations

import pytest

from postroom.actions import control_message
from postroom.domain.message import Books, Message, OnDoubt, Status
from postroom.flow import archive, fan_out, report, schedule
from postroom.flow.send import ItemResult
from postroom.records import messages
from postroom.records.messages import DueEntry
from postroom.scheduler import Scheduler
from postroom.storage.port import Conflict
from tests.scenario.town import CLAIM_S, LEASE_S, TURNS_MAX, Town, once_each, students

NAMES = ["slow", "tom", "uma", "zoe"]  # in the order in which they are mailed


async def test_a_sender_without_its_lease_hands_nothing_over(town: Town) -> None:
    ref = await town.mailing(*NAMES)
    clerk = await town.clerk()
    await clerk.take_until(town.sink.is_waiting.wait())
    town.clock.move(LEASE_S)
    town.sink.release()
    assert await clerk.finish() is ItemResult.LATER
    assert town.arrived() == once_each(["slow"])
    assert (await town.read(ref)).books == Books(queued=3, sent=1)
    await clerk.hold_lease()
    assert await clerk.take() is ItemResult.DONE
    assert town.arrived() == once_each(NAMES)


async def test_a_role_without_its_lease_takes_no_items(town: Town) -> None:
    await town.mailing(*NAMES[1:])
    role = await town.open_sender()
    await town.clock.asleep(1)
    role.lease.renewed(town.clock.monotonic(), 0.0)
    assert not await role.step()
    assert not town.sink.mails


@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_what_a_sender_writes_after_another_took_over_changes_no_books(
    town: Town, on_doubt: OnDoubt
) -> None:
    ref = await town.mailing(*NAMES, on_doubt=on_doubt)
    stalled = await town.clerk(machine="elsewhere")
    await stalled.take_until(town.sink.is_waiting.wait())
    town.clock.move(CLAIM_S)
    other = await town.clerk("clerk.2", window=1)
    town.sink.options = town.answering_at_once()
    await other.take()
    before = (await town.read(ref)).books
    town.sink.release()
    assert await stalled.finish() is ItemResult.LOST
    assert (await town.read(ref)).books == before
    if on_doubt is OnDoubt.HOLD:
        assert before == Books(held=4, doubts=4)
        assert town.arrived() == once_each(["slow"])
    else:
        assert before == Books(sent=4, doubts=4)
        assert town.arrived() == once_each(NAMES) + once_each(["slow"])


async def test_a_scheduler_that_lost_its_lease_does_nothing(town: Town) -> None:
    ref = await town.mailing("ada")
    other = Scheduler(town.storage, town.clock, "scheduler.2")
    assert not await other.step()
    assert other.lease is None
    town.clock.move(LEASE_S)
    await other.step()
    assert other.lease is not None
    await town.scheduler.step()
    assert town.scheduler.lease is None
    assert (await messages.read(town.storage.tables, ref)).status is Status.PROCESSING


async def test_a_scheduler_that_stops_lets_the_next_one_lead_at_once(town: Town) -> None:
    await town.mailing("ada")
    await town.scheduler.stop()
    other = Scheduler(town.storage, town.clock, "scheduler.2")
    await other.step()
    assert other.lease is not None
    assert other.lease.fence == 2


async def mailing_that_was_looked_at(town: Town, *names: str) -> list[tuple[Message, str]]:
    """A message on its way to the archive, and its row as it was at every step."""
    await town.found_list()
    await town.join(*names)
    ref = await town.compose()
    await town.open_sender()
    seen: list[tuple[Message, str]] = []
    for _ in range(TURNS_MAX):
        found = await messages.find_live(town.storage.tables, ref)
        if found is None:
            return seen
        seen.append(found)
        await town.scheduler.step_and_report()
        await town.sender_alone()
    raise AssertionError("the message is not archived")


async def test_a_stalled_scheduler_that_wakes_up_with_old_rows_mails_nobody_twice(
    town: Town, pairs: None
) -> None:
    names = students(9)
    seen = await mailing_that_was_looked_at(town, *names)
    statuses = [Status.PENDING, Status.QUEUING, Status.PROCESSING, Status.COMPLETED]
    assert {message.status for message, _ in seen} >= set(statuses)
    for message, etag in seen:
        with pytest.raises(Conflict):
            await act_on(town, message, etag)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(seen[0][0].ref)).books == Books(sent=9)


async def test_what_a_stalled_scheduler_wrote_is_not_mailed_by_a_later_retry(
    town: Town, pairs: None
) -> None:
    names = ["perm-fail", *students(5)]
    seen = await mailing_that_was_looked_at(town, *names)
    message, etag = next(one for one in seen if one[0].status is Status.QUEUING)
    with pytest.raises(Conflict):
        await act_on(town, message, etag)
    await town.quiet()
    await control_message.retry_failed(town.storage.tables, message.ref, town.clock.now())
    await town.quiet()
    assert town.arrived() == once_each(names[1:])


async def act_on(town: Town, message: Message, etag: str) -> None:
    """What a scheduler does that read this row before it fell asleep."""
    tables, now = town.storage.tables, town.clock.now()
    if message.status is Status.PENDING:
        await schedule.start(tables, message, etag, now)
    elif message.status is Status.QUEUING:
        await fan_out.advance(town.storage, message, etag, now)
    elif message.completed_at is None:
        await report.report(tables, message, etag, now)
    else:
        assert message.due_at
        entry = DueEntry(message.ref, message.due_at)
        await archive.put_away(tables, message, etag, entry, now)
