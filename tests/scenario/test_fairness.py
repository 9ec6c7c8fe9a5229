"""Messages share the senders: none waits behind all of another."""

from __future__ import annotations

import pytest

from postroom.actions import control_message
from postroom.domain.message import Status
from postroom.records.names import MAIL_QUEUE
from tests.scenario.town import Town, address_of

pytestmark = pytest.mark.usefixtures("pairs")  # batches of two, pages of four people
CROWD = [f"p{number:02d}" for number in range(40)]


async def waiting(town: Town) -> int:
    return len(await town.storage.queues.peek(MAIL_QUEUE))


async def to_the_crowd(town: Town) -> str:
    await town.found_list()
    await town.join(*CROWD)
    town.scheduler.items_ahead = 3
    return await town.compose()


async def test_the_scheduler_queues_no_further_than_senders_need(town: Town) -> None:
    ref = await to_the_crowd(town)
    await town.fan_out()
    assert await waiting(town) == 3
    message = await town.read(ref)
    assert (message.status, message.audience, message.size) == (Status.QUEUING, 6, len(CROWD))
    assert await town.scheduler.rest_s() == town.scheduler.intervals.room_s


async def test_a_small_message_is_not_stuck_behind_a_big_one(town: Town) -> None:
    ref = await to_the_crowd(town)
    await town.fan_out()
    await town.found_list("contoso2")
    await town.join("small", list_name="contoso2")
    small = await town.compose(list_name="contoso2")
    await town.open_sender(lanes=1)
    await town.quiet()
    order = [mail.recipient for mail in town.sink.mails]
    assert order.index(address_of("small")) < 12
    assert sorted(order) == sorted(address_of(name) for name in [*CROWD, "small"])
    assert await town.is_archived(ref)
    assert await town.is_archived(small)


async def test_big_messages_take_turns(town: Town) -> None:
    await to_the_crowd(town)
    await town.found_list("contoso2")
    others = [f"q{number:02d}" for number in range(40)]
    await town.join(*others, list_name="contoso2")
    await town.compose(list_name="contoso2")
    await town.open_sender(lanes=1)
    await town.quiet()
    first = [mail.recipient[0] for mail in town.sink.mails[:40]]
    assert 12 <= first.count("p") <= 28
    assert len(town.sink.mails) == 80


async def test_items_that_wait_for_a_retry_keep_nobody_out(town: Town) -> None:
    await town.found_list()
    await town.join(*(f"temp-fail{number:02d}" for number in range(20)))
    town.scheduler.items_ahead = 3
    ref = await town.compose()
    await town.open_sender()
    await town.quiet()
    message = await town.read(ref)
    assert (message.status, message.audience) == (Status.PROCESSING, 20)
    assert await town.storage.queues.length(MAIL_QUEUE) == 10
    await town.found_list("contoso2")
    await town.join("ada", list_name="contoso2")
    await town.compose(list_name="contoso2")
    await town.quiet()
    assert town.arrived() == {"ada": 1}


async def test_a_message_still_being_queued_is_not_completed(town: Town) -> None:
    """Everybody queued so far has the mail, and the queue is empty: that is not the end."""
    ref = await to_the_crowd(town)
    await town.fan_out()
    await town.open_sender()
    await town.sender_alone()
    await town.storage.queues.put(MAIL_QUEUE, *["stray"] * 3)  # no room
    await town.scheduler.step_and_report()
    message = await town.read(ref)
    assert (message.books.sent, message.completed_at) == (6, None)


async def test_a_resumed_message_puts_its_items_again_in_turn_too(town: Town) -> None:
    ref = await to_the_crowd(town)
    town.scheduler.items_ahead = 0
    await town.fan_out()
    await control_message.pause(town.storage.tables, ref)
    while claims := await town.storage.queues.claim(MAIL_QUEUE, limit=32, lease_s=60):
        for claim in claims:
            await town.storage.queues.complete(claim)
    town.scheduler.items_ahead = 3
    await control_message.resume(town.storage.tables, ref)
    await town.fan_out()
    assert await waiting(town) == 4
    await town.open_sender()
    await town.quiet()
    assert len(town.arrived()) == len(CROWD)
