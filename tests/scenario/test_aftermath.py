"""Aftermath: who dies or loses a race half-way leaves nothing that stays or misleads for good."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from postroom.actions import control_message
from postroom.domain.delivery import State
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.message import Books, Status
from postroom.flow import subscribe
from postroom.flow.compose import Draft, compose, discard, give_time
from postroom.flow.send import ItemResult
from postroom.intervals import LOCAL
from postroom.records import batches, messages
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE
from postroom.storage.port import Storage, Unavailable
from tests.acting import acting
from tests.clock import soon
from tests.scenario.storm import Crossed, Storm
from tests.scenario.town import CLAIM_S, DAY_S, LIST, Town, once_each

PEOPLE = ["ada", "bob"]
HOUR = timedelta(hours=1)
HOUR_S = HOUR.total_seconds()
SWEEP_S = 61.0  # a little more than the scheduler lets pass between two sweeps
CALLS_OF_A_DROP = 6  # claim, message, rows, ledger, deletion, completion
LEFTOVER_S = 11 * 60.0  # the same for a due entry that leads nowhere


async def due_in(town: Town, wait: timedelta) -> str:
    """A pending message for everybody on the list; its ref."""
    town.clock.move(1)  # a ref is the time: the one of a message that is gone is not used again
    now = town.clock.now()
    draft = Draft(list_name=LIST, subject="News", html="<p>Hello", text="Hello", due_at=now + wait)
    return (await compose(acting(town.storage, now), draft)).ref


async def peopled(town: Town) -> None:
    await town.found_list()
    await town.join(*PEOPLE)


# A sender dies


WRITES_OF_A_REPORT = 2  # events of those who were refused, and an item: before the archive rows


async def die_at_write(town: Town, at: int, owner: str = "clerk.1", machine: str = "here") -> None:
    """A sender takes the next item and is killed just before the write of this number."""
    has_come = asyncio.Event()

    async def stand_still() -> None:
        has_come.set()
        await asyncio.Event().wait()  # for the end

    crossed = Crossed(town.storage, at, stand_still)
    clerk = await replace(town, storage=crossed).clerk(owner, machine=machine)
    await clerk.take_until(has_come.wait())
    await clerk.die()


async def writes_of_a_calm_take(town: Town) -> int:
    storm = Storm(town.storage)
    await town.compose()
    await town.fan_out()
    clerk = await replace(town, storage=storm).clerk("clerk.calm")
    await clerk.take()
    return len(storm.writes)


@pytest.mark.parametrize("machine", ["here", "elsewhere"])
async def test_a_sender_killed_at_any_write_leaves_nothing_that_outlives_its_message(
    town: Town, machine: str
) -> None:
    town.scheduler.keep_archive_days = 30
    await peopled(town)
    for at in range(await writes_of_a_calm_take(town)):
        ref = await town.compose()
        await town.fan_out()
        await die_at_write(town, at, f"clerk.{at}", machine)
        role = await town.open_sender()
        await town.live_through(CLAIM_S + 60, every_s=60)
        assert await town.is_archived(ref), at
        await town.pass_time(31 * DAY_S)
        await town.quiet()
        assert await town.everything_about(ref) == [], at
        await town.close_sender(role)


@pytest.mark.parametrize("at", [2, 3], ids=["before the archive rows", "before the ledger"])
async def test_rows_that_settling_finds_final_are_deleted_at_once(town: Town, at: int) -> None:
    """Once the message is archived, the item of the dead sender comes back to no avail."""
    ref = await town.mailing(*PEOPLE)
    await die_at_write(town, at)
    assert town.arrived() == once_each(PEOPLE)  # everybody is answered, and the ledger says:
    assert set((await town.states(ref)).values()) == {State.SENDING}
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(ref)
    assert await batches.load_deliveries(town.storage.tables, ref, 0) == {}


async def test_a_sender_that_dies_before_it_announces_holds_nobody_up(town: Town) -> None:
    """Its item is hidden for minutes; its journal tells the next one at once."""
    ref = await town.mailing(*PEOPLE)
    await die_at_write(town, 1)
    assert set((await town.states(ref)).values()) == {State.QUEUED}
    assert await town.items() == 1
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(PEOPLE)
    assert await town.is_archived(ref)


async def archived_with_leftovers(town: Town, owner: str, *, refusals: bool = False) -> str:
    """Its sender was killed before it deleted the rows; the item comes back only now."""
    town.sink.attempts.clear()
    ref = await town.compose()
    await town.fan_out()
    await die_at_write(town, 4 + WRITES_OF_A_REPORT * refusals, owner)
    await town.quiet()
    assert await town.is_archived(ref)
    assert await batches.load_deliveries(town.storage.tables, ref, 0)
    town.clock.move(CLAIM_S)
    return ref


async def test_an_item_taken_after_its_message_was_archived_deletes_what_its_sender_left(
    town: Town,
) -> None:
    await peopled(town)
    ref = await archived_with_leftovers(town, "clerk.1")
    clerk = await town.clerk("clerk.2", machine="elsewhere")
    assert await clerk.take() is ItemResult.DROPPED
    assert await batches.load_deliveries(town.storage.tables, ref, 0) == {}
    assert await town.items() == 0


async def test_rows_that_a_retry_brings_back_are_not_deleted_as_leftovers(town: Town) -> None:
    """Whenever the retry comes while the item of before is handled."""
    await peopled(town)
    await town.join("perm-fail-once")
    for at in range(CALLS_OF_A_DROP):
        ref = await archived_with_leftovers(town, f"clerk.{at}", refusals=True)
        town.sink.taken.clear()
        crossed = Crossed(town.storage, at, partial(bring_back, town, ref), reads=True)
        clerk = await replace(town, storage=crossed).clerk(f"late.{at}", machine="elsewhere")
        await clerk.take()
        assert crossed.calls > at
        role = await town.open_sender()
        await town.quiet()
        assert town.arrived() == once_each(["perm-fail-once"]), at
        assert (await town.read(ref)).books == Books(sent=3), at
        assert await town.items(DEAD_LETTER_QUEUE) == 0, at
        await town.close_sender(role)
        await clear_second_items(town)


async def clear_second_items(town: Town) -> None:
    """Whoever settles puts one more item than is needed, if the first was not lost."""
    town.clock.move(CLAIM_S)
    for claim in await town.storage.queues.claim(MAIL_QUEUE, limit=32, lease_s=CLAIM_S):
        await town.storage.queues.complete(claim)


async def bring_back(town: Town, ref: str) -> None:
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.fan_out()


# A message is given a new time on the same day, where its due entry has the same key


async def test_a_message_that_starts_while_it_is_put_off_continues_at_once(town: Town) -> None:
    town.scheduler.intervals = replace(LOCAL, sweep_s=DAY_S)  # the sweep must not resume it
    await peopled(town)
    ref = await due_in(town, HOUR)
    await town.open_sender()
    await town.quiet()
    await town.pass_time(HOUR_S)
    now = town.clock.now()
    crossed = Crossed(town.storage, 0, town.scheduler.step)
    with pytest.raises(WrongState, match="has just been changed"):
        await give_time(acting(crossed, now), ref, now + HOUR)
    assert (await town.read(ref)).status is Status.QUEUING
    await town.quiet()
    assert town.arrived() == once_each(PEOPLE)


async def test_who_dies_while_putting_a_message_off_leaves_it_its_time(town: Town) -> None:
    await peopled(town)
    ref = await due_in(town, HOUR)
    storm = Storm(town.storage)
    storm.strike(Unavailable("killed"), at=1, times=1)  # the due entry is new, the message is not
    now = town.clock.now()
    with pytest.raises(Unavailable):
        await give_time(acting(storm, now), ref, now + 3 * HOUR)
    await town.open_sender()
    await town.pass_time(HOUR_S - 1)
    await town.quiet()
    assert not town.sink.mails
    await town.pass_time(SWEEP_S)
    await town.quiet()
    assert town.arrived() == once_each(PEOPLE)


@pytest.mark.parametrize("at", [0, 1], ids=["before the due entry", "before the message"])
async def test_of_two_people_who_schedule_at_once_one_gets_a_conflict(town: Town, at: int) -> None:
    await peopled(town)
    ref = await due_in(town, 5 * HOUR)
    now = town.clock.now()
    faster = Crossed(
        town.storage, at, lambda: give_time(acting(town.storage, now), ref, now + HOUR)
    )
    with pytest.raises(WrongState, match="has just been changed"):
        await give_time(acting(faster, now), ref, now + 3 * HOUR)
    await town.open_sender()
    await town.pass_time(HOUR_S - 1)
    await town.quiet()
    assert not town.sink.mails
    await town.pass_time(SWEEP_S)
    await town.quiet()
    assert town.arrived() == once_each(PEOPLE)


@pytest.mark.parametrize("at", [0, 1], ids=["before the due entry", "before the message"])
async def test_a_message_cancelled_while_it_is_put_off_is_closed_at_once(
    town: Town, at: int
) -> None:
    town.scheduler.intervals = replace(LOCAL, sweep_s=DAY_S)  # it is not the sweep that finds it
    await peopled(town)
    ref = await due_in(town, HOUR)
    await town.open_sender()
    await town.quiet()
    now = town.clock.now()
    crossed = Crossed(
        town.storage, at, lambda: control_message.cancel(town.storage.tables, ref, now)
    )
    with pytest.raises(WrongState, match="has just been changed"):
        await give_time(acting(crossed, now), ref, now + 3 * HOUR)
    await town.quiet()
    assert (await town.read(ref)).status is Status.CANCELLED
    assert await town.is_archived(ref)


# A web machine's clock is ahead


async def test_a_departure_stamped_ahead_of_time_hides_nobody_who_leaves_later(town: Town) -> None:
    ref = await town.mailing("ada", "slow", "zoe")
    guid = (await town.subscriber("ada")).guid
    await subscribe.leave(acting(town.storage, town.clock.now() + HOUR), LIST, guid)
    role = await town.open_sender(slice_size=1)
    await role.step()
    await soon(town.sink.is_waiting.wait())  # it has learned of ada
    town.clock.move(1)
    await town.leave("zoe")
    town.sink.release()
    await town.quiet()
    assert town.arrived() == once_each(["slow"])
    states = await town.states(ref)
    assert states == {"ada": State.SKIPPED, "slow": State.SENT, "zoe": State.SKIPPED}


# A message is deleted


async def give_time_now(town: Town, ref: str) -> None:
    now = town.clock.now()
    with suppress(NotFound):  # it is deleted already
        await give_time(acting(town.storage, now), ref, now)


async def start(town: Town, ref: str) -> None:
    await town.fan_out()


async def is_discarded(storage: Storage, ref: str) -> bool:
    try:
        await discard(storage, ref)
    except WrongState:
        return False
    return True


async def is_there(town: Town, ref: str) -> bool:
    try:
        await messages.read(town.storage.tables, ref)
    except NotFound:
        return False
    return True


async def writes_of_a_calm_discard(town: Town) -> int:
    storm = Storm(town.storage)
    await discard(storm, await due_in(town, HOUR))
    return len(storm.writes)


@pytest.mark.parametrize("rival", [start, give_time_now])
async def test_a_message_that_is_deleted_meanwhile_is_sent_completely_or_not_at_all(
    town: Town, rival: Callable[[Town, str], Awaitable[None]]
) -> None:
    await peopled(town)
    await town.open_sender()
    expected: Counter[str] = Counter()
    verdicts: list[bool] = []
    for at in range(await writes_of_a_calm_discard(town)):
        ref = await due_in(town, timedelta(0))
        crossed = Crossed(town.storage, at, partial(rival, town, ref))
        verdicts.append(await is_discarded(crossed, ref))
        await town.quiet()
        if verdicts[-1]:
            assert not await is_there(town, ref), at
            assert await town.storage.blobs.list(ref) == ([], None), at
        else:
            expected += once_each(PEOPLE)
        assert town.arrived() == expected, at
    assert set(verdicts) == {True, False}  # both happened


async def test_who_dies_while_deleting_a_message_leaves_it_whole_or_only_bodies_of_nobody(
    town: Town,
) -> None:
    await peopled(town)
    await town.open_sender()
    expected: Counter[str] = Counter()
    for at in range(await writes_of_a_calm_discard(town)):
        ref = await due_in(town, timedelta(0))
        storm = Storm(town.storage)
        storm.strike(Unavailable("killed"), at=at, times=1)
        with pytest.raises(Unavailable):
            await discard(storm, ref)
        await town.quiet()
        await town.pass_time(LEFTOVER_S)
        await town.quiet()
        if await is_there(town, ref):
            expected += once_each(PEOPLE)
        else:
            assert set(await town.everything_about(ref)) <= {f"{ref}.htm", f"{ref}.txt"}, at
        assert town.arrived() == expected, at
