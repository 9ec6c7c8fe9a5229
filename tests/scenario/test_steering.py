"""Steering: pause, resume, cancel, retry and decide, at any moment, and the books balance."""

from __future__ import annotations

import pytest

from postroom.actions import control_message
from postroom.domain.delivery import State
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.message import Books, OnDoubt, Status
from postroom.records.names import DEAD_LETTER_QUEUE
from tests.clock import soon
from tests.scenario.town import CLAIM_S, Town, once_each, students

SKIPPED = (State.SKIPPED, "the message was cancelled")


async def test_a_pause_stops_within_a_slice_and_drops_the_items(town: Town) -> None:
    ref = await town.mailing("slow", *students(150))
    role = await town.open_sender(lanes=1, slice_size=10)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await control_message.pause(town.storage.tables, ref)
    town.sink.release()
    await town.quiet()
    assert (await town.read(ref)).books == Books(queued=141, sent=10)
    assert await town.items() == 0
    await town.live_through(3600, every_s=900)
    assert len(town.sink.mails) == 10


async def test_a_resumed_message_is_completed(town: Town) -> None:
    names = ["slow", *students(150)]
    ref = await town.mailing(*names)
    role = await town.open_sender(lanes=1, slice_size=10)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await control_message.pause(town.storage.tables, ref)
    town.sink.release()
    await town.quiet()
    await control_message.resume(town.storage.tables, ref)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=151)
    assert await town.is_archived(ref)


async def test_a_pause_in_the_fan_out_loses_nobody(town: Town, pairs: None) -> None:
    names = students(11)
    await town.found_list()
    await town.join(*names)
    ref = await town.compose()
    await town.open_sender()
    for _ in range(3):
        await town.scheduler.step()
        await control_message.pause(town.storage.tables, ref)
        await town.quiet()
        await control_message.resume(town.storage.tables, ref)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=11)


async def test_a_retry_that_waits_continues_after_pause_and_resume(town: Town) -> None:
    ref = await town.mailing("temp-fail-once", "zoe")
    await town.open_sender()
    await town.quiet()
    await control_message.pause(town.storage.tables, ref)
    await town.pass_time(60)
    await town.quiet()
    assert town.arrived() == once_each(["zoe"])
    await control_message.resume(town.storage.tables, ref)
    await town.quiet()
    assert town.arrived() == once_each(["temp-fail-once", "zoe"])
    assert await town.is_archived(ref)


async def test_a_cancelled_message_skips_whoever_is_queued(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert set((await town.fates(ref)).values()) == {SKIPPED}
    message = await town.read(ref)
    assert message.status is Status.CANCELLED
    assert message.books == Books(skipped=2)
    assert await town.is_archived(ref)


async def test_who_was_sent_to_before_the_cancellation_was_sent_to(town: Town) -> None:
    ref = await town.mailing("slow", "tom", "uma", "zoe")
    role = await town.open_sender(slice_size=2)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    town.sink.release()
    await town.quiet()
    assert town.arrived() == once_each(["slow", "tom"])
    fates = await town.fates(ref)
    assert (fates["uma"], fates["zoe"]) == (SKIPPED, SKIPPED)
    assert (await town.read(ref)).books == Books(sent=2, skipped=2)


async def test_a_cancellation_does_not_wait_for_those_whose_retry_is_hours_away(
    town: Town,
) -> None:
    ref = await town.mailing("temp-fail", "zoe")
    await town.open_sender()
    await town.quiet()
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert (await town.fates(ref))["temp-fail"] == SKIPPED
    assert (await town.read(ref)).books == Books(sent=1, skipped=1)
    assert await town.is_archived(ref)


async def test_a_paused_message_can_be_cancelled(town: Town) -> None:
    ref = await town.mailing("ada", "bob")
    await control_message.pause(town.storage.tables, ref)
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).books == Books(skipped=2)
    assert await town.is_archived(ref)


@pytest.mark.parametrize("steps", range(6))
async def test_a_message_can_be_cancelled_at_any_moment_of_its_fan_out(
    town: Town, pairs: None, steps: int
) -> None:
    await town.found_list()
    await town.join(*students(11))
    ref = await town.compose()
    for _ in range(steps):
        await town.scheduler.step()
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    message = await town.read(ref)
    assert message.status is Status.CANCELLED
    assert message.books == Books(skipped=message.audience)
    assert await town.is_archived(ref)


async def test_the_held_of_a_cancelled_message_can_be_decided_on(town: Town) -> None:
    """Else it would stand among the living for ever."""
    ref = await town.mailing("drop-after-dot", "temp-fail", on_doubt=OnDoubt.HOLD)
    await town.open_sender(transport=town.transport(window=1))
    await town.quiet()
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.live_through(120, every_s=60)
    assert (await town.read(ref)).books == Books(held=1, skipped=1, doubts=1)
    await control_message.decide_held(
        town.storage.tables, ref, send_again=False, now=town.clock.now()
    )
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=1, skipped=1, doubts=1)
    assert await town.is_archived(ref)


async def failed_and_archived(town: Town) -> str:
    """One was refused for good, and the message is in the archive."""
    ref = await town.mailing("ada", "perm-fail-once", "zoe")
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(ref)
    return ref


async def test_the_failed_can_be_tried_again_out_of_the_archive(town: Town) -> None:
    ref = await failed_and_archived(town)
    await town.pass_time(7 * 24 * 3600)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    assert (await town.read(ref)).status is Status.QUEUING
    await town.quiet()
    assert town.arrived() == once_each(["ada", "perm-fail-once", "zoe"])
    assert (await town.read(ref)).books == Books(sent=3)
    assert await town.is_archived(ref)
    assert await town.items() == 0


async def test_a_retry_out_of_the_archive_skips_people_who_unsubscribed_meanwhile(
    town: Town,
) -> None:
    ref = await failed_and_archived(town)
    await town.pass_time(24 * 3600)
    await town.leave("perm-fail-once")
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert town.arrived() == once_each(["ada", "zoe"])
    assert (await town.read(ref)).books == Books(sent=2, skipped=1)
    assert await town.is_archived(ref)


async def test_a_retry_out_of_the_archive_can_be_cancelled_before_it_began(town: Town) -> None:
    ref = await failed_and_archived(town)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    message = await town.read(ref)
    assert message.books.sent == 2
    assert message.books.failed + message.books.skipped == 1
    assert await town.is_archived(ref)


async def test_the_failed_of_a_message_going_out_can_be_tried_again(town: Town) -> None:
    ref = await town.mailing("perm-fail-once", "temp-fail-once", "zoe")
    await town.open_sender()
    await town.quiet()
    assert not await town.is_archived(ref)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    await town.pass_time(60)
    await town.quiet()
    assert town.arrived() == once_each(["perm-fail-once", "temp-fail-once", "zoe"])
    assert (await town.read(ref)).books == Books(sent=3)


async def test_a_retry_does_not_take_a_batch_out_of_a_senders_hands(town: Town) -> None:
    """The failed of the first slice come back while the second one is on the wire."""
    names = ["perm-fail-once", "rob", "slow", "zoe"]
    ref = await town.mailing(*names)
    role = await town.open_sender(slice_size=2)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    for _ in range(5):
        await town.scheduler.step()
    town.sink.release()
    await town.quiet()
    for _ in range(3):
        await town.pass_time(CLAIM_S)
        await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=4)
    assert await town.is_archived(ref)
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_what_cannot_be_done_now_is_refused_with_a_sentence(town: Town) -> None:
    tables, now = town.storage.tables, town.clock.now()
    ref = await town.mailing("temp-fail-once", "zoe")
    with pytest.raises(WrongState, match="not paused"):
        await control_message.resume(tables, ref)
    await control_message.pause(tables, ref)
    with pytest.raises(WrongState, match="Only a message that is being sent can be paused"):
        await control_message.pause(tables, ref)
    with pytest.raises(WrongState, match="so it cannot be sent again yet"):
        await control_message.retry_failed(tables, ref, now)
    await control_message.resume(tables, ref)
    await town.open_sender()
    await town.quiet()
    await town.live_through(60, every_s=60)
    assert await town.is_archived(ref)
    for act in (
        control_message.pause(tables, ref),
        control_message.resume(tables, ref),
        control_message.cancel(tables, ref, now),
    ):
        with pytest.raises(WrongState, match="is already sent"):
            await act
    with pytest.raises(WrongState, match="no failed recipients"):
        await control_message.retry_failed(tables, ref, now)
    with pytest.raises(WrongState, match="no held recipients"):
        await control_message.decide_held(tables, ref, send_again=True, now=now)
    with pytest.raises(NotFound, match="no message 1"):
        await control_message.pause(tables, "1")
    with pytest.raises(NotFound, match="not a message ref"):
        await control_message.cancel(tables, "contoso1", now)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_a_sender_that_died_had_in_hand_is_settled_after_a_pause(
    town: Town, is_cancelled: bool
) -> None:
    ref = await town.mailing("ada", "slow", "zoe")
    clerk = await town.clerk()
    await clerk.take_until(town.sink.is_waiting.wait())
    await control_message.pause(town.storage.tables, ref)
    await clerk.die()
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.live_through(CLAIM_S + 60, every_s=60)
    # Its journal tells what became of whom; nobody is sent to while people say: leave it alone.
    assert (await town.read(ref)).books == Books(sent=1, queued=2, doubts=1)
    if is_cancelled:
        await control_message.cancel(town.storage.tables, ref, town.clock.now())
    else:
        await control_message.resume(town.storage.tables, ref)
    await town.quiet()
    books = (await town.read(ref)).books
    if is_cancelled:
        assert books == Books(sent=1, skipped=2, doubts=1)
        assert town.arrived() == once_each(["ada", "slow"])
    else:
        assert books == Books(sent=3, doubts=1)
        assert town.arrived() == once_each(["ada", "slow", "zoe"]) + once_each(["slow"])
    assert await town.is_archived(ref)
