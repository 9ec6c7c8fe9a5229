"""Drafts save themselves: nothing of anybody else's is overwritten, and nothing is sent by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from postroom.domain.message import Status
from postroom.domain.user import Role
from postroom.flow import compose
from postroom.records import messages
from postroom.storage.port import Unavailable
from tests.acting import acting
from tests.web.drafts import GOOD, etag_of, said_by, stored, written
from tests.web.office import NOW
from tests.web.signed_in import OWN_PAGE, Worker, at_work

ONCE = {"once": "a-token-of-this-form-0"}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def autosave(editor: Worker, path: str = "/admin/messages", **changes: str) -> dict[str, Any]:
    answer = await editor.post(f"{path}/autosave", **GOOD | changes)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def every_subject(editor: Worker) -> list[str]:
    found = messages.every_message(editor.office.storage.tables)
    return sorted([one.subject async for one in found])


async def test_a_new_message_becomes_a_draft_and_saves_itself_from_then_on(editor: Worker) -> None:
    first = await autosave(editor, **ONCE)
    assert first["state"] == "saved"
    path = f"/admin/messages/{first['ref']}"
    told = await autosave(editor, path, etag=first["etag"], body="<p>More</p>")
    assert told["state"] == "saved"
    assert await said_by(editor, path) == ("<p>More</p>", None)
    by_hand = GOOD | {"body": "<p>The end</p>", "etag": told["etag"]}
    assert (await editor.post(f"{path}/write", **by_hand)).status_code == 303
    assert await every_subject(editor) == [GOOD["subject"]]


@pytest.mark.parametrize("then", ["the same", "other words"])
async def test_a_first_save_whose_answer_is_lost_makes_no_second_draft(
    editor: Worker, then: str
) -> None:
    lost = await autosave(editor, **ONCE)
    changes = {"subject": "Later words"} if then == "other words" else {}
    again = await autosave(editor, **ONCE, **changes)
    assert (again["state"], again["ref"]) == ("saved", lost["ref"])
    assert await every_subject(editor) == [changes.get("subject", GOOD["subject"])]


async def test_a_first_save_that_died_half_way_is_finished_by_the_next(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as failing:
        failing.setattr("postroom.records.bodies.put", fail)
        answer = await editor.post("/admin/messages/autosave", **GOOD | ONCE)
        assert answer.status_code == 503
    told = await autosave(editor, **ONCE, subject="Later words")
    assert told["state"] == "saved"
    assert await every_subject(editor) == ["Later words"]
    assert await said_by(editor, f"/admin/messages/{told['ref']}") == (GOOD["body"], None)


async def test_what_somebody_else_wrote_meanwhile_stays(editor: Worker) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    theirs = GOOD | {"body": "<p>Theirs</p>", "etag": etag}
    assert (await editor.post(f"{path}/write", **theirs)).status_code == 303
    told = await autosave(editor, path, etag=etag, body="<p>Mine</p>")
    assert told["state"] == "stopped"
    assert "somebody else changed this message" in told["words"]
    assert await said_by(editor, path) == ("<p>Theirs</p>", None)


async def test_a_save_whose_answer_was_lost_is_no_conflict(editor: Worker) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    for _sending in range(2):
        told = await autosave(editor, path, etag=etag, body="<p>Mine</p>")
        assert told["state"] == "saved"
    assert (await autosave(editor, path, etag=told["etag"]))["state"] == "saved"


async def test_what_is_scheduled_does_not_save_itself(editor: Worker) -> None:
    path = await written(editor)
    ref = path.rpartition("/")[2]
    tables = editor.office.storage.tables
    await compose.give_time(acting(tables, NOW), ref, NOW.replace(year=2120))
    page = (await editor.get(f"{path}/write")).text
    assert "data-autosave" not in page
    assert "Autosave is off" in page
    told = await autosave(editor, path, etag=etag_of(page), body="<p>Half a sen</p>")
    assert told["state"] == "stopped"
    assert await said_by(editor, path) == (GOOD["body"], None)
    assert (await stored(editor, path)).status is Status.PENDING


async def test_autosave_does_not_restore_a_deleted_draft(editor: Worker) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    await compose.discard(editor.office.storage, path.rpartition("/")[2])
    for where in (path, "/admin/messages/nothing", f"/admin/messages/{'0' * 40}"):
        told = await autosave(editor, where, etag=etag)
        assert told["state"] == "stopped"
        assert "deleted" in told["words"]
    assert await every_subject(editor) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"subject": ""}, "The subject is empty"),
        ({"body": ""}, "no body"),
        ({"body": "Dear {{ na"}, "never closed"),
        ({"list": "elsewhere"}, "no list"),
    ],
)
async def test_what_is_not_finished_yet_is_reported_and_changes_nothing(
    editor: Worker, changes: dict[str, str], sentence: str
) -> None:
    told = await autosave(editor, **ONCE, **changes)
    assert told["state"] == "refused"
    assert sentence in told["words"]
    assert await every_subject(editor) == []
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    told = await autosave(editor, path, etag=etag, **changes)
    assert told["state"] == "refused"
    assert await said_by(editor, path) == (GOOD["body"], None)


async def test_who_is_signed_out_is_told_so_and_nothing_is_stored(editor: Worker) -> None:
    headers = OWN_PAGE | {"hx-request": "true"}
    stranger = editor.office.browser
    answer = await stranger.post("/admin/messages/autosave", data=GOOD | ONCE, headers=headers)
    assert answer.status_code == 401
    assert await every_subject(editor) == []


async def test_two_versions_beside_each_other_wait_for_a_person(editor: Worker) -> None:
    """The form then has the newest etag: saved by itself, it would overwrite the other version."""
    path = await written(editor)
    answer = await editor.post(f"{path}/write", **GOOD | {"subject": "Mine", "etag": "old"})
    assert answer.status_code == 409
    assert "data-autosave" not in answer.text
