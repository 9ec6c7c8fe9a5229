"""`postroom drain` does all the work of a scheduler, so that a job can run it now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import settings
from postroom.domain.job_status import JobStatus
from postroom.domain.mailing_list import MailingList
from postroom.importing import jobs, worker
from postroom.importing.csv_people import Columns
from postroom.importing.job import ExistingFields, ImportJob, Purpose, mapped
from postroom.importing.upload import UploadWriter
from postroom.records import lists, subscribers
from postroom.settings import Settings
from postroom.wiring import Parts, open_parts, roles
from tests.acting import acting

PEOPLE = b"email\nada@contoso.edu\ngrace@contoso.edu\n"
RETURNED = b"From: a@contoso.edu\r\nTo: b@contoso.edu\r\nSubject: Out of office\r\n\r\nLater.\r\n"


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    for name in ("cur", "new", "tmp"):
        (tmp_path / "mail" / name).mkdir(parents=True)
    return settings.load(
        {
            "POSTROOM_DATA": str(tmp_path / "data"),
            "POSTROOM_STORAGE": f"sqlite:///{tmp_path}/postroom.db",
            "POSTROOM_BOUNCE_MAILBOX": f"maildir:{tmp_path}/mail",
        },
        tmp_path / "none.toml",
    )


async def upload(parts: Parts) -> str:
    now = parts.clock.now()
    made = MailingList(name="contoso1", description="", sender="a@contoso.edu", created_at=now)
    await lists.create(parts.storage.tables, made)
    id_ = jobs.new_id(now)
    writer = UploadWriter(parts.storage.blobs, id_)
    await writer.write(PEOPLE)
    job = ImportJob(
        id=id_,
        list_name="contoso1",
        file_name="people.csv",
        size=len(PEOPLE),
        chunks=writer.chunks,
        user="ada@contoso.edu",
        created_at=now,
    )
    columns = Columns(0, (), None, 1)
    ready = mapped(job, columns, Purpose.CONFIRMED, ExistingFields.LEAVE, "they asked for it")
    await jobs.create(parts.storage.tables, ready)
    return id_


async def test_it_runs_the_imports_that_wait(here: Settings) -> None:
    async with open_parts(here, create_storage=True) as parts:
        id_ = await upload(parts)
        for is_rehearsal in (True, False):
            act = acting(parts.storage, parts.clock.now())
            await worker.start(act, id_, is_rehearsal=is_rehearsal)
            await roles.drain(here)
        job, _ = await jobs.read(parts.storage.tables, id_)
        assert job.status is JobStatus.DONE
        assert await subscribers.find(parts.storage.tables, "contoso1", "ada@contoso.edu")


async def test_it_reads_the_bounce_mailbox_to_its_end(here: Settings, tmp_path: Path) -> None:
    new = tmp_path / "mail" / "new"
    for number in range(3):
        (new / f"{number}.contoso").write_bytes(RETURNED)
    async with open_parts(here, create_storage=True):
        pass
    await roles.drain(here)
    assert list(new.iterdir()) == []
