"""Imports at work: seen by everybody, stopped by anybody who may, gone on with after any death."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.import_job import KEPT, SILENT_AFTER, ImportJob, Status
from postroom.domain.subscriber import Subscriber
from postroom.domain.user import Role
from postroom.records import counts, imports, lists, subscribers
from postroom.storage.port import Tables, Unavailable
from postroom.web.admin import import_runs
from postroom.web.admin.import_runs import Run
from tests.web.importing import (
    CHOICE,
    GOOD,
    at_work,
    brought_in,
    change,
    files,
    job_of,
    looked_over,
    runs_at,
    settled,
    upload,
    uploaded,
)
from tests.web.office import LIST, NOW
from tests.web.signed_in import OWN_PAGE, Worker, notice_in, sign_in_as

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
    """A run that hears that it should stop opens it."""
    gate, stop = Gate(), Run.stop

    def stop_and_open(run: Run) -> None:
        stop(run)
        gate.is_open.set()

    monkeypatch.setattr(subscribers, "join_together", gate.join)
    monkeypatch.setattr(Run, "stop", stop_and_open)
    monkeypatch.setattr(import_runs, "PULSE_S", 0.01)
    return gate


async def test_an_import_is_stopped_and_goes_on_where_people_are_missing(
    editor: Worker, gate: Gate
) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    await gate.has_let_in.wait()
    running = await editor.get(path)
    assert "Bringing people in" in running.text
    assert f'hx-get="{path}/live"' in running.text
    assert (await editor.post(f"{path}/stop")).headers["location"] == path
    job = await settled(editor, path)
    assert job.status is Status.STOPPED
    assert 0 < job.rows < 3000
    assert "Go on" in (await editor.get(path)).text
    assert "hx-get" not in (await editor.get(f"{path}/live")).text
    await editor.post(f"{path}/start")
    again = await settled(editor, path)
    assert again.is_finished
    assert (again.rows, again.already) == (3000, job.added)
    assert (await counts.read(editor.office.storage.tables, LIST)).verified == 3000


async def test_a_stop_asked_in_another_process_is_heard(editor: Worker, gate: Gate) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    await change(editor, path, is_stop_asked=True)
    stopped = await settled(editor, path)
    assert (stopped.status, stopped.is_stop_asked) == (Status.STOPPED, True)
    assert stopped.rows < 3000


async def test_a_run_that_another_process_took_over_leaves_the_row_alone(
    editor: Worker, gate: Gate
) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    await change(editor, path, run="another")
    job = await settled(editor, path)
    assert (job.run, job.status) == ("another", Status.RUNNING)


async def silent(editor: Worker, content: str, seen_at: datetime) -> str:
    """An import whose process is gone."""
    path, job = await looked_over(editor, content)
    _, etag = await imports.read(editor.office.storage.tables, job.id)
    dead = msgspec.structs.replace(
        job, status=Status.RUNNING, is_rehearsal=False, run="dead", seen_at=seen_at
    )
    await imports.replace(editor.office.storage.tables, dead, etag)
    return path


async def test_a_run_whose_process_died_reads_as_stopped_and_goes_on(editor: Worker) -> None:
    path = await silent(editor, GOOD, NOW - SILENT_AFTER)
    page = (await editor.get(path)).text
    assert "Stopped" in page
    assert "hx-get" not in page
    assert "stopped" in (await editor.get("/admin/imports")).text
    assert (await editor.post(f"{path}/start")).status_code == 303
    job = await settled(editor, path)
    assert job.is_finished
    assert job.added == 2


async def test_what_runs_is_neither_started_again_nor_discarded(editor: Worker) -> None:
    path = await silent(editor, GOOD, NOW - SILENT_AFTER + timedelta(seconds=1))
    for act in ("start", "discard"):
        answer = await editor.post(f"{path}/{act}")
        assert answer.status_code == 409
        assert "stop it first" in answer.text
    answer = await editor.post(f"{path}/columns", **CHOICE)
    assert answer.status_code == 409


async def test_nobody_is_added_by_a_file_that_was_not_looked_over(editor: Worker) -> None:
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


async def test_storage_that_fails_leaves_a_sentence_and_a_way_on(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = await looked_over(editor, GOOD)

    async def fail(*_: object) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(subscribers, "join_together", fail)
        await editor.post(f"{path}/start")
        job = await settled(editor, path)
    assert job.status is Status.FAILED
    page = (await editor.get(path)).text
    assert "Storage did not answer" in page
    assert "Go on" in page
    await editor.post(f"{path}/start")
    assert (await settled(editor, path)).is_finished


async def test_a_list_that_was_deleted_meanwhile_gets_nobody(editor: Worker) -> None:
    path, _ = await looked_over(editor, GOOD)
    await lists.start_deleting(editor.office.storage.tables, LIST)
    await editor.post(f"{path}/start")
    job = await settled(editor, path)
    assert job.status is Status.FAILED
    assert "There is no list contoso1" in job.mistake


async def test_a_file_on_another_machine_is_named(editor: Worker, tmp_path: Path) -> None:
    path, job = await looked_over(editor, GOOD)
    (tmp_path / "imports" / f"{job.id}.csv").unlink()
    answer = await editor.post(f"{path}/start")
    assert answer.status_code == 409
    assert f"on {job.machine}" in answer.text


async def test_only_two_run_at_once(editor: Worker, gate: Gate) -> None:
    paths = [(await looked_over(editor, MANY, **ADDRESS_ALONE))[0] for _ in "abc"]
    answers = [await editor.post(f"{path}/start") for path in paths]
    assert [answer.status_code for answer in answers] == [303, 303, 409]
    assert "Two imports are running" in answers[2].text
    gate.is_open.set()
    await runs_at(editor).settled()
    assert (await editor.post(f"{paths[2]}/start")).status_code == 303
    assert (await settled(editor, paths[2])).already == 3000


async def test_when_the_server_stops_imports_stop_and_say_so(editor: Worker, gate: Gate) -> None:
    path, _ = await looked_over(editor, MANY, **ADDRESS_ALONE)
    await editor.post(f"{path}/start")
    await runs_at(editor).stop_all()
    assert (await job_of(editor, path)).status is Status.STOPPED


async def test_discarding_removes_the_row_and_the_files(editor: Worker, tmp_path: Path) -> None:
    path, _ = await looked_over(editor, GOOD)
    for _click in range(2):  # a second one finds it gone, as was wanted
        answer = await editor.post(f"{path}/discard")
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/imports", "deleted")
    assert (await editor.get(path)).status_code == 404
    assert files(tmp_path) == []


async def test_what_is_past_its_age_goes_with_the_next_upload(
    editor: Worker, tmp_path: Path
) -> None:
    tables = editor.office.storage.tables
    old_at = NOW - KEPT - timedelta(days=1)
    old = ImportJob(
        id=imports.new_id(old_at),
        list_name=LIST,
        file_name="old.csv",
        size=1,
        machine="x",
        user="x",
        created_at=old_at,
    )
    await imports.create(tables, old)
    (tmp_path / "imports").mkdir(exist_ok=True)
    for suffix in (".csv", ".report", ".part"):
        left = tmp_path / "imports" / f"{old.id}{suffix}"
        left.touch()
        os.utime(left, (old_at.timestamp(), old_at.timestamp()))
    path = await uploaded(editor, GOOD)
    assert files(tmp_path) == [".csv"]
    assert [job.id for job in await imports.newest(tables, limit=9)] == [path.rpartition("/")[2]]


async def test_the_newest_import_stands_first(editor: Worker) -> None:
    first = await uploaded(editor, GOOD, "first.csv")
    job = await job_of(editor, first)
    newer = msgspec.structs.replace(job, id=imports.new_id(NOW + timedelta(minutes=1)))
    await imports.create(
        editor.office.storage.tables, msgspec.structs.replace(newer, file_name="second.csv")
    )
    page = (await editor.get("/admin/imports")).text
    assert page.index("second.csv") < page.index("first.csv")


async def test_a_viewer_may_look_at_imports_and_no_more(editor: Worker) -> None:
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


async def test_imports_started_at_the_same_moment_are_counted_too(
    editor: Worker, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [(await looked_over(editor, MANY, **ADDRESS_ALONE))[0] for _ in range(4)]
    replace = imports.replace

    async def slow(tables: Tables, job: ImportJob, etag: str) -> str:
        for _ in range(10):
            await asyncio.sleep(0)  # the others get their turn
        return await replace(tables, job, etag)

    monkeypatch.setattr(imports, "replace", slow)
    answers = await asyncio.gather(*(editor.post(f"{path}/start") for path in paths))
    assert sorted(answer.status_code for answer in answers) == [303, 303, 409, 409]
    gate.is_open.set()
    await runs_at(editor).settled()
    later = next(p for p, answer in zip(paths, answers, strict=True) if answer.status_code == 409)
    assert (await editor.post(f"{later}/start")).status_code == 303  # the places were given back
    await runs_at(editor).settled()


async def test_two_files_in_one_upload_are_refused(editor: Worker, tmp_path: Path) -> None:
    two = [("file", ("a.csv", GOOD.encode())), ("file", ("b.csv", GOOD.encode()))]
    answer = await editor.browser.post(
        "/admin/imports/upload", data={"list": LIST}, files=two, headers=OWN_PAGE
    )
    assert answer.status_code == 422
    assert "Choose one file" in answer.text
    assert files(tmp_path) == []
