"""Nothing typed is lost when it cannot be saved, whatever fails, and nothing secret comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from postroom.actions import manage_lists, sign_in
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.records import counts, lists, users
from postroom.storage.port import Conflict, Unavailable
from postroom.web import form_recovery, security
from postroom.web.security import RequestLimits
from tests.web.drafts import GOOD
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import NEW, stored
from tests.web.sent_forms import fields_of
from tests.web.signed_in import OWN_PAGE, PASSWORD, Worker, at_work, sign_in_as

PERSON = {"address": ADDRESS, "attributes": '\nfirst_name=<b>"Ada"</b>\nage=7\n', "verified": "yes"}
NEW_LIST = {"name": "news", "sender": "news@contoso.edu", "description": "What is <new>"}
TRY_AGAIN = "Try again"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


async def fail(*_: object, **__: object) -> None:
    raise Unavailable("no answer")


async def hang(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage does not say who it is; so nothing of the form was read."""
    monkeypatch.setattr(users, "find_session", fail)


def is_bare(page: str) -> bool:
    return TRY_AGAIN not in page and "<form" not in page


# --- What comes back ----------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [(subscribe, "add"), (users, "find_session")])
@pytest.mark.parametrize("how", [fail, hang])
async def test_everything_typed_is_shown_again_and_can_be_resubmitted(
    editor: Worker, monkeypatch: pytest.MonkeyPatch, broken: tuple[Any, str], how: Any
) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(*broken, how)
        failing.setattr(security, "ORDINARY", RequestLimits(answer_s=0.05))
        answer = await editor.post(NEW, **PERSON)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<b>" not in answer.text
    assert fields_of(answer.text, NEW) == PERSON
    assert (await editor.post(NEW, **fields_of(answer.text, NEW))).status_code == 303
    there = await stored(editor, ADDRESS)
    assert there
    assert there.attributes == {"first_name": '<b>"Ada"</b>', "age": "7"}


@pytest.mark.usefixtures("no_session")
async def test_a_message_form_is_shown_again_with_long_bodies_and_asks_for_its_file(
    editor: Worker,
) -> None:
    body = "\n" + "<p>line</p>\n" * 100_000
    parts = [f'name="{name}"\r\n\r\n{text}' for name, text in (GOOD | {"body": body}).items()]
    parts += ['name="html_file"; filename=""\r\n\r\n']  # as browsers say that there is none
    parts += ['name="text_file"; filename="a.txt"\r\n\r\nwords of the file']
    content = "".join(f"--b\r\nContent-Disposition: form-data; {part}\r\n" for part in parts)
    headers = OWN_PAGE | {"content-type": "multipart/form-data; boundary=b"}
    answer = await editor.browser.post(
        "/admin/messages/write", content=f"{content}--b--\r\n", headers=headers
    )
    assert answer.status_code == 503
    assert fields_of(answer.text) == GOOD | {"body": body, "text_file": ""}
    assert 'enctype="multipart/form-data"' in answer.text
    assert '<input class="form-control" type="file" id="text_file"' in answer.text
    assert 'id="html_file"' not in answer.text
    assert "words of the file" not in answer.text
    assert "are not kept" in answer.text


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("path", "typed", "secrets"),
    [
        ("/admin/sign-in", {"address": ADDRESS, "next": "/admin"}, {"password"}),
        ("/admin/account/password", {}, {"old_password", "new_password"}),
    ],
)
async def test_a_password_does_not_come_back_but_is_asked_for(
    editor: Worker,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    typed: dict[str, str],
    secrets: set[str],
) -> None:
    monkeypatch.setattr(sign_in, "check", fail)
    answer = await editor.post(path, **typed, **dict.fromkeys(secrets, PASSWORD))
    assert answer.status_code == 503
    assert PASSWORD not in answer.text
    assert fields_of(answer.text, path) == typed | dict.fromkeys(secrets, "")
    for name in secrets:
        assert f'type="password" id="{name}" name="{name}" required' in answer.text


# --- What does not ------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
     {"origin": "https://evil.contoso.edu"}, {}],
)  # fmt: skip
@pytest.mark.parametrize("how", [fail, hang])
async def test_a_form_of_another_site_is_not_given_back(
    editor: Worker, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], how: Any
) -> None:
    """Also if it fails before anybody has looked where it came from."""
    answers = [await editor.browser.post("/admin/lists/new", data=NEW_LIST, headers=headers)]
    monkeypatch.setattr("postroom.web.signed_in.check_network_and_origin", lambda _request: None)
    monkeypatch.setattr(users, "find_session", how)
    monkeypatch.setattr(security, "ORDINARY", RequestLimits(answer_s=0.05))
    answers += [await editor.browser.post("/admin/lists/new", data=NEW_LIST, headers=headers)]
    assert [answer.status_code for answer in answers] == [403, 503]
    for answer in answers:
        assert TRY_AGAIN not in answer.text
        assert NEW_LIST["sender"] not in answer.text


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("header", [("hx-request", "true"), ("sec-fetch-dest", "iframe")])
async def test_a_part_of_a_page_is_not_given_back(editor: Worker, header: tuple[str, str]) -> None:
    headers = OWN_PAGE | dict([header])
    answer = await editor.browser.post("/admin/messages/preview", data=GOOD, headers=headers)
    assert answer.status_code == 503
    assert is_bare(answer.text)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("limit", "value"), [("CHARS_MAX", 20), ("READ_BYTES_MAX", 20), ("READ_AT_ONCE_MAX", 0)]
)
async def test_there_is_a_limit_on_what_is_given_back(
    editor: Worker, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(form_recovery, limit, value)
    answer = await editor.post("/admin/lists/new", **NEW_LIST)
    assert answer.status_code == 503
    assert is_bare(answer.text)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("length", ["", "1e3", "9" * 5000])
async def test_what_does_not_say_how_long_it_is_is_not_read(editor: Worker, length: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"name=news"

    headers = OWN_PAGE | {"content-type": "application/x-www-form-urlencoded"}
    if length:
        headers["content-length"] = length
    answer = await editor.browser.post("/admin/lists/new", content=body(), headers=headers)
    assert answer.status_code == 503
    assert is_bare(answer.text)


@pytest.mark.usefixtures("no_session")
async def test_nobody_waits_for_ever_for_the_rest_of_a_form(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"name=news"
        await hang()

    monkeypatch.setattr(form_recovery, "READ_S_MAX", 0.01)
    headers = OWN_PAGE | {
        "content-type": "application/x-www-form-urlencoded",
        "content-length": "100",
    }
    answer = await editor.browser.post("/admin/lists/new", content=body(), headers=headers)
    assert answer.status_code == 503
    assert is_bare(answer.text)


async def test_a_form_that_came_only_in_part_is_not_given_back_as_if_it_were_whole(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"name=news&descr"
        await hang()

    monkeypatch.setattr(security, "ORDINARY", RequestLimits(answer_s=0.05))
    headers = OWN_PAGE | {
        "content-type": "application/x-www-form-urlencoded",
        "content-length": "100",
    }
    answer = await editor.browser.post("/admin/lists/new", content=body(), headers=headers)
    assert answer.status_code == 503
    assert is_bare(answer.text)


@pytest.mark.usefixtures("no_session")
async def test_a_form_that_is_damaged_is_not_given_back(editor: Worker) -> None:
    headers = OWN_PAGE | {"content-type": "multipart/form-data"}
    answer = await editor.browser.post("/admin/lists/new", content=b"damaged", headers=headers)
    assert answer.status_code == 503
    assert is_bare(answer.text)


# --- Signed out meanwhile -----------------------------------------------------------------------


async def test_who_was_signed_out_meanwhile_signs_in_and_continues(editor: Worker) -> None:
    tables = editor.office.storage.tables
    await sign_in.sign_out_everywhere(tables, editor.user, NOW + timedelta(seconds=1))
    answer = await editor.post("/admin/lists/new", **NEW_LIST)
    assert answer.status_code == 403
    assert 'href="/admin/sign-in" target="_blank"' in answer.text
    assert fields_of(answer.text) == NEW_LIST
    back = await sign_in_as(editor.office, Role.OWNER)
    async with back.browser:
        again = await back.post("/admin/lists/new", **fields_of(answer.text))
    assert again.status_code == 303


async def test_who_signed_out_in_another_tab_gets_the_form_back(editor: Worker) -> None:
    """Signing out takes the cookie away, and with it every sign of who wrote this."""
    await editor.post("/admin/sign-out")
    browser = editor.office.browser  # without a cookie
    typed = GOOD | {"body": "\n" + "<p>line</p>\n" * 1000}
    parts = {name: (None, text) for name, text in typed.items()}
    answer = await browser.post("/admin/messages/write", files=parts, headers=OWN_PAGE)
    assert answer.status_code == 403
    assert 'href="/admin/sign-in" target="_blank"' in answer.text
    assert fields_of(answer.text) == typed
    back = await sign_in_as(editor.office, Role.EDITOR)
    async with back.browser:
        again = await back.post("/admin/messages/write", **fields_of(answer.text))
    assert again.status_code == 303


async def test_who_typed_nothing_is_sent_to_the_door(editor: Worker) -> None:
    tables = editor.office.storage.tables
    await sign_in.sign_out_everywhere(tables, editor.user, NOW + timedelta(seconds=1))
    for answer in (
        await editor.post("/admin/sign-out"),
        await editor.post("/admin/messages/1/copy", once="a-token-of-the-form-0"),
    ):
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/admin/sign-in")


async def test_a_stranger_leaves_nothing_behind(editor: Worker) -> None:
    """What comes back is the answer alone: however much is sent, storage has none of it."""
    rows = editor.office.storage.tables
    before = repr(vars(rows))
    await editor.office.browser.post("/admin/lists/new", data=NEW_LIST, headers=OWN_PAGE)
    assert repr(vars(rows)) == before


# --- Somebody else was faster -------------------------------------------------------------------


async def lose(*_: object, **__: object) -> None:
    raise Conflict("changes too fast")


async def test_a_conflict_is_reported_as_one_with_what_was_typed(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = (await lists.read_with_etag(editor.office.storage.tables, LIST))[1]
    path, typed = f"/admin/lists/{LIST}/delete", {"typed": LIST, "etag": etag}
    with monkeypatch.context() as losing:
        losing.setattr(counts, "read", lose)
        losing.setattr(manage_lists, "delete", lose)
        answer = await editor.post(path, **typed)
    assert answer.status_code == 409
    assert "Somebody else changed this" in unescape(answer.text)
    assert fields_of(answer.text, path) == typed
    assert (await editor.post(path, **typed)).status_code == 303


async def test_a_subscriber_who_meets_a_conflict_may_try_again(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await editor.office.join(verified=True)
    monkeypatch.setattr(subscribe, "leave", lose)
    answer = await editor.office.browser.post(
        editor.office.leave_path(one.guid), data={"leave": "yes"}
    )
    assert answer.status_code == 503
    assert "admin.css" not in answer.text


# --- Somebody deleted it meanwhile --------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        (NEW, PERSON),
        (f"/admin/lists/{LIST}/edit", {"sender": "news@contoso.edu", "description": "New words"}),
    ],
)
async def test_what_was_typed_for_a_list_that_was_deleted_meanwhile_can_be_read(
    editor: Worker, path: str, typed: dict[str, str]
) -> None:
    """All of it, and without what forms carry for themselves."""
    sent = typed | {"etag": "an-old-etag", "once": "a-token-of-the-form-0"}
    await lists.start_deleting(editor.office.storage.tables, LIST)
    answer = await editor.post(path, **sent)
    assert answer.status_code == 404
    assert fields_of(answer.text, path) == sent
    shown = unescape(re.sub(r"<input type=.hidden.[^>]*>", "", answer.text))
    assert all(text in shown for text in typed.values())
    assert "an-old-etag" not in shown
    assert "a-token-of-the-form-0" not in shown


async def test_who_typed_nothing_for_what_is_gone_reads_only_that(editor: Worker) -> None:
    answer = await editor.post("/admin/messages/634852858215726983/pause")
    assert answer.status_code == 404
    assert is_bare(answer.text)
