"""Asking unconfirmed people from the admin pages: one, or all, with the number named first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.actions import ask_to_confirm
from postroom.domain.ask_job import AskJob
from postroom.domain.asking import ASK_ONCE_IN, ASKS_MAX
from postroom.domain.job_status import JobStatus
from postroom.domain.user import Role
from postroom.records import ask_jobs, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.web.admin.asking import AskRuns, runs_in
from tests.web.importing import at_work
from tests.web.office import LIST, NOW
from tests.web.people import join, leave, path_of, stored
from tests.web.signed_in import Worker, notice_in, sign_in_as

PAGE = f"/admin/subscribers/ask?list={LIST}"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker
        await runs_at(worker).stop_all()


def runs_at(worker: Worker) -> AskRuns:
    spoken = worker.browser._transport.app  # type: ignore[attr-defined]
    return runs_in(spoken._app._app)


async def items(worker: Worker) -> int:
    return await worker.office.storage.queues.length(SINGLE_MAIL_QUEUE)


async def asked_before(worker: Worker, name: str, times: int, hours: float) -> None:
    """Somebody who was asked so often, the last time so long ago."""
    one = await join(worker, f"{name}@contoso.edu", verified=False)
    found = await subscribers.find(worker.office.storage.tables, LIST, one.key)
    assert found
    at = NOW - timedelta(hours=hours)
    changed = msgspec.structs.replace(one, asked_at=at, asks=" ".join([at.isoformat()] * times))
    await subscribers.replace(worker.office.storage.tables, one, changed, found[1])


# --- All of them --------------------------------------------------------------------------------


async def test_the_list_and_its_subscribers_say_who_has_not_confirmed(editor: Worker) -> None:
    for page in (f"/admin/lists/{LIST}", f"/admin/subscribers?list={LIST}"):
        assert "not confirmed" not in (await editor.get(page)).text
    for name in ("ada", "bob"):
        await join(editor, f"{name}@contoso.edu", verified=False)
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    for page in (f"/admin/lists/{LIST}", f"/admin/subscribers?list={LIST}"):
        text = (await editor.get(page)).text
        assert "2 subscribers have not confirmed." in text
        assert f'href="{PAGE}"' in text
        async with viewer.browser:
            assert f'href="{PAGE}"' not in (await viewer.get(page)).text
        viewer = await sign_in_as(editor.office, Role.VIEWER)


async def test_the_page_names_the_exact_number_and_who_is_skipped(editor: Worker) -> None:
    for name in ("ada", "bob", "eve"):
        await join(editor, f"{name}@contoso.edu", verified=False)
    await join(editor, "fay@contoso.edu")
    await leave(editor, await join(editor, "gus@contoso.edu"))
    await asked_before(editor, "lately", 1, hours=23)
    await asked_before(editor, "often", ASKS_MAX, hours=25)
    text = (await editor.get(PAGE)).text
    assert "This sends a confirmation email to <strong>3 people</strong>." in text
    assert "1 was asked in the last 24 hours and is skipped." in text
    assert "1 was asked 3 times in the last 30 days and is skipped." in text
    assert "Send 3 confirmation emails" in text
    assert await items(editor) == 0  # nothing happens before somebody says so


async def test_everybody_is_asked_beside_the_pages_and_the_page_says_so(editor: Worker) -> None:
    for name in ("ada", "bob"):
        await join(editor, f"{name}@contoso.edu", verified=False)
    assert (await editor.post(PAGE)).headers["location"] == PAGE
    await runs_at(editor).settled()
    assert await items(editor) == 2
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert ada.asked_at == NOW
    text = (await editor.get(PAGE)).text
    assert "2 people were asked to confirm." in text
    assert "There is nobody to ask right now." in text
    assert (await editor.post(PAGE)).status_code == 303  # a second click
    await runs_at(editor).settled()
    assert await items(editor) == 2


async def test_with_nobody_unconfirmed_there_is_nothing_to_press(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu")
    text = (await editor.get(PAGE)).text
    assert "There is nobody to ask right now." in text
    assert f'action="{PAGE}"' not in text


async def test_a_run_in_another_process_is_shown_stopped_and_gone_on_with(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu", verified=False)
    tables = editor.office.storage.tables
    job, _etag = await ask_to_confirm.start(tables, LIST, by="bob", total=5, run="there", now=NOW)
    running = (await editor.get(PAGE)).text
    assert "0 of 5 people asked." in running
    assert 'hx-trigger="every 1s"' in running
    await editor.post(PAGE)  # while it runs, nothing else starts
    await runs_at(editor).settled()
    assert await items(editor) == 0
    await editor.post(PAGE, act="stop")
    assert "Stopping…" in (await editor.get(PAGE)).text
    await change(editor, job, status=JobStatus.STOPPED, asked=4)
    stopped = (await editor.get(PAGE)).text
    assert "Stopped after 4 people were asked" in stopped
    assert "Ask the others" in stopped
    await editor.post(PAGE)
    await runs_at(editor).settled()
    assert await items(editor) == 1


async def test_a_run_that_failed_says_why(editor: Worker) -> None:
    job, _etag = await ask_to_confirm.start(
        editor.office.storage.tables, LIST, by="bob", total=5, run="there", now=NOW
    )
    await change(editor, job, status=JobStatus.FAILED, mistake="Storage did not respond.", asked=1)
    text = (await editor.get(PAGE)).text
    assert "Failed after 1 person was asked" in text
    assert "Storage did not respond." in text


async def change(editor: Worker, job: AskJob, **fields: object) -> None:
    tables = editor.office.storage.tables
    found = await ask_jobs.find(tables, job.list_name)
    assert found
    await ask_jobs.put(tables, msgspec.structs.replace(found[0], **fields), found[1])


async def test_a_list_too_long_to_count_is_asked_all_the_same(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ada", "bob"):
        await join(editor, f"{name}@contoso.edu", verified=False)
    editor.office.storage.tables._page_rows = 1
    monkeypatch.setattr(ask_to_confirm, "COUNT_FOR", timedelta(0))
    text = (await editor.get(PAGE)).text
    assert "<strong>more than 1 people</strong>" in text
    await editor.post(PAGE)
    await runs_at(editor).settled()
    assert await items(editor) == 2


async def test_only_editors_ask_and_only_lists_that_are_there(editor: Worker) -> None:
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    async with viewer.browser:
        assert (await viewer.get(PAGE)).status_code == 403
        assert (await viewer.post(PAGE)).status_code == 403
    assert (await editor.get("/admin/subscribers/ask?list=nowhere")).status_code == 404
    assert (await editor.post("/admin/subscribers/ask?list=nowhere")).status_code == 404
    assert (await editor.get("/admin/subscribers/ask")).status_code == 404


# --- One of them --------------------------------------------------------------------------------


async def test_one_person_gets_a_confirmation_email(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu", verified=False)
    person = await path_of(editor, "ada@contoso.edu")
    assert "Send confirmation email" in (await editor.get(person)).text
    answer = await editor.post(f"{person}/ask")
    assert (answer.headers["location"], notice_in(answer)) == (person, "asked")
    text = (await editor.get(person)).text
    assert "asked to confirm" in text  # the consent record
    assert "They were asked in the last 24 hours. Ask again later." in text
    assert f'action="{person}/ask"' not in text
    assert (await editor.post(f"{person}/ask")).headers["location"] == person  # a second click
    assert await items(editor) == 1


async def test_who_has_confirmed_or_left_is_not_offered_an_email(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu")
    await leave(editor, await join(editor, "eve@contoso.edu"))
    for name in ("ada", "eve"):
        person = await path_of(editor, f"{name}@contoso.edu")
        assert f'action="{person}/ask"' not in (await editor.get(person)).text
        assert (await editor.post(f"{person}/ask")).headers["location"] == person
    assert await items(editor) == 0


async def test_after_a_day_they_can_be_asked_again(editor: Worker) -> None:
    await asked_before(editor, "ada", 1, hours=ASK_ONCE_IN / timedelta(hours=1))
    person = await path_of(editor, "ada@contoso.edu")
    assert f'action="{person}/ask"' in (await editor.get(person)).text
