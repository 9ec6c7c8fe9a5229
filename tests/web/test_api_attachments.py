"""/messages/{ref}/attachments: attached once, shown, read and removed."""

from __future__ import annotations

import base64

import pytest

from postroom.domain.attachment import ATTACHED_BYTES_MAX
from postroom.flow import schedule
from postroom.records import messages
from tests.web.program import Program, problem
from tests.web.test_api_messages import DRAFT

CONTENT = bytes(range(256))
FILE = {"name": "Übersicht.pdf", "content": base64.b64encode(CONTENT).decode()}


async def draft(program: Program) -> str:
    return f"/messages/{(await program.make('/messages', DRAFT))['ref']}"


async def test_a_file_is_attached_shown_read_and_removed(program: Program) -> None:
    path = await draft(program)
    response = await program.call("POST", f"{path}/attachments", FILE)
    assert response.status_code == 201, response.text
    made = response.json()
    assert (made["name"], made["media_type"], made["bytes"]) == (
        "Übersicht.pdf",
        "application/pdf",
        256,
    )
    shown = await program.get(f"{path}/attachments")
    assert shown == {"items": [made], "encoded_bytes": 354}
    assert (await program.get(path))["attachments"] == ["Übersicht.pdf"]
    where = response.headers["location"]
    assert where == f"/api/v1{path}/attachments/{made['id']}"
    download = await program.call("GET", where)
    assert download.content == CONTENT
    assert download.headers["content-disposition"].startswith("attachment")
    assert (await program.call("DELETE", where)).status_code == 204
    assert (await program.call("GET", where)).status_code == 404
    assert (await program.get(f"{path}/attachments"))["items"] == []


async def test_a_repeated_call_attaches_nothing_twice(program: Program) -> None:
    path = await draft(program)
    answers = [
        await program.call("POST", f"{path}/attachments", FILE, idempotency_key="one")
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len((await program.get(f"{path}/attachments"))["items"]) == 1


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"name": "setup.exe"}, "name", "Gmail and Outlook block"),
        ({"content": "not base64!"}, "content", "must be base64"),
        ({"content": ""}, "content", "at least 1 character"),
        ({"name": "a\nb.pdf"}, "name", "invisible characters"),
    ],
)
async def test_a_wrong_call_is_refused_with_its_field(
    program: Program, changes: dict[str, str], field: str, sentence: str
) -> None:
    path = await draft(program)
    response = await program.call("POST", f"{path}/attachments", FILE | changes)
    refused = problem(response, 422)
    assert refused["field"] == field
    assert sentence in refused["detail"]


async def test_the_largest_file_fits_into_a_call_and_a_second_does_not(program: Program) -> None:
    path = await draft(program)
    large = FILE | {"content": base64.b64encode(b"x" * ATTACHED_BYTES_MAX).decode()}
    assert (await program.call("POST", f"{path}/attachments", large)).status_code == 201
    refused = problem(await program.call("POST", f"{path}/attachments", FILE), 422)
    assert "may be at most 10 MiB" in refused["detail"]


async def test_once_it_has_begun_nothing_changes(program: Program) -> None:
    path = await draft(program)
    made = await program.make(f"{path}/attachments", FILE)
    await program.call("POST", f"{path}/schedule", {"at": "now"})
    message, etag = await messages.read_with_etag(program.storage.tables, path.rpartition("/")[2])
    await schedule.start(program.storage.tables, message, etag, program.clock.now())
    problem(await program.call("POST", f"{path}/attachments", FILE), 409)
    problem(await program.call("DELETE", f"{path}/attachments/{made['id']}"), 409)


async def test_another_version_is_not_changed(program: Program) -> None:
    path = await draft(program)
    made = await program.make(f"{path}/attachments", FILE)
    where = f"{path}/attachments/{made['id']}"
    problem(await program.call("DELETE", where, if_match='"old"'), 412)
    tag = await program.etag(f"{path}/attachments")
    assert (await program.call("DELETE", where, if_match=tag)).status_code == 204
