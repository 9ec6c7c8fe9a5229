"""Messages on the admin pages: written, checked, listed; nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.message import OnDoubt, Status
from postroom.domain.user import Role
from postroom.domain.work_item import parse_trial_item
from postroom.flow import compose
from postroom.records import bodies, messages
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.writing.ready_made import READY_MADE
from tests.web.drafts import GOOD, etag_of, fields_in, said_by, stored, written
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import SECOND, join, second_list
from tests.web.signed_in import OWN_PAGE, Worker, at_work, notice_in


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


# --- Writing ----------------------------------------------------------------------------------


async def test_a_message_is_written_and_shown(editor: Worker) -> None:
    path = await written(editor, on_doubt="hold")
    message = await stored(editor, path)
    assert message.status is Status.DRAFT
    assert message.on_doubt is OnDoubt.HOLD
    assert await said_by(editor, path) == ("<p>Dear {{ name }}</p>", None)
    assert "New lectures" in (await editor.get(path)).text
    assert "New lectures" in (await editor.get("/admin/messages")).text


async def test_markdown_becomes_html_and_can_be_edited_again(editor: Worker) -> None:
    source = "# Hello {{ name }}\n\n[Leave]({{ unsubscribe_url }})"
    path = await written(editor, kind="markdown", body=source)
    html, text = await said_by(editor, path)
    assert html
    assert "<h1>Hello {{ name }}</h1>" in html
    assert 'href="{{ unsubscribe_url }}"' in html
    assert text is None
    page = (await editor.get(f"{path}/write")).text
    assert "# Hello {{ name }}" in page
    etag = etag_of(page)
    again = {"kind": "html", "body": "<p>HTML now</p>", "etag": etag}
    assert (await editor.post(f"{path}/write", **GOOD | again)).status_code == 303
    assert "<p>HTML now</p>" in unescape((await editor.get(f"{path}/write")).text)
    blobs = editor.office.storage.blobs
    assert await bodies.load_source(blobs, await stored(editor, path)) is None


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("subject", " ", "The subject is empty"),
        ("subject", "x" * 501, "longer than"),
        ("list", "elsewhere", "There is no list"),
        ("list", "", "Choose a list"),
        ("body", " ", "no body"),
        ("body", "Dear {{ name", "never closed"),
        ("body", '<p onclick="{{ name }}">', "name"),
    ],
)
async def test_wrong_input_gets_a_sentence_and_loses_nothing(
    editor: Worker, field: str, value: str, sentence: str
) -> None:
    answer = await editor.post("/admin/messages/write", **GOOD | {field: value})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert sentence in unescape(answer.text)
    for kept in (GOOD | {field: value}).values():
        assert kept in unescape(answer.text)


async def test_files_take_the_place_of_what_was_typed(editor: Worker) -> None:
    files = {
        "html_file": ("body.htm", b"\xef\xbb\xbf<p>From a file</p>", "text/html"),
        "text_file": ("body.txt", b"From a file", "text/plain"),
    }
    answer = await editor.browser.post(
        "/admin/messages/write", data=GOOD, files=files, headers=OWN_PAGE
    )
    path = answer.headers["location"].partition("?")[0]
    assert await said_by(editor, path) == ("<p>From a file</p>", "From a file")


async def test_an_upload_left_empty_keeps_the_stored_body(editor: Worker) -> None:
    path = await written(editor)
    form = (await editor.get(f"{path}/write")).text
    fields = GOOD | {"subject": "Another", "etag": etag_of(form)}
    empty = {"html_file": ("", b"", "application/octet-stream")}
    answer = await editor.browser.post(f"{path}/write", data=fields, files=empty, headers=OWN_PAGE)
    assert answer.status_code == 303
    assert (await stored(editor, path)).subject == "Another"
    assert await said_by(editor, path) == (GOOD["body"], None)


async def test_a_file_that_is_not_utf_8_is_refused_with_a_sentence(editor: Worker) -> None:
    files = {"html_file": ("body.htm", b"<p>caf\xe9</p>", "text/html")}
    answer = await editor.browser.post(
        "/admin/messages/write", data=GOOD, files=files, headers=OWN_PAGE
    )
    assert answer.status_code == 422
    assert "not in UTF-8" in answer.text


async def test_of_two_who_edit_one_message_the_second_sees_both_versions(editor: Worker) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    theirs = {"subject": "Their words", "etag": etag}
    assert (await editor.post(f"{path}/write", **GOOD | theirs)).status_code == 303
    mine = GOOD | {"subject": "My words", "body": "<p>Mine</p>", "etag": etag}
    answer = await editor.post(f"{path}/write", **mine)
    assert answer.status_code == 409
    for words in ("Their words", "My words", "<p>Mine</p>", "<p>Dear {{ name }}</p>"):
        assert words in unescape(answer.text)
    assert (await stored(editor, path)).subject == "Their words"
    mine["etag"] = etag_of(answer.text)
    assert (await editor.post(f"{path}/write", **mine)).status_code == 303
    assert (await stored(editor, path)).subject == "My words"


async def test_words_for_a_message_deleted_meanwhile_are_not_lost(editor: Worker) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/write")).text)
    await compose.discard(editor.office.storage, path.rpartition("/")[2])
    answer = await editor.post(f"{path}/write", **GOOD | {"etag": etag, "subject": "Mine"})
    assert answer.status_code == 409
    assert "Saving creates a new one" in answer.text
    assert 'action="/admin/messages/write"' in answer.text
    assert "Mine" in answer.text


@pytest.mark.parametrize("template", READY_MADE)
@pytest.mark.parametrize("host", ["example.org", "contoso.edu"])
async def test_every_ready_made_template_needs_nothing_but_own_links(
    editor: Worker, template: str, host: str
) -> None:
    page = (await editor.get("/admin/messages/new", template=template)).text
    await editor.office.join(verified=True)
    fields = fields_in(page.replace("example.org", host), subject="New lectures")
    answer = await editor.post("/admin/messages/write", **fields)
    assert answer.status_code == 303, answer.text
    checked = unescape((await editor.get(answer.headers["location"])).text)
    assert "Fix it<" not in checked
    samples = checked.count("still has sample links")
    assert checked.count("Show me<") == samples
    assert bool(samples) is (host == "example.org")


async def test_a_copy_is_a_new_draft_with_the_same_words(editor: Worker) -> None:
    path = await written(editor, kind="markdown", body="Some *words*")
    answer = await editor.post(f"{path}/copy")
    copy = answer.headers["location"].removesuffix("/write")
    assert answer.headers["location"] == f"{copy}/write"  # straight into the editor
    assert copy != path
    assert (await stored(editor, copy)).subject == "Copy of New lectures"
    assert "This is a copy." in (await editor.get(f"{copy}/write")).text
    assert await said_by(editor, copy) == await said_by(editor, path)
    assert "Some *words*" in (await editor.get(f"{copy}/write")).text


async def test_a_message_is_deleted_with_its_bodies_and_only_as_it_was_seen(
    editor: Worker,
) -> None:
    path = await written(editor, kind="markdown", body="Some *words*")
    asked = (await editor.get(f"{path}/delete")).text
    assert (await editor.post(f"{path}/delete", etag="stale")).status_code == 409
    answer = await editor.post(f"{path}/delete", etag=etag_of(asked))
    assert (answer.headers["location"], notice_in(answer)) == ("/admin/messages", "deleted")
    assert (await editor.get(path)).status_code == 404
    names, _ = await editor.office.storage.blobs.list()
    assert names == []


async def test_a_second_click_on_delete_finds_the_message_gone_as_was_wanted(
    editor: Worker,
) -> None:
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/delete")).text)
    for _click in range(2):
        answer = await editor.post(f"{path}/delete", etag=etag)
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/messages", "deleted")


# --- Checking ---------------------------------------------------------------------------------


async def test_a_preview_is_what_a_person_would_get(editor: Worker) -> None:
    await editor.office.join(verified=True)
    typed = GOOD | {"body": "<p>Dear {{ email }}</p>", "as": ADDRESS}
    frame = await editor.post("/admin/messages/mail/preview", **typed)
    assert f"<p>Dear {ADDRESS}</p>" in frame.text
    assert "Unsubscribe" in frame.text
    assert "sandbox" in frame.headers["content-security-policy"]
    assert "allow-scripts" not in frame.headers["content-security-policy"]
    assert "allow-same-origin" not in frame.headers["content-security-policy"]
    checks = await editor.post("/admin/messages/preview", **typed)
    assert f"Dear {ADDRESS}" in checks.text


async def test_a_saved_message_is_shown_as_a_chosen_person_would_get_it(editor: Worker) -> None:
    await editor.office.join(verified=True)
    path = await written(editor, body="<p>Dear {{ email }}</p>")
    frame = await editor.get(f"{path}/mail", **{"as": ADDRESS})
    assert f"<p>Dear {ADDRESS}</p>" in frame.text
    nobody = await editor.get(path, **{"as": "nobody@contoso.edu"})
    assert 'id="as-mistake">nobody@contoso.edu is not on this list' in nobody.text


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("<p>{{ nmae }}</p>", "No subscriber of the list has {{ nmae }}"),
        ('<a href="http://contoso.edu">x</a>', "links do not use https"),
        ('<a href="/here">x</a>', "Relative links, which do not work in emails: /here"),
        ('<a href="#">x</a>', "Links without a target: 1"),
        ('<img src="https://contoso.edu/a.png">', "has no alt text"),
        (f"<p>{'words ' * 20_000}</p>", "Gmail clips"),
    ],
)
async def test_problems_of_an_email_are_shown_before_it_is_sent(
    editor: Worker, body: str, warning: str
) -> None:
    await editor.office.join(verified=True)
    checks = await editor.post("/admin/messages/preview", **GOOD | {"body": body})
    assert warning in unescape(checks.text)


async def test_a_good_email_has_no_warnings(editor: Worker) -> None:
    await editor.office.join(verified=True)
    body = '<p>Dear {{ email }}, <a href="https://contoso.edu">look</a>.</p>'
    checks = await editor.post("/admin/messages/preview", **GOOD | {"body": body})
    assert "merge fields look good" in checks.text


async def test_a_test_mail_is_an_item_for_a_sender_and_names_the_user(editor: Worker) -> None:
    path = await written(editor)
    answer = await editor.post(f"{path}/test")
    assert (answer.headers["location"], notice_in(answer)) == (path, "test-sent")
    [item] = await editor.office.storage.queues.peek(SINGLE_MAIL_QUEUE)
    trial = parse_trial_item(item.body)
    assert (trial.ref, trial.user) == (path.rpartition("/")[2], editor.user.key)


async def test_nobody_bombs_a_mailbox_with_test_mails(editor: Worker) -> None:
    path = await written(editor)
    answers = [await editor.post(f"{path}/test") for _ in range(31)]
    assert [answer.status_code for answer in answers] == [303] * 30 + [429]


# --- The index --------------------------------------------------------------------------------


async def test_messages_are_listed_newest_first_in_pages_and_by_status(editor: Worker) -> None:
    paths = [await written(editor, subject=f"Number {at:03}") for at in range(35)]
    first = (await editor.get("/admin/messages")).text
    assert first.index("Number 034") < first.index("Number 033")
    assert "Number 004" not in first
    link = re.findall(r'href="(/admin/messages\?after=\d+)"', unescape(first))
    assert "Number 004" in (await editor.get(link[0])).text
    etag = etag_of((await editor.get(f"{paths[0]}/schedule")).text)
    when = {"date": "2026-12-01", "time": "09:30", "zone": "UTC"}
    await editor.post(f"{paths[0]}/schedule", **when, etag=etag)
    pending = (await editor.get("/admin/messages", status="scheduled")).text
    assert "Number 000" in pending
    assert "Number 001" not in pending


async def test_tabs_count_what_is_not_over_yet(editor: Worker) -> None:
    for _draft in range(4):
        await written(editor)
    page = (await editor.get("/admin/messages")).text
    tabs = re.findall(r">(\w+)(?: <span class=\"number\">(\d+)</span>)?</a>", page)
    assert tabs[-5:-2] == [("Drafts", "4"), ("Scheduled", "0"), ("Sending", "0")]
    assert tabs[-2:] == [("Sent", ""), ("Cancelled", "")]


async def test_messages_are_listed_by_list(editor: Worker) -> None:
    await second_list(editor)
    await join(editor, "ada@contoso.edu")
    await written(editor, subject="To the first")
    await written(editor, subject="To the second", list=SECOND)
    page = (await editor.get("/admin/messages")).text
    assert "To the first" in page
    assert f"{LIST}), 1 subscriber</option>" in page  # by title and size
    page = (await editor.get("/admin/messages", list=SECOND)).text
    assert "To the first" not in page
    assert "To the second" in page
    assert '>Drafts <span class="number">1</span>' in page
    assert "?status=sent&amp;list=" in page  # a tab keeps the list
    assert (await editor.get("/admin/messages", list="no such")).status_code == 404


async def test_the_edit_address_of_an_archived_message_leads_to_what_became_of_it(
    editor: Worker,
) -> None:
    path = await written(editor)
    tables, ref = editor.office.storage.tables, path.rpartition("/")[2]
    found = await messages.find_live(tables, ref)
    assert found
    done = msgspec.structs.replace(
        found[0], status=Status.COMPLETED, due_at=NOW, queuing_at=NOW, completed_at=NOW
    )
    await messages.put_archived(tables, done, NOW)
    await messages.delete_live(tables, ref, found[1])
    answer = await editor.get(f"{path}/write")
    assert answer.headers["location"] == path
    page = (await editor.get(path)).text
    assert "This message can no longer be edited because sending has started." in page


@pytest.mark.parametrize("ref", ["x", "1" * 18, "0" * 40, "..%2f"])
async def test_a_ref_of_nobody_is_not_found(editor: Worker, ref: str) -> None:
    for page in ("", "/write", "/send", "/schedule", "/cancel", "/live", "/people/export", "/mail"):
        assert (await editor.get(f"/admin/messages/{ref}{page}")).status_code == 404
