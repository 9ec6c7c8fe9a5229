"""Forms: whatever is sent is read or refused, and nothing typed is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote_to_bytes

import httpx2
import hypothesis
import pytest
import pytest_asyncio
from hypothesis import strategies as st

from postroom.actions import manage_lists
from postroom.actions.manage_lists import ListChanges
from postroom.records import lists, subscribers
from postroom.storage.port import Unavailable
from postroom.web.context import client_of
from postroom.web.forms import SLICE_BYTES, Form, unescaped
from tests.acting import acting
from tests.web.drafts import GOOD, etag_of, said_by, stored, written
from tests.web.office import LIST, NOW
from tests.web.people import join, path_of
from tests.web.signed_in import OWN_PAGE, Worker, at_work, notice_in
from tests.web.test_admin_door import request_from

NEW_LIST = {"name": "news", "sender": "news@contoso.edu", "description": "What is new"}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


def part(name: str, value: bytes) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (
        name.encode(),
        value,
    )


async def send(
    editor: Worker, path: str, fields: dict[str, bytes], kind: str = "boundary=b"
) -> httpx2.Response:
    body = b"".join(part(name, value) for name, value in fields.items()) + b"--b--\r\n"
    headers = OWN_PAGE | {"content-type": f"multipart/form-data; {kind}"}
    return await editor.browser.post(path, content=body, headers=headers)


# --- What is read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "charset", ["undefined", "utf-7", "unicode_escape", "utf-16", "rot13", '"a\0b"', "hex", ""]
)
@pytest.mark.parametrize("path", ["/admin/lists/new", "/admin/messages/write", f"/s/{LIST}"])
async def test_no_charset_that_a_stranger_names_breaks_a_form(
    editor: Worker, path: str, charset: str
) -> None:
    await open_to_all(editor)
    kind = f"boundary=b; charset={charset}"
    fields = {"name": b"\\ud800+2AA-\xc3\xa9", "subject": b"\\ud800", "email": b"+2AA-\xe9"}
    assert (await send(editor, path, fields, kind)).status_code == 422


@pytest.mark.parametrize("path", ["imports/upload", "messages/import", "suppression/import"])
async def test_an_upload_of_countless_parts_is_refused_at_its_beginning(
    editor: Worker, path: str
) -> None:
    """A gigabyte of them would take minutes."""
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _piece in range(100):
            read += 1
            yield part("name", b"") * 100

    headers = OWN_PAGE | {"content-type": "multipart/form-data; boundary=b"}
    answer = await editor.browser.post(f"/admin/{path}", content=body(), headers=headers)
    assert answer.status_code == 422
    assert "The form was damaged" in unescape(answer.text)
    assert read < 5


async def test_fields_are_utf_8_whatever_charset_the_request_names(editor: Worker) -> None:
    fields = {name: value.encode() for name, value in NEW_LIST.items()}
    fields["description"] = "Café".encode()
    answer = await send(editor, "/admin/lists/new", fields, "charset=utf-16; boundary=b")
    assert answer.status_code == 303
    assert (await lists.read(editor.office.storage.tables, "news")).description == "Café"


async def open_to_all(editor: Worker) -> None:
    tables = editor.office.storage.tables
    wording = ListChanges(public_form=True)
    await manage_lists.edit(
        acting(tables, NOW), LIST, wording, (await lists.read_with_etag(tables, LIST))[1]
    )


@pytest.mark.parametrize("boundary", ["", 'boundary=""', "boundary=a\x01b", f"boundary={'x' * 71}"])
async def test_a_boundary_that_is_none_is_refused(editor: Worker, boundary: str) -> None:
    answer = await send(editor, "/admin/lists/new", {"name": b"news"}, boundary)
    assert answer.status_code == 400
    assert "use its buttons" in answer.text


@pytest.mark.parametrize(
    "fields",
    [{f"n{at}": b"x" for at in range(101)}, {"name": b"x" * (64 * 1024 + 1)}],
    ids=["many", "long"],
)
async def test_more_or_longer_fields_than_any_form_has_are_refused(
    editor: Worker, fields: dict[str, bytes]
) -> None:
    assert (await send(editor, "/admin/lists/new", fields)).status_code in (400, 413)


async def test_a_long_field_is_taken_where_a_message_is_written_alone(editor: Worker) -> None:
    fields = GOOD | {"body": "<p>" + "line\r\n" * 200_000}
    parts = {name: (None, text) for name, text in fields.items()}
    answer = await editor.browser.post("/admin/messages/write", files=parts, headers=OWN_PAGE)
    path = answer.headers["location"].partition("?")[0]
    assert await said_by(editor, path) == ("<p>" + "line\n" * 200_000, None)


# --- Two at once ------------------------------------------------------------------------------


@hypothesis.given(
    st.text(alphabet="%4e1+ é&=\ud7ff\U0001f600", max_size=60),
    st.integers(min_value=3, max_value=9),
)
def test_what_is_unescaped_in_slices_is_what_is_unescaped_at_once(text: str, size: int) -> None:
    for sent in (text.encode(), quote_plus(text).encode()):
        at_once = unquote_to_bytes(sent.replace(b"+", b" ")).decode("utf-8", "replace")
        assert asyncio.run(unescaped(sent, size)) == at_once


async def test_others_have_their_turn_while_a_long_form_is_read() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    assert await unescaped(b"%41" * 100_000) == "A" * 100_000
    others.cancel()
    assert turns >= 300_000 // SLICE_BYTES


async def test_a_form_of_nothing_but_ends_of_fields_is_refused_before_it_is_read(
    editor: Worker,
) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1000
            yield b"&" * 1000

    headers = OWN_PAGE | {"content-type": "application/x-www-form-urlencoded"}
    answer = await editor.browser.post("/admin/messages/write", content=body(), headers=headers)
    assert answer.status_code == 400
    assert sent <= 2000


async def test_a_conflict_shows_no_difference_in_line_ends(editor: Worker) -> None:
    one = await join(editor, "ada@contoso.edu", a="1", b="2")
    path = await path_of(editor, one.address)
    fields = {"address": one.address, "list": LIST, "etag": "stale"}
    answer = await editor.post(f"{path}/edit", **fields, attributes="a=1\r\nb=2")
    assert answer.status_code == 409
    assert "verified-other" in answer.text
    assert "attributes-other" not in answer.text


@pytest.mark.parametrize("word", ["as it is", " with blanks "])
async def test_saving_the_same_again_is_saved(editor: Worker, word: str) -> None:
    page = f"/admin/lists/{LIST}/edit"
    fields = {"sender": "a@contoso.edu", "description": word}
    fields["etag"] = etag_of((await editor.get(page)).text)
    for _click in range(2):
        answer = await editor.post(page, **fields)
        assert (answer.headers["location"], notice_in(answer)) == (f"/admin/lists/{LIST}", "saved")


async def test_saving_the_same_message_again_is_saved(editor: Worker) -> None:
    path = await written(editor)
    again = GOOD | {"subject": "Again", "etag": etag_of((await editor.get(f"{path}/write")).text)}
    for _click in range(2):
        answer = await editor.post(f"{path}/write", **again)
        assert (answer.headers["location"], notice_in(answer)) == (path, "saved")
    assert (await stored(editor, path)).subject == "Again"


async def test_saving_the_same_person_again_is_saved(editor: Worker) -> None:
    one = await join(editor, "ada@contoso.edu")
    path = await path_of(editor, one.address)
    etag = etag_of((await editor.get(f"{path}/edit")).text)
    fields = {"address": one.address, "list": LIST, "attributes": "a=1", "etag": etag}
    for _click in range(2):
        answer = await editor.post(f"{path}/edit", **fields)
        assert (answer.headers["location"], notice_in(answer)) == (path, "saved")
    found = await subscribers.find(editor.office.storage.tables, LIST, one.key)
    assert found
    assert found[0].attributes == {"a": "1"}


def test_a_form_never_says_a_bare_word() -> None:
    form = Form({"a": "1", "etag": "old"})
    assert not form.show_others({"a": "1"}, "new")
    assert (form.mistake, form.value("etag")) == ("", "old")
    assert form.show_others({"a": "2"}, "newer")
    assert (form.mistake, form.value("etag"), form.others) == ("", "newer", {"a": "2"})


# --- When storage fails -----------------------------------------------------------------------


def break_writing(editor: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are still read."""

    async def fail(*_: Any, **__: Any) -> None:
        raise Unavailable("no answer")

    for name in ("insert", "upsert", "replace", "batch", "scan"):
        monkeypatch.setattr(editor.office.storage.tables, name, fail)


def all_is_there(answer: httpx2.Response, fields: dict[str, str]) -> None:
    assert answer.status_code == 503
    assert "Storage is not responding" in answer.text
    assert 'role="alert"' in answer.text
    for typed in fields.values():
        assert typed in unescape(answer.text)


async def test_the_form_of_a_new_list_that_cannot_be_stored_is_shown_again_complete(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_writing(editor, monkeypatch)
    all_is_there(await editor.post("/admin/lists/new", **NEW_LIST), NEW_LIST)


async def test_the_form_of_a_list_that_cannot_be_stored_is_shown_again_complete(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = f"/admin/lists/{LIST}/edit"
    fields = {"sender": "new@contoso.edu", "description": "New words"}
    fields["etag"] = etag_of((await editor.get(page)).text)
    break_writing(editor, monkeypatch)
    all_is_there(await editor.post(page, **fields), fields)
    monkeypatch.undo()
    assert (await editor.post(page, **fields)).status_code == 303


async def test_the_form_of_a_new_message_that_cannot_be_stored_is_shown_again_complete(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_writing(editor, monkeypatch)
    all_is_there(await editor.post("/admin/messages/write", **GOOD), GOOD)


async def test_the_form_of_a_message_that_cannot_be_stored_is_shown_again_complete(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await written(editor)
    fields = GOOD | {"body": "<p>New words</p>"}
    fields["etag"] = etag_of((await editor.get(f"{path}/write")).text)
    break_writing(editor, monkeypatch)
    answer = await editor.post(f"{path}/write", **fields)
    all_is_there(answer, fields)
    assert f'action="{path}/write"' in answer.text
    monkeypatch.undo()
    assert (await editor.post(f"{path}/write", **fields)).status_code == 303
    assert await said_by(editor, path) == ("<p>New words</p>", None)


# --- Where a mistake stands, and who calls ----------------------------------------------------


async def test_a_merge_field_that_is_wrong_in_the_subject_is_shown_there(editor: Worker) -> None:
    answer = await editor.post("/admin/messages/write", **GOOD | {"subject": "Dear {{ name"})
    assert answer.status_code == 422
    assert 'id="subject-mistake"' in answer.text
    assert 'id="body-mistake"' not in answer.text


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("203.0.113.9:1, 10.0.0.2:2", "203.0.113.9"),
        ("203.0.113.9, unknown", "10.0.0.1"),
        ("203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"),
        ("[rubbish]:1", "10.0.0.1"),
        ("203.0.113.999:1", "10.0.0.1"),
    ],
)
def test_a_proxy_may_write_the_port_and_stands_for_what_it_cannot_tell(
    forwarded: str, client: str
) -> None:
    assert client_of(request_from("10.0.0.1", [forwarded])) == client
