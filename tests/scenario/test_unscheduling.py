"""Unscheduling: a scheduled message is a draft again, or it has begun; never anything between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from postroom.actions import control_message
from postroom.domain.errors import WrongState
from postroom.domain.message import Status, ref_of_call
from postroom.flow.compose import Draft, Origin, compose, give_time
from postroom.intervals import LOCAL
from postroom.records import bodies, messages
from postroom.storage.port import Conflict, Unavailable
from tests.acting import acting
from tests.scenario.storm import Crossed, Storm
from tests.scenario.town import DAY_S, LIST, Town, once_each

PEOPLE = ["ada", "bob"]
HOUR = timedelta(hours=1)
HOUR_S = HOUR.total_seconds()
LEFTOVER_S = 11 * 60.0
WRITES = 2  # of unscheduling: the message row, then its due entry


async def scheduled(town: Town, wait: timedelta = HOUR) -> str:
    """A scheduled message for everybody on the list; its ref."""
    town.clock.move(1)
    now = town.clock.now()
    draft = Draft(
        list_name=LIST,
        subject="News",
        html="<p>Hello",
        text="Hello",
        due_at=now + wait,
        due_zone="Europe/Berlin",
    )
    return (await compose(acting(town.storage, now), draft)).ref


async def peopled(town: Town) -> None:
    await town.found_list()
    await town.join(*PEOPLE)


async def has_entry(town: Town, ref: str) -> bool:
    later = town.clock.now() + timedelta(days=30)
    return any([each.ref == ref async for each in messages.due_entries(town.storage.tables, later)])


async def test_an_unscheduled_message_is_the_draft_it_was_and_is_not_sent(town: Town) -> None:
    await peopled(town)
    ref = await scheduled(town)
    before = await town.read(ref)
    await control_message.unschedule(town.storage.tables, ref)
    after = await town.read(ref)
    assert (after.status, after.due_at, after.due_zone) == (Status.DRAFT, None, "")
    assert (after.subject, after.edition) == (before.subject, before.edition)
    assert await bodies.load(town.storage.blobs, after) == ("<p>Hello", "Hello")
    assert not await has_entry(town, ref)
    await town.open_sender()
    await town.pass_time(2 * DAY_S)
    await town.quiet()
    assert not town.sink.mails
    now = town.clock.now()
    await give_time(acting(town.storage, now), ref, now)
    await town.quiet()
    assert town.arrived() == once_each(PEOPLE)


@pytest.mark.parametrize("status", [Status.DRAFT, Status.QUEUING, Status.COMPLETED])
async def test_only_a_scheduled_message_is_unscheduled(town: Town, status: Status) -> None:
    await peopled(town)
    ref = await scheduled(town, timedelta(0))
    if status is Status.DRAFT:
        await control_message.unschedule(town.storage.tables, ref)
    elif status is Status.QUEUING:
        await town.scheduler.step()
    else:
        await town.open_sender()
        await town.quiet()
    before = await town.read(ref)
    with pytest.raises(WrongState):
        await control_message.unschedule(town.storage.tables, ref)
    assert await town.read(ref) == before


@pytest.mark.parametrize("at", range(WRITES))
async def test_who_dies_while_unscheduling_leaves_a_message_that_is_sent_or_a_draft(
    town: Town, at: int
) -> None:
    await peopled(town)
    await town.open_sender()
    ref = await scheduled(town)
    storm = Storm(town.storage)
    storm.strike(Unavailable("killed"), at=at, times=1)
    with pytest.raises(Unavailable):
        await control_message.unschedule(storm.tables, ref)
    await town.pass_time(HOUR_S + LEFTOVER_S)
    await town.quiet()
    await town.pass_time(LEFTOVER_S)
    await town.quiet()
    is_draft = (await town.read(ref)).status is Status.DRAFT
    assert is_draft == (at == 1)
    assert town.arrived() == (Counter() if is_draft else once_each(PEOPLE))
    assert not await has_entry(town, ref)  # nobody looks at it for ever


async def start(town: Town, ref: str) -> None:
    await town.fan_out()


async def reschedule(town: Town, ref: str) -> None:
    now = town.clock.now()
    await give_time(acting(town.storage, now), ref, now + HOUR / 2)


@pytest.mark.parametrize("rival", [start, reschedule])
async def test_a_message_unscheduled_while_others_act_is_sent_whole_or_not_at_all(
    town: Town, rival: Callable[[Town, str], Awaitable[None]]
) -> None:
    """Whatever its person is told is true, and nobody waits for the sweep."""
    town.scheduler.intervals = replace(LOCAL, sweep_s=30 * DAY_S)
    await peopled(town)
    await town.open_sender()
    expected: Counter[str] = Counter()
    told: set[bool] = set()
    for at in range(6):
        ref = await scheduled(town, timedelta(0))
        crossed = Crossed(town.storage, at, partial(rival, town, ref), reads=True)
        try:
            await control_message.unschedule(crossed.tables, ref)
            is_draft = True
        except WrongState:
            is_draft = False
        if crossed.calls <= at:
            break
        is_scheduled_anew = (await town.read(ref)).status is Status.PENDING
        told.add(is_draft)
        await town.pass_time(HOUR_S)
        await town.quiet()
        if not is_draft or is_scheduled_anew:
            expected += once_each(PEOPLE)
        assert town.arrived() == expected, at
    assert told == ({True, False} if rival is start else {True})


async def test_a_call_that_is_repeated_does_not_schedule_again_what_a_person_took_back(
    town: Town,
) -> None:
    await peopled(town)
    now = town.clock.now()
    origin = Origin("a call", ref_of_call("a call", now))
    draft = Draft(list_name=LIST, subject="News", text="Hello", due_at=now + HOUR)
    ref = (await compose(acting(town.storage, now), draft, origin)).ref
    await control_message.unschedule(town.storage.tables, ref)
    with pytest.raises(Conflict):
        await compose(acting(town.storage, now), draft, origin)
    assert (await town.read(ref)).status is Status.DRAFT
