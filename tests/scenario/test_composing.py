"""Drafts and times: a message changes only while nobody is queued, and then leaves nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.actions import control_message
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.message import Books, Status
from postroom.flow.compose import Draft, compose, discard, give_time
from postroom.records import messages
from tests.acting import acting
from tests.scenario.town import LIST, Town, once_each

NEXT_WEEK = timedelta(days=7)


async def written(town: Town, due_in: timedelta | None) -> str:
    """A list with two people and a message that is not due."""
    await town.found_list()
    await town.join("ada", "bob")
    now = town.clock.now()
    due_at = None if due_in is None else now + due_in
    draft = Draft(list_name=LIST, subject="News", text="Hello", due_at=due_at)
    return (await compose(acting(town.storage, now), draft)).ref


@pytest.mark.parametrize("due_in", [None, NEXT_WEEK], ids=["draft", "pending"])
async def test_a_message_that_is_not_due_waits_and_is_sent_when_its_time_has_come(
    town: Town, due_in: timedelta | None
) -> None:
    ref = await written(town, due_in)
    await town.open_sender()
    await town.quiet()
    assert not town.sink.mails
    now = town.clock.now()
    await give_time(acting(town.storage, now), ref, now + timedelta(hours=1))
    await town.quiet()
    assert not town.sink.mails
    await town.pass_time(3601)
    await town.quiet()
    assert town.arrived() == once_each(["ada", "bob"])


async def test_a_message_that_was_put_off_does_not_go_out_at_its_first_time(town: Town) -> None:
    ref = await written(town, timedelta(hours=1))
    now = town.clock.now()
    await give_time(acting(town.storage, now), ref, now + NEXT_WEEK)
    await town.open_sender()
    await town.pass_time(7200)
    await town.quiet()
    assert not town.sink.mails
    assert (await town.read(ref)).status is Status.PENDING


@pytest.mark.parametrize("due_in", [None, NEXT_WEEK], ids=["draft", "pending"])
async def test_a_deleted_message_leaves_no_body_and_is_never_sent(
    town: Town, due_in: timedelta | None
) -> None:
    ref = await written(town, due_in)
    await discard(town.storage, ref)
    with pytest.raises(NotFound):
        await messages.read(town.storage.tables, ref)
    assert await town.storage.blobs.list() == ([], None)
    await town.open_sender()
    await town.pass_time(8 * 24 * 3600)
    await town.quiet()
    assert not town.sink.mails


async def test_a_message_being_sent_can_be_neither_deleted_nor_rescheduled(town: Town) -> None:
    ref = await town.mailing("ada")
    now = town.clock.now()
    with pytest.raises(WrongState, match="only a draft or a scheduled message can be changed"):
        await discard(town.storage, ref)
    with pytest.raises(WrongState, match="only a draft or a scheduled message can be changed"):
        await give_time(acting(town.storage, now), ref, now + NEXT_WEEK)


async def test_a_message_cancelled_long_before_its_time_is_put_away_at_once(town: Town) -> None:
    ref = await written(town, NEXT_WEEK)
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert await town.is_archived(ref)
    message = await town.read(ref)
    assert (message.status, message.books) == (Status.CANCELLED, Books())


async def test_a_message_written_at_the_time_of_an_archived_one_is_another(town: Town) -> None:
    first = await town.mailing("ada", "bob")
    await town.open_sender()
    await town.quiet()
    assert await town.is_archived(first)
    second = await town.compose()  # the clock shows the same moment again
    await town.quiet()
    assert second != first
    assert town.arrived() == {"ada": 2, "bob": 2}
