"""A backup while mail is sent, restored elsewhere: nobody is mailed before a person decides."""

from __future__ import annotations

import pytest

from postroom.actions import control_message, manage_media
from postroom.domain.address import parse_address
from postroom.domain.dead_letter import Reason
from postroom.domain.job_status import JobStatus
from postroom.domain.message import OnDoubt, Status
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.importing.job import ImportJob
from postroom.records import dead_letters, media
from tests import picture_samples
from tests.acting import acting
from tests.scenario.restoring import back_up, moved_town
from tests.scenario.town import LIST, Town, once_each, students

NAMES = students(12)


async def half_sent(town: Town, on_doubt: OnDoubt = OnDoubt.RESEND) -> str:
    """A message of six batches, of which one is sent; its ref."""
    ref = await town.mailing(*NAMES, on_doubt=on_doubt)
    clerk = await town.clerk()
    await clerk.take()
    await clerk.die()
    return ref


async def test_nobody_is_mailed_until_a_person_resumes_the_message(town: Town, pairs: None) -> None:
    ref = await half_sent(town)
    written = await back_up(town.storage, town.clock, town.folder)
    known = town.arrived()
    await town.open_sender()
    await town.quiet()  # the backup knows nothing of these
    assert town.arrived() == once_each(NAMES)
    new, restored = await moved_town(town, written.path)
    await town.close()
    try:
        await new.open_sender()
        await new.quiet()
        assert town.arrived() == once_each(NAMES)
        message = await new.read(ref)
        assert [each.ref for each in restored.held] == [ref]
        assert message.status is Status.PAUSED
        assert message.restore_hold
        assert message.restore_hold.made_at == written.manifest.made_at
        assert message.restore_hold.people == len(NAMES) - len(known)
        await control_message.resume(new.storage.tables, ref)
        await new.quiet()
        twice = {name for name, count in town.arrived().items() if count == 2}
        assert twice == set(NAMES) - set(known)  # as the person was told
        assert (await new.read(ref)).status is Status.COMPLETED
        assert (await new.read(ref)).restore_hold is None
    finally:
        await new.close()


async def test_pictures_come_with_their_files(town: Town) -> None:
    act = acting(town.storage, town.clock.now())
    picture = await manage_media.add(act, picture_samples.png(), "square.png", "A square")
    written = await back_up(town.storage, town.clock, town.folder)
    new, _ = await moved_town(town, written.path)
    try:
        assert (await media.read(new.storage.tables, picture.id)).value == picture
        name = picture.path.rpartition("/")[2]
        content = await media.load_file(new.storage.blobs, name)
        assert content
        assert content == await media.load_file(town.storage.blobs, name)
    finally:
        await new.close()


async def test_a_cancelled_message_of_a_backup_is_sent_to_nobody_else(
    town: Town, pairs: None
) -> None:
    ref = await half_sent(town)
    written = await back_up(town.storage, town.clock, town.folder)
    before = town.arrived()
    new, _ = await moved_town(town, written.path)
    await control_message.cancel(new.storage.tables, ref, town.clock.now())
    try:
        await new.open_sender()
        await new.quiet()
        assert town.arrived() == before
        message = await new.read(ref)
        assert (message.books.sent, message.books.skipped) == (2, len(NAMES) - 2)
    finally:
        await new.close()


async def test_a_cancellation_in_progress_is_finished(town: Town, pairs: None) -> None:
    ref = await half_sent(town)
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    written = await back_up(town.storage, town.clock, town.folder)
    new, restored = await moved_town(town, written.path)
    try:
        await new.open_sender()
        await new.quiet()
        assert not restored.held
        assert (await new.read(ref)).books.skipped == len(NAMES) - 2
    finally:
        await new.close()


async def test_a_message_whose_time_has_come_since_waits_and_a_later_one_does_not(
    town: Town,
) -> None:
    await town.found_list()
    await town.join(*NAMES)
    due = await town.compose(due_in_s=60.0)
    later = await town.compose(due_in_s=7200.0)
    written = await back_up(town.storage, town.clock, town.folder)
    town.clock.move(3600.0)
    new, restored = await moved_town(town, written.path)
    try:
        await new.open_sender()
        await new.quiet()
        assert [each.ref for each in restored.held] == [due]
        assert restored.held[0].restore_hold
        assert restored.held[0].restore_hold.people == len(NAMES)
        assert not town.arrived()
        await control_message.resume(new.storage.tables, due)
        await new.quiet()
        assert town.arrived() == once_each(NAMES)
        assert (await new.read(later)).status is Status.PENDING
        await new.pass_time(3600.0)
        await new.quiet()
        assert set(town.arrived().values()) == {2}  # both messages, once each
        assert (await new.read(later)).status is Status.COMPLETED
    finally:
        await new.close()


@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_a_journal_on_this_machine_says_nothing_about_a_restored_ledger(
    town: Town, on_doubt: OnDoubt
) -> None:
    """The journal is about a later slice of the same batch: it knows nothing of the first."""
    ref = await town.mailing("ada", "slow", "zoe", on_doubt=on_doubt)
    clerk = await town.clerk(slice_size=2)
    await clerk.take_until(town.sink.is_waiting.wait())  # ada and slow are announced
    written = await back_up(town.storage, town.clock, town.folder)
    await clerk.die()
    clerk.journal.begin(ref, 0)
    clerk.journal.handing_over([2])
    new, _ = await moved_town(town, written.path)
    ledger = (await new.ledgers(ref))[0]
    try:
        assert ledger.owner == ""
        assert ledger.doubts == 2
        assert ledger.books().held == (2 if on_doubt is OnDoubt.HOLD else 0)
        await control_message.resume(new.storage.tables, ref)
        town.sink.options = town.answering_at_once()
        town.sink.release()
        await new.open_sender()
        await new.quiet()
        assert town.arrived()["zoe"] == 1
        assert town.arrived()["ada"] == (1 if on_doubt is OnDoubt.HOLD else 2)
    finally:
        await new.close()


async def test_confirmations_that_were_waiting_become_dead_letters(town: Town) -> None:
    await town.found_list()
    act = acting(town.storage, town.clock.now())
    await subscribe.sign_up(act, LIST, parse_address("ada@contoso.edu"), {})
    written = await back_up(town.storage, town.clock, town.folder)
    new, restored = await moved_town(town, written.path)
    try:
        await new.open_sender()
        await new.quiet()
        assert not town.arrived()
        assert restored.single_mails == 1
        letters = await dead_letters.oldest(new.storage.queues)
        assert [letter.reason for letter in letters] == [Reason.RESTORED]
        assert await dead_letters.put_back(new.storage.queues) == (1, 0)
        await new.quiet()
        assert town.arrived() == once_each(["ada"])
    finally:
        await new.close()


async def test_an_import_that_was_running_is_stopped(town: Town) -> None:
    now = town.clock.now()
    job = ImportJob(
        id=jobs.new_id(now),
        list_name=LIST,
        file_name="people.csv",
        size=1,
        chunks=1,
        user="ada",
        created_at=now,
        status=JobStatus.RUNNING,
        seen_at=now,
    )
    await jobs.create(town.storage.tables, job)
    written = await back_up(town.storage, town.clock, town.folder)
    new, _ = await moved_town(town, written.path)
    assert (await jobs.read(new.storage.tables, job.id)).value.status is JobStatus.STOPPED


async def test_the_file_is_private_and_leaves_nothing_beside_it(town: Town) -> None:
    written = await back_up(town.storage, town.clock, town.folder)
    assert written.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in town.folder.iterdir() if "backup" in path.name] == [
        written.path.name
    ]
