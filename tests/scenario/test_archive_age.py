"""Age: what was archived longer ago than people want to keep it is gone to the last row."""

from __future__ import annotations

from postroom.actions import control_message
from tests.scenario.town import DAY_S, Town, students


async def sent_and_archived(town: Town) -> str:
    ref = await town.compose()
    await town.quiet()
    assert await town.is_archived(ref)
    return ref


async def test_old_messages_are_deleted_completely_and_newer_ones_stay(town: Town) -> None:
    town.scheduler.keep_archive_days = 30
    await town.found_list()
    await town.join(*students(120), "perm-fail")
    await town.open_sender()
    old = await sent_and_archived(town)
    await town.pass_time(20 * DAY_S)
    young = await sent_and_archived(town)
    await town.pass_time(10 * DAY_S)
    await town.quiet()
    assert await town.everything_about(old)  # thirty days are not over yet
    await town.pass_time(DAY_S)
    await town.quiet()
    assert await town.everything_about(old) == []
    kept = await town.everything_about(young)
    assert len(kept) == 2 + 2 + 121 + 2 + 2  # headers, ledgers, deliveries, message, bodies


async def test_the_age_of_a_retried_message_counts_from_its_last_archiving(town: Town) -> None:
    town.scheduler.keep_archive_days = 30
    await town.found_list()
    await town.join("perm-fail-once", "zoe")
    await town.open_sender()
    ref = await sent_and_archived(town)
    await town.pass_time(20 * DAY_S)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert await town.is_archived(ref)
    await town.pass_time(15 * DAY_S)
    await town.quiet()
    assert (await town.read(ref)).books.sent == 2
    await town.pass_time(16 * DAY_S)
    await town.quiet()
    assert await town.everything_about(ref) == []


async def test_a_message_that_is_being_tried_again_does_not_age(town: Town) -> None:
    town.scheduler.keep_archive_days = 30
    await town.found_list()
    await town.join("perm-fail", "zoe")
    role = await town.open_sender()
    ref = await sent_and_archived(town)
    await town.close_sender(role)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    town.clock.move(40 * DAY_S)
    await town.quiet()
    assert (await town.read(ref)).books.queued == 1
    assert await town.storage.blobs.get(f"{ref}.htm")
