"""Calls of storage are paid for: few for a mail, next to none while nothing happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from postroom.actions import control_message
from postroom.importing.worker import ImportWorker
from postroom.intervals import REMOTE
from postroom.records import leases
from postroom.scheduler import Scheduler
from postroom.sender import Sender
from postroom.sending.lease import IDLE_LEASES
from postroom.storage.counting import CountingStorage
from tests.scenario.town import Town

CALLS_A_MINUTE_MAX = 10.0
MINUTES = 60
PEOPLE = 2_000
WAITING = 20


def counted(town: Town) -> CountingStorage:
    town.storage = CountingStorage(town.storage)
    return town.storage


async def idle_sender(town: Town, minutes: float) -> Sender:
    """A sender at the pace of a storage far away, nothing coming for so long."""
    role = await town.open_sender()
    role.poll_s, role.lease.lease_s = REMOTE.poll_s, REMOTE.lease_s
    until = town.clock.now() + timedelta(minutes=minutes)
    while town.clock.now() < until:
        assert not await role.step()
        await town.pass_time(await role.rest_s())
    return role


async def test_an_idle_scheduler_far_away_makes_few_calls(town: Town) -> None:
    storage = counted(town)
    for name in ("contoso1", "contoso2", "contoso3"):
        await town.found_list(name)
    scheduler = Scheduler(storage, town.clock, "scheduler.1", intervals=REMOTE)
    importer = ImportWorker(storage, town.clock, poll_s=REMOTE.imports_s)
    before, until = storage.calls.total, town.clock.now() + timedelta(minutes=MINUTES)
    imports_at = 0.0
    while town.clock.now() < until:
        assert not await scheduler.step()
        assert scheduler.lease
        if town.clock.monotonic() >= imports_at:
            assert not await importer.step()
            imports_at = town.clock.monotonic() + await importer.rest_s()
        town.clock.move(await scheduler.rest_s())
    assert storage.calls.total - before <= CALLS_A_MINUTE_MAX * MINUTES


async def test_messages_that_wait_for_people_are_read_together(town: Town) -> None:
    storage = counted(town)
    await town.found_list()
    await town.join("ada")
    await town.scheduler.step()
    before = storage.calls.total
    await town.scheduler.step()
    alone = storage.calls.total - before
    refs = [await town.compose() for _ in range(WAITING)]
    await town.scheduler.step()  # they start
    for ref in refs:
        await control_message.pause(storage.tables, ref)
    before = storage.calls.total
    await town.scheduler.step()
    assert storage.calls.total - before <= alone + 1
    for ref in refs[::2]:
        await control_message.resume(storage.tables, ref)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == {"ada": len(refs[::2])}


async def test_a_scheduler_that_stands_by_makes_few_calls(town: Town) -> None:
    storage = counted(town)
    assert await leases.hold(
        storage.tables, "scheduler", "another", now=town.clock.now(), lease_s=3500
    )
    scheduler = Scheduler(storage, town.clock, "scheduler.1", intervals=REMOTE)
    before = storage.calls.total
    for _ in range(MINUTES):
        await scheduler.step()
        town.clock.move(await scheduler.rest_s())
    minutes = MINUTES * REMOTE.schedule_s / 60
    assert storage.calls.total - before <= CALLS_A_MINUTE_MAX * minutes


async def test_an_idle_sender_far_away_makes_few_calls(town: Town) -> None:
    storage = counted(town)
    before = storage.calls.total
    await idle_sender(town, MINUTES)
    assert storage.calls.total - before <= CALLS_A_MINUTE_MAX * MINUTES


async def test_an_idle_sender_has_a_long_lease_and_a_busy_one_a_short(town: Town) -> None:
    """Nobody waits for the death of a sender that has nothing in hand."""
    role = await idle_sender(town, minutes=10)
    name = leases.sender_lease(role.lease.owner)
    resting = await leases.holder(town.storage.tables, name, now=town.clock.now())
    longest, short = (timedelta(seconds=REMOTE.lease_s * times) for times in (IDLE_LEASES, 1))
    assert resting
    assert town.clock.now() + short < resting.expires_at
    assert resting.expires_at <= town.clock.now() + longest
    await town.mailing("slow")
    await role.step()
    busy = await leases.holder(town.storage.tables, name, now=town.clock.now())
    assert busy
    assert busy.expires_at <= town.clock.now() + short


async def test_a_sender_looks_less_and_less_often_until_something_comes(town: Town) -> None:
    role = await town.open_sender()
    role.poll_s = 15.0
    pauses = []
    for _ in range(6):
        await role.step()
        pauses.append(await role.rest_s())
    assert pauses == [2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    await town.mailing("ada")
    assert await role.step()
    assert await role.rest_s() == 1.0


async def test_confirmations_are_looked_for_once_a_second_while_batches_go_out(
    town: Town,
) -> None:
    storage = counted(town)
    role = await town.open_sender(lanes=4)
    await town.mailing("slow")
    assert await role.step()
    calls = storage.calls.queue_calls
    assert not await role.step()
    assert storage.calls.queue_calls == calls + 1  # batches alone
    assert 0 < await role.rest_s() <= 1.0  # it owes a look
    town.clock.move(1.0)
    assert not await role.step()
    assert storage.calls.queue_calls == calls + 3


async def test_a_mail_takes_a_seventh_of_a_call(town: Town) -> None:
    """Fan-out and sending, each counted alone; what is left of the bar is for the reports."""
    await town.found_list()
    await town.join(*(f"student{number}" for number in range(PEOPLE)))
    fanning = CountingStorage(town.storage)
    town.scheduler = replace(town.scheduler, storage=fanning)
    await town.fan_out()  # it sweeps first
    await town.compose()
    before = fanning.calls.total
    await town.fan_out()
    sending = CountingStorage(town.storage)
    await town.open_sender(lanes=4, slice_size=99, storage=sending)
    await town.sender_alone()
    assert len(town.arrived()) == PEOPLE
    assert (fanning.calls.total - before) / PEOPLE <= 0.04
    # A dozen of them are for the suppression list, however many people there are.
    assert sending.calls.total / PEOPLE <= 0.12
