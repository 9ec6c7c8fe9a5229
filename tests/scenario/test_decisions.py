"""Decisions: what people decide on the failed and the held is followed once, and no oftener."""

from __future__ import annotations

from functools import partial

import pytest

from postroom.actions import control_message
from postroom.domain.delivery import State
from postroom.domain.message import Books, Message, OnDoubt, Revive, Status
from postroom.flow.schedule import LEFTOVER_AFTER
from postroom.flow.send import ItemResult
from postroom.records import batches, messages
from postroom.records.names import MAIL_QUEUE
from postroom.scheduler import Scheduler
from tests.scenario.storm import Crossed
from tests.scenario.town import LEASE_S, TURNS_MAX, Clerk, Town, once_each

# In the order in which they are mailed: the first one in the first group, the last in the last.
HELD = ["drop-after-dot", *(f"drop-guest{number}" for number in range(8)), "drop-in-data-once"]
FAILED = ["perm-fail", *(f"perm-guest{number}" for number in range(8)), "policy-once"]

LEFTOVER_S = LEFTOVER_AFTER.total_seconds() + 1


async def send_the_held_again(town: Town, ref: str) -> Message:
    now = town.clock.now()
    return await control_message.decide_held(town.storage.tables, ref, send_again=True, now=now)


def tries(town: Town, name: str) -> int:
    return town.sink.attempts.get(f"{name}@contoso.edu".encode(), 0)


async def walk_the_first_group(town: Town, ref: str) -> None:
    """The scheduler follows a decision there, and the senders do what comes of it."""
    await town.scheduler.step()
    message = await messages.read(town.storage.tables, ref)
    assert 0 < message.batches_requeued < message.batches
    await town.sender_alone()


async def pause_and_resume(town: Town, ref: str) -> None:
    """Before the walk is over: the decision stands, and the walk begins anew."""
    await control_message.pause(town.storage.tables, ref)
    resumed = await control_message.resume(town.storage.tables, ref)
    assert resumed.revive is not Revive.NOTHING
    assert resumed.batches_requeued == 0
    await town.quiet()


async def some_held(town: Town) -> str:
    ref = await town.mailing(*HELD, on_doubt=OnDoubt.HOLD)
    await town.open_sender(transport=town.transport(window=1))
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=8, held=2, doubts=2)
    return ref


async def test_who_is_held_again_stays_held_until_a_second_decision(
    town: Town, pairs: None
) -> None:
    ref = await some_held(town)
    await send_the_held_again(town, ref)
    await walk_the_first_group(town, ref)
    assert town.arrived()["drop-after-dot"] == 2
    await pause_and_resume(town, ref)
    assert town.arrived() == once_each(HELD) + once_each(["drop-after-dot"])
    assert (await town.read(ref)).books == Books(sent=9, held=1, doubts=3)
    await town.live_through(7200, every_s=1800)
    assert town.arrived()["drop-after-dot"] == 2
    await send_the_held_again(town, ref)
    await town.quiet()
    assert town.arrived()["drop-after-dot"] == 3


async def test_who_fails_again_is_not_tried_again_until_a_second_retry(
    town: Town, pairs: None
) -> None:
    ref = await town.mailing(*FAILED)
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(ref)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await walk_the_first_group(town, ref)
    assert tries(town, "perm-fail") == 2
    await pause_and_resume(town, ref)
    assert tries(town, "perm-fail") == 2
    assert town.arrived() == once_each(FAILED[1:])  # the last one's retry outlived the pause
    assert (await town.read(ref)).books == Books(sent=9, failed=1)
    assert await town.is_archived(ref)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert tries(town, "perm-fail") == 3


async def test_who_is_held_after_the_decision_passed_his_batch_was_not_decided_on(
    town: Town, pairs: None
) -> None:
    """His batch was open and nobody of it held: the decision was about others."""
    ref = await town.mailing(*HELD, on_doubt=OnDoubt.HOLD)
    queues = town.storage.queues
    first_four = await queues.claim(MAIL_QUEUE, limit=4, lease_s=LEASE_S)
    await town.open_sender(transport=town.transport(window=1))
    await town.sender_alone()
    assert (await town.states(ref))["drop-in-data-once"] is State.HELD  # of the last batch
    for claim in first_four:
        await queues.release(claim)
    await send_the_held_again(town, ref)
    await walk_the_first_group(town, ref)
    assert town.arrived()["drop-after-dot"] == 1
    await pause_and_resume(town, ref)
    assert town.arrived()["drop-after-dot"] == 1
    assert (await town.states(ref))["drop-after-dot"] is State.HELD


async def test_a_held_one_counted_as_sent_stays_so_after_pause_and_resume(
    town: Town, pairs: None
) -> None:
    ref = await some_held(town)
    now = town.clock.now()
    await control_message.decide_held(town.storage.tables, ref, send_again=False, now=now)
    await walk_the_first_group(town, ref)
    await pause_and_resume(town, ref)
    assert (await town.read(ref)).books == Books(sent=10, doubts=2)
    assert town.arrived()["drop-after-dot"] == 1
    assert await town.is_archived(ref)


async def test_a_batch_in_a_living_senders_hand_is_waited_for_and_then_followed(
    town: Town,
) -> None:
    names = ["drop-in-data-once", "slow", "zoe"]
    ref = await town.mailing(*names, on_doubt=OnDoubt.HOLD)
    clerk = await town.clerk(slice_size=1)
    await clerk.take_until(town.sink.is_waiting.wait())
    await send_the_held_again(town, ref)
    before = await batches.find_ledger(town.storage.tables, ref, 0)
    for _ in range(5):
        await town.scheduler.step()
    assert await batches.find_ledger(town.storage.tables, ref, 0) == before
    waiting = await messages.read(town.storage.tables, ref)
    assert (waiting.status, waiting.batches_requeued) == (Status.QUEUING, 0)
    assert await town.items() == 1  # the sender's own: none is put beside it
    town.sink.release()
    assert await clerk.finish() is ItemResult.DONE
    await town.fan_out()
    assert await clerk.take() is ItemResult.DONE
    assert town.arrived() == once_each(names)
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=3, doubts=1)
    assert await town.is_archived(ref)


async def stalled_while_people_decide(town: Town) -> tuple[str, Clerk]:
    """One is held, one is on the wire, and the lease of their sender has run out."""
    ref = await town.mailing("drop-in-data-once", "slow", "zoe", on_doubt=OnDoubt.HOLD)
    clerk = await town.clerk(machine="elsewhere", slice_size=1)
    await clerk.take_until(town.sink.is_waiting.wait())
    await send_the_held_again(town, ref)
    town.clock.move(3 * LEASE_S)
    return ref, clerk


async def test_a_sender_that_stalls_while_people_decide_can_still_write_what_it_sent(
    town: Town,
) -> None:
    ref, clerk = await stalled_while_people_decide(town)
    before = await batches.find_ledger(town.storage.tables, ref, 0)
    await town.fan_out()
    assert await batches.find_ledger(town.storage.tables, ref, 0) == before
    town.sink.release()
    assert await clerk.finish() is ItemResult.LATER
    assert await town.states(ref) == {
        "drop-in-data-once": State.HELD,
        "slow": State.SENT,
        "zoe": State.QUEUED,  # without its lease it hands nothing more over
    }
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["drop-in-data-once", "slow", "zoe"])
    assert (await town.read(ref)).books == Books(sent=3, doubts=1)
    assert await town.is_archived(ref)


async def test_a_decision_does_not_wait_for_the_item_of_a_dead_sender(town: Town) -> None:
    """One is put for its batch, however often the scheduler looks, and somebody settles it."""
    ref, clerk = await stalled_while_people_decide(town)
    await clerk.die()
    for _ in range(5):
        await town.scheduler.step()
    assert len(await town.storage.queues.peek(MAIL_QUEUE)) == 1
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.quiet()
    states = await town.states(ref)
    assert states["drop-in-data-once"] is states["zoe"] is State.SENT


async def overtake(town: Town, ref: str) -> None:
    """Another scheduler follows the decision, archives the message, and brings the failed back."""
    await town.pass_time(LEASE_S)
    await town.quiet()
    assert await town.is_archived(ref)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.fan_out()


async def stall_at(town: Town, at: int, ref: str) -> bool:
    """A scheduler that leads stalls before its call of this number; False if it makes no such."""
    storage = Crossed(town.storage, at, partial(overtake, town, ref), reads=True)
    await town.scheduler.stop()
    await Scheduler(storage, town.clock, f"stalled.{at}").step()
    await town.pass_time(LEASE_S)
    return storage.calls > at


@pytest.mark.slow
async def test_a_scheduler_that_stalls_over_a_decision_deletes_no_row_that_a_retry_restored(
    town: Town,
) -> None:
    await town.found_list()
    await town.join("drop-after-dot", "perm-fail-once", "zoe")
    await town.open_sender(transport=town.transport(window=1))
    for at in range(TURNS_MAX):
        town.sink.attempts.clear()
        ref = await town.compose(OnDoubt.HOLD)
        await town.quiet()
        assert (await town.read(ref)).books == Books(sent=1, failed=1, held=1, doubts=1)
        await control_message.decide_held(
            town.storage.tables, ref, send_again=False, now=town.clock.now()
        )
        is_over = not await stall_at(town, at, ref)
        await town.live_through(2 * LEFTOVER_S, every_s=LEFTOVER_S)  # its due entry is gone, too
        if is_over:
            break
        assert (await town.read(ref)).books == Books(sent=3, doubts=1), at
        assert await town.is_archived(ref), at
    assert at > 5  # it reads and writes more than that
