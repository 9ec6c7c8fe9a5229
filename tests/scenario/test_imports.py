"""An import goes on whatever dies when: nobody is left out, added twice or counted twice."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom.domain.job_status import JobStatus
from postroom.domain.mailing_list import MailingList
from postroom.importing import jobs, upload, worker
from postroom.importing.csv_people import Columns
from postroom.importing.job import KEPT, ExistingFields, ImportJob, Purpose, mapped
from postroom.importing.upload import UPLOAD_MAX, UploadWriter
from postroom.importing.worker import FORGOTTEN_AFTER, RETRY_S, TRIES_MAX, ImportWorker
from postroom.records import lists, subscribers
from postroom.records.names import IMPORT_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage, Unavailable
from tests.acting import acting
from tests.clock import START, MovableClock

LIST = "contoso1"
PEOPLE = 250
GROUP = 100
LEASE_S = 30.0
READS = frozenset({"get", "scan", "length", "peek", "list"})
ROWS = [f"student{number}@contoso.edu" for number in range(PEOPLE)]
FILE = "\n".join(["email", *ROWS[:120], "nobody", *ROWS[120:], "nothing"]) + "\n"


class Killed(BaseException):
    """As kill -9 is for a process."""


class MortalStorage:
    """Storage as one process sees it, which dies at one of its writes and does nothing after."""

    def __init__(self, inner: Storage, dies_at: int, *, is_after: bool) -> None:
        self.tables: Any = _Mortal(self, inner.tables)
        self.queues: Any = _Mortal(self, inner.queues)
        self.blobs: Any = _Mortal(self, inner.blobs)
        self.troubles = inner.troubles
        self.is_dead = False
        self.writes = 0
        self._dies_at = dies_at
        self._is_after = is_after

    async def call(self, name: str, act: Callable[[], Awaitable[Any]]) -> Any:
        if self.is_dead:
            raise Killed
        if name in READS:
            return await act()
        self.writes += 1
        self.is_dead = self.writes == self._dies_at
        if self.is_dead and not self._is_after:
            raise Killed
        result = await act()
        if self.is_dead:
            raise Killed
        return result

    async def close(self) -> None:
        pass


class _Mortal:
    def __init__(self, storage: MortalStorage, inner: object) -> None:
        self._storage = storage
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda *args, **named: self._storage.call(name, lambda: method(*args, **named))


class Installation:
    def __init__(self) -> None:
        self.clock = MovableClock()
        self.storage = MemoryStorage(self.clock, STORAGE_NAMES)
        self.id = jobs.new_id(START)

    async def open(self, content: str = FILE) -> Installation:
        made = MailingList(name=LIST, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(self.storage.tables, made)
        writer = UploadWriter(self.storage.blobs, self.id)
        await writer.write(content.encode())
        job = ImportJob(
            id=self.id,
            list_name=LIST,
            file_name="people.csv",
            size=len(content),
            chunks=writer.chunks,
            user="ada@contoso.edu",
            created_at=START,
        )
        columns = Columns(0, (), None, 1)
        job = mapped(job, columns, Purpose.CONFIRMED, ExistingFields.LEAVE, "they asked for it")
        await jobs.create(self.storage.tables, job)
        return self

    def worker(self, storage: Storage | None = None) -> ImportWorker:
        return ImportWorker(storage or self.storage, self.clock, lease_s=LEASE_S, group_rows=GROUP)

    async def start(self, *, is_rehearsal: bool) -> None:
        act = acting(self.storage, self.clock.now())
        await worker.start(act, self.id, is_rehearsal=is_rehearsal)

    async def run(self, storage: Storage | None = None) -> ImportJob:
        """One worker, until it has nothing to do or is dead."""
        one = self.worker(storage)
        while await one.step():
            await one.settled()
        return await self.job()

    async def job(self) -> ImportJob:
        return (await jobs.read(self.storage.tables, self.id))[0]

    async def report(self) -> list[list[str]]:
        parts = [part async for part in upload.read_report(self.storage.blobs, await self.job())]
        return list(csv.reader(io.StringIO(b"".join(parts).decode("utf-8-sig"))))

    async def blobs(self) -> list[str]:
        return (await self.storage.blobs.list("imports/"))[0]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("is_rehearsal", [False, True])
async def test_a_worker_killed_at_any_write_is_followed_by_one_that_continues(
    is_rehearsal: bool, is_after: bool
) -> None:
    for dies_at in range(1, 100):
        here = await Installation().open()
        if not is_rehearsal:
            await here.start(is_rehearsal=True)
            await here.run()
        await here.start(is_rehearsal=is_rehearsal)
        mortal = MortalStorage(here.storage, dies_at, is_after=is_after)
        with contextlib.suppress(Killed):
            await here.run(mortal)
        if not mortal.is_dead:
            assert dies_at > 5
            return
        here.clock.move(LEASE_S + 1)
        job = await here.run()
        assert job.status is JobStatus.DONE
        assert job.rows == PEOPLE + 2
        assert (job.added + job.already, job.bad) == (PEOPLE, 2)
        assert job.already <= (0 if is_rehearsal else GROUP)  # the group that was done again
        assert [row[1] for row in await here.report()] == ["value", "nobody", "nothing"]
        assert [row.value for row in job.first_bad.rows] == ["nobody", "nothing"]
        everyone = [one.address async for one in subscribers.everyone(here.storage.tables, LIST)]
        assert sorted(everyone) == ([] if is_rehearsal else sorted(ROWS))
        assert any("/file/" in name for name in await here.blobs()) == is_rehearsal
        assert await here.storage.queues.length(IMPORT_QUEUE) == 0
    pytest.fail("the import never came to its end")


async def test_a_job_whose_web_died_before_it_put_the_item_is_not_forgotten() -> None:
    here = await Installation().open()
    mortal = MortalStorage(here.storage, 2, is_after=False)
    with pytest.raises(Killed):
        await worker.start(acting(mortal, here.clock.now()), here.id, is_rehearsal=True)
    await worker.put_forgotten_items(here.storage, here.clock.now())
    assert await here.storage.queues.length(IMPORT_QUEUE) == 0  # it may be about to put it
    here.clock.move(FORGOTTEN_AFTER.total_seconds() + 1)
    await worker.put_forgotten_items(here.storage, here.clock.now())
    await worker.put_forgotten_items(here.storage, here.clock.now())
    assert await here.storage.queues.length(IMPORT_QUEUE) == 1
    assert (await here.run()).is_rehearsed


async def test_a_stalled_worker_gives_up_once_another_has_taken_over() -> None:
    here = await Installation().open()
    await here.start(is_rehearsal=True)
    (claim,) = await here.storage.queues.claim(IMPORT_QUEUE, limit=1, lease_s=LEASE_S)
    stalled = worker.ImportRun(here.worker(), claim)
    assert await stalled._claim_job()
    here.clock.move(LEASE_S + 1)
    done = await here.run()
    assert done.is_rehearsed
    with pytest.raises(worker.Superseded):
        await stalled._import()
    assert await here.job() == done


async def test_storage_that_fails_delays_an_import_and_in_the_end_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = await Installation().open()
    await here.start(is_rehearsal=True)
    await here.run()

    async def fail(*_: object) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(subscribers, "join_together", fail)
        await here.start(is_rehearsal=False)
        assert (await here.run()).is_running
        for _ in range(TRIES_MAX):
            here.clock.move(RETRY_S + 1)
            job = await here.run()
        assert job.status is JobStatus.FAILED
        assert "Storage did not respond" in job.mistake
    await here.start(is_rehearsal=False)
    job = await here.run()
    assert job.is_finished
    assert (job.added, job.bad) == (PEOPLE, 2)


async def test_old_imports_and_blobs_without_a_row_are_swept() -> None:
    here = await Installation().open()
    orphan = jobs.new_id(START + timedelta(seconds=1))
    await UploadWriter(here.storage.blobs, orphan).write(b"a" * 10)
    await upload.sweep(here.storage, START + UPLOAD_MAX)
    assert len(await here.blobs()) == 2  # it may be coming in
    await upload.sweep(here.storage, START + UPLOAD_MAX + timedelta(minutes=1))
    assert [name.split("/")[1] for name in await here.blobs()] == [here.id]
    await upload.sweep(here.storage, START + KEPT + timedelta(minutes=1))
    assert await jobs.newest(here.storage.tables, limit=9) == []
    assert await here.blobs() == []


async def test_reading_holds_a_few_chunks_of_a_long_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(upload, "READ_AHEAD_BYTES", 50_000)
    rows = "".join(f"student{number}@contoso.edu\n" for number in range(20_000))
    here = await Installation().open("email\n" + "\n" * 5000 + rows)
    most = 0
    load = upload.UploadedFile.load

    async def watched(file: upload.UploadedFile) -> None:
        nonlocal most
        await load(file)
        most = max(most, file._loaded_bytes)

    monkeypatch.setattr(upload.UploadedFile, "load", watched)
    await here.start(is_rehearsal=True)
    job = await here.run()
    assert (job.added, job.read_bytes) == (20_000, job.size)
    assert most < 52_000
