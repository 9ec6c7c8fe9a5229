"""Running imports: shown to everybody, stopped by editors, continued after any failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.job_status import JobStatus
from postroom.domain.subscriber import Subscriber
from postroom.domain.user import Role
from postroom.importing import jobs
from postroom.records import counts, lists, subscribers
from postroom.records.names import IMPORT_QUEUE
from postroom.storage.port import Tables
from tests.web.importing import (
    CHOICE,
    GOOD,
    at_work,
    brought_in,
    change,
    import_worker,
    job_of,
    kinds_kept,
    looked_over,
    settled,
    upload,
    uploaded,
)
from tests.web.office import LIST, NOW
from tests.web.signed_in import OWN_PAGE, Worker, notice_in, sign_in_as

GROUP = 1000
MANY = "email\n" + "".join(f"student{n}@contoso.edu\n" for n in range(3000))
ADDRESS_ALONE = {"name-1": "", "name-2": ""}


class Gate:
    """Lets one batch of people in, then nobody before it is open."""

    def __init__(self) -> None:
        self.has_let_in = asyncio.Event()
        self.is_open = asyncio.Event()
        self._join = subscribers.join_together

    async def join(self, tables: Tables, people: Sequence[Subscriber], now: datetime) -> None:
        if self.has_let_in.is_set():
            await self.is_open.wait()
        self.has_let_in.set()
        await self._join(tables, people, now)


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(subscribers, "join_together", gate.join)
    return gate


async def test_an_import_is_stopped_and_continues_where_it_was(editor: Worker, gate: Gate) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    assert "Waiting to start" in (await editor.get(path)).text
    worker = import_worker(editor, GROUP)
    assert await worker.step()
    await gate.has_let_in.wait()
    running = await editor.get(path)
    assert "Importing people" in running.text
    assert f'hx-get="{path}/live"' in running.text
    assert (await editor.post(f"{path}/stop")).headers["location"] == path
    gate.is_open.set()
    await worker.settled()
    job = await job_of(editor, path)
    assert job.status is JobStatus.STOPPED
    assert job.rows == job.added == GROUP
    assert "Continue" in (await editor.get(path)).text
    assert "hx-get" not in (await editor.get(f"{path}/live")).text
    await editor.post(f"{path}/start")
    again = await settled(editor, path)
    assert again.is_finished
    assert (again.rows, again.added, again.already) == (3000, 3000, 0)
    assert (await counts.read(editor.office.storage.tables, LIST)).verified == 3000


async def test_an_import_that_no_worker_has_begun_stops_at_once(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD)
    await editor.post(f"{path}/start")
    await editor.post(f"{path}/stop")
    assert (await job_of(editor, path)).status is JobStatus.STOPPED
    assert (await settled(editor, path)).rows == 0  # its item is only thrown away
    assert await editor.office.storage.queues.length(IMPORT_QUEUE) == 0
    await editor.post(f"{path}/start")
    assert (await settled(editor, path)).added == 2


async def test_a_worker_that_was_superseded_leaves_the_row_alone(
    editor: Worker, gate: Gate
) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    worker = import_worker(editor, GROUP)
    await worker.step()
    await gate.has_let_in.wait()
    await change(editor, path, run="another")
    gate.is_open.set()
    await worker.settled()
    job = await job_of(editor, path)
    assert (job.run, job.status, job.rows) == ("another", JobStatus.RUNNING, 0)


async def test_what_runs_is_neither_started_again_nor_discarded(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD)
    await change(editor, path, status=JobStatus.RUNNING, seen_at=NOW)
    for act in ("start", "discard"):
        answer = await editor.post(f"{path}/{act}")
        assert answer.status_code == 409
        assert "stop it first" in answer.text.lower()
    answer = await editor.post(f"{path}/columns", **CHOICE)
    assert answer.status_code == 409


async def test_nobody_is_added_by_a_file_that_was_not_checked(editor: Worker) -> None:
    path = await uploaded(editor, GOOD)
    answer = await editor.post(f"{path}/start")
    assert answer.status_code == 409
    assert "Choose the columns first" in answer.text
    assert (await editor.get(path)).headers["location"] == f"{path}/columns"


async def test_a_finished_import_is_finished(editor: Worker) -> None:
    job = await brought_in(editor, GOOD)
    answer = await editor.post(f"/admin/imports/{job.id}/start")
    assert answer.status_code == 409
    assert "This import is done" in answer.text
    assert (await editor.get(f"/admin/imports/{job.id}/columns")).status_code == 409


async def test_a_list_that_was_deleted_meanwhile_gets_nobody(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD)
    await lists.start_deleting(editor.office.storage.tables, LIST)
    await editor.post(f"{path}/start")
    job = await settled(editor, path)
    assert job.status is JobStatus.FAILED
    assert "There is no list contoso1" in job.mistake


async def test_a_file_that_was_deleted_by_hand_is_reported(editor: Worker) -> None:
    path, job = await looked_over(editor, GOOD)
    await editor.office.storage.blobs.delete(f"imports/{job.id}/file/00000")
    assert "Upload it again" in (await editor.get(f"{path}/columns")).text
    await editor.post(f"{path}/start")
    job = await settled(editor, path)
    assert job.status is JobStatus.FAILED
    assert "Upload it again" in job.mistake


async def test_only_two_run_at_once_and_the_third_waits_for_its_turn(
    editor: Worker, gate: Gate
) -> None:
    paths = [(await looked_over(editor, MANY, **ADDRESS_ALONE))[0] for _ in "abc"]
    answers = [await editor.post(f"{path}/start") for path in paths]
    assert [answer.status_code for answer in answers] == [303, 303, 303]
    worker = import_worker(editor)
    assert await worker.step()
    await gate.has_let_in.wait()
    assert not await worker.step()
    begun = [(await job_of(editor, path)).seen_at is not None for path in paths]
    assert sorted(begun) == [False, True, True]
    gate.is_open.set()
    await worker.settled()
    assert await worker.step()
    await worker.settled()
    found = [await job_of(editor, path) for path in paths]
    assert all(job.is_finished for job in found)
    assert sum(job.added for job in found) == 3000


async def test_a_worker_that_stops_records_its_group_and_another_one_continues(
    editor: Worker, gate: Gate
) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    worker = import_worker(editor, GROUP)
    await worker.step()
    await gate.has_let_in.wait()
    closing = asyncio.create_task(worker.close(60.0))
    await asyncio.sleep(0)
    gate.is_open.set()
    await closing
    job = await job_of(editor, path)
    assert (job.status, job.rows) == (JobStatus.RUNNING, GROUP)
    job = await settled(editor, path)
    assert job.is_finished
    assert (job.added, job.already) == (3000, 0)


async def test_discarding_removes_the_row_and_the_blobs(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD + "nobody,,\n")
    assert await kinds_kept(editor) == ["file", "report"]
    for _click in range(2):  # a second one finds it deleted, as was wanted
        answer = await editor.post(f"{path}/discard")
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/imports", "deleted")
    assert (await editor.get(path)).status_code == 404
    assert await kinds_kept(editor) == []


async def test_the_newest_import_stands_first(editor: Worker) -> None:
    first = await uploaded(editor, GOOD, "first.csv")
    job = await job_of(editor, first)
    newer = msgspec.structs.replace(job, id=jobs.new_id(NOW + timedelta(minutes=1)))
    await jobs.create(
        editor.office.storage.tables, msgspec.structs.replace(newer, file_name="second.csv")
    )
    page = (await editor.get("/admin/imports")).text
    assert page.index("second.csv") < page.index("first.csv")


async def test_a_viewer_may_only_view_imports(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD + "nobody,,\n")
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    for each in ("/admin/imports", path, f"{path}/live", f"{path}/report/export"):
        assert (await viewer.get(each)).status_code == 200
    assert "<form" not in (await viewer.get(f"{path}/live")).text
    for each in ("/admin/imports/new", f"{path}/columns"):
        assert (await viewer.get(each)).status_code == 403
    for act in ("columns", "start", "stop", "discard"):
        assert (await viewer.post(f"{path}/{act}")).status_code == 403
    assert (await upload(viewer, GOOD)).status_code == 403
    await viewer.browser.aclose()


@pytest.mark.parametrize("id_", ["x", "0" * 15 + "-" + "0" * 16, "%2e%2e", "ä"])
async def test_an_import_that_never_was_is_not_found(editor: Worker, id_: str) -> None:
    for path in ("", "/live", "/columns", "/report/export"):
        assert (await editor.get(f"/admin/imports/{id_}{path}")).status_code == 404


async def test_two_files_in_one_upload_are_refused(editor: Worker) -> None:
    two = [("file", ("a.csv", GOOD.encode())), ("file", ("b.csv", GOOD.encode()))]
    answer = await editor.browser.post(
        "/admin/imports/upload", data={"list": LIST}, files=two, headers=OWN_PAGE
    )
    assert answer.status_code == 422
    assert "Choose one file" in answer.text
    assert await kinds_kept(editor) == []
