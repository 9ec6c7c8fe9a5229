"""Forgotten items: a batch whose work item was lost is not."""

from __future__ import annotations

from postroom.actions import control_message
from postroom.domain.message import Books
from postroom.flow import sweep
from postroom.flow.send import ItemResult
from postroom.records import batches
from postroom.records.names import MAIL_QUEUE
from tests.scenario.town import CLAIM_S, LEASE_S, Clerk, Town, once_each, students

QUARTER_S = 15 * 60.0


async def lose_all_items(town: Town) -> None:
    while claims := await town.storage.queues.claim(MAIL_QUEUE, limit=32, lease_s=60):
        for claim in claims:
            await town.storage.queues.complete(claim)


async def test_an_item_that_was_lost_is_put_again(town: Town, pairs: None) -> None:
    names = students(7)
    ref = await town.mailing(*names)
    await lose_all_items(town)
    await town.open_sender()
    await town.pass_time(QUARTER_S)
    await town.quiet()
    assert not town.sink.mails  # it might still be in somebody's hands
    await town.pass_time(61)
    await town.quiet()
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=7)


async def test_a_lost_item_of_a_cancelled_message_is_put_again(town: Town) -> None:
    ref = await town.mailing("ada")
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await town.fan_out()
    await lose_all_items(town)
    await town.open_sender()
    await town.live_through(QUARTER_S + 61, every_s=61)
    assert (await town.read(ref)).books == Books(skipped=1)
    assert await town.is_archived(ref)


async def test_a_retry_that_is_hours_away_is_not_forgotten(town: Town) -> None:
    await town.mailing("temp-fail")
    await town.open_sender()
    await town.quiet()
    for _ in range(30):
        await town.live_through(300, every_s=300)
        assert await town.items() <= 1


async def test_items_that_wait_for_a_sender_are_not_put_again_and_again(
    town: Town, pairs: None
) -> None:
    """Else a night without senders, or a long mailing, would fill the queue without bound."""
    await town.mailing(*students(8))
    for _ in range(120):
        town.clock.move(61)
        await town.fan_out()
    assert await town.items() == 4


async def in_hand_for_long(town: Town) -> tuple[str, Clerk]:
    """A sender that lives, and has waited for an answer longer than an item may be missing."""
    ref = await town.mailing("ada", "slow", "zoe")
    clerk = await town.clerk(machine="elsewhere")
    await clerk.take_until(town.sink.is_waiting.wait())
    town.clock.move(CLAIM_S)
    await lose_all_items(town)
    for _ in range(round(sweep.FORGOTTEN_AFTER.total_seconds() / 10) + 1):
        town.clock.move(10)
        await clerk.hold_lease()
    return ref, clerk


async def test_no_item_is_put_for_a_batch_that_a_living_sender_has_in_hand(town: Town) -> None:
    ref, clerk = await in_hand_for_long(town)
    await town.fan_out()
    assert await town.items() == 0
    town.sink.release()
    assert await clerk.finish() is ItemResult.LOST  # of the item, not of what was sent
    assert (await town.read(ref)).books == Books(sent=3)


async def test_an_item_is_put_for_a_batch_in_hand_once_the_lease_of_its_sender_is_over(
    town: Town,
) -> None:
    """The ledger is left as it is: whoever settles it must find it so."""
    ref, clerk = await in_hand_for_long(town)
    await clerk.die()
    before = await batches.find_ledger(town.storage.tables, ref, 0)
    town.clock.move(LEASE_S)
    await town.fan_out()
    assert await town.items() == 1
    assert await batches.find_ledger(town.storage.tables, ref, 0) == before
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.quiet()
    assert set(town.arrived()) == {"ada", "slow", "zoe"}
    assert (await town.read(ref)).books == Books(sent=3, doubts=3)
    assert await town.is_archived(ref)
