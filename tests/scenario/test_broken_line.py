"""A broken line: what was handed over without an answer is in doubt, and doubt has a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.actions import control_message
from postroom.domain.delivery import State
from postroom.domain.message import Books, OnDoubt, Status
from postroom.records import recipient_outcomes
from tests.scenario.town import Town, once_each, students

BROKEN = ("drop-in-data-once", "drop-after-dot-once")


async def send(town: Town) -> None:
    """One mail on the wire at a time, so that only one is in doubt."""
    await town.open_sender(transport=town.transport(window=1))
    await town.quiet()


async def test_a_line_that_broke_before_the_hand_over_leaves_no_doubt(town: Town) -> None:
    names = ["ada", "drop-at-rcpt-once", "zoe"]
    ref = await town.mailing(*names)
    town.sink.options = replace(town.sink.options, chunking=False)
    await send(town)
    await town.pass_time(60)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=3)


@pytest.mark.parametrize("broken", BROKEN)
async def test_resend_loses_nobody_and_counts_the_doubt(town: Town, broken: str) -> None:
    ref = await town.mailing("ada", broken, "zoe")
    await send(town)
    assert (await town.read(ref)).books == Books(queued=1, sent=2, doubts=1)
    await town.pass_time(60)
    await town.quiet()
    assert set(town.arrived()) == {"ada", broken, "zoe"}
    assert (await town.read(ref)).books == Books(sent=3, doubts=1)


async def test_a_second_copy_has_the_message_id_of_the_first(town: Town) -> None:
    await town.mailing("drop-after-dot-once")
    await send(town)
    await town.pass_time(60)
    await town.quiet()
    [first, second] = town.sink.mails
    assert first.message_id == second.message_id != ""


@pytest.mark.parametrize("broken", BROKEN)
async def test_hold_never_sends_twice_and_keeps_the_message_among_the_living(
    town: Town, broken: str
) -> None:
    ref = await town.mailing("ada", broken, "zoe", on_doubt=OnDoubt.HOLD)
    await send(town)
    await town.live_through(7200, every_s=3600)
    assert town.arrived()[broken] == (1 if "dot" in broken else 0)
    message = await town.read(ref)
    assert message.books == Books(sent=2, held=1, doubts=1)
    assert message.status is Status.COMPLETED
    assert not await town.is_archived(ref)


async def test_whoever_decides_on_the_held_reads_why_and_since_when(town: Town) -> None:
    ref = await town.mailing("ada", "drop-after-dot", on_doubt=OnDoubt.HOLD)
    await send(town)
    message = await town.read(ref)
    [held] = [
        one
        async for one in recipient_outcomes.all_outcomes(town.storage.tables, message, State.HELD)
    ]
    assert held.words.startswith("handed over, then ")
    assert held.at == town.clock.now()


async def test_who_leaves_after_a_doubt_is_skipped_and_the_words_tell_of_the_doubt(
    town: Town,
) -> None:
    ref = await town.mailing("drop-after-dot-once")
    await send(town)
    await town.leave("drop-after-dot-once")
    await town.pass_time(60)
    await town.quiet()
    [fate] = (await town.fates(ref)).values()
    assert fate.state is State.SKIPPED
    assert "an earlier attempt may have been delivered" in fate.words


async def test_a_person_may_count_the_held_as_sent(town: Town) -> None:
    ref = await town.mailing("drop-after-dot", "zoe", on_doubt=OnDoubt.HOLD)
    await send(town)
    await control_message.decide_held(
        town.storage.tables, ref, send_again=False, now=town.clock.now()
    )
    await town.quiet()
    assert town.arrived() == once_each(["drop-after-dot", "zoe"])
    fate = (await town.fates(ref))["drop-after-dot"]
    assert fate == (State.SENT, "marked as sent by a user")
    assert (await town.read(ref)).books == Books(sent=2, doubts=1)
    assert await town.is_archived(ref)


async def test_a_person_may_send_the_held_again(town: Town) -> None:
    ref = await town.mailing("drop-in-data-once", "zoe", on_doubt=OnDoubt.HOLD)
    await send(town)
    await control_message.decide_held(
        town.storage.tables, ref, send_again=True, now=town.clock.now()
    )
    await town.quiet()
    assert town.arrived() == once_each(["drop-in-data-once", "zoe"])
    assert (await town.read(ref)).books == Books(sent=2, doubts=1)
    assert await town.is_archived(ref)


async def test_a_whole_window_on_the_wire_is_in_doubt_and_nobody_is_lost(town: Town) -> None:
    names = ["drop-after-dot-once", *students(30)]
    ref = await town.mailing(*names)
    await town.open_sender(transport=town.transport(window=8))
    await town.quiet()
    await town.pass_time(60)
    await town.quiet()
    assert set(town.arrived()) == set(names)
    message = await town.read(ref)
    assert message.books.sent == 31
    assert 1 <= message.books.doubts <= 8
    assert sum(town.arrived().values()) - 31 <= message.books.doubts
