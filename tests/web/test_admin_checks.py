"""The checks of a message tell the truth: what readers will not see is named before it goes out."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.mail.markdown import html_from_markdown
from postroom.web import message_checks
from postroom.writing import sources
from tests.web.drafts import GOOD, fields_in, said_by, written
from tests.web.office import LIST
from tests.web.people import join
from tests.web.signed_in import OWN_PAGE, Worker, at_work

NOTHING_TO_MEND = "merge fields look good"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def checks(editor: Worker, **changes: str) -> str:
    answer = await editor.post("/admin/messages/preview", **GOOD | changes)
    assert answer.status_code == 200
    return unescape(answer.text)


# --- Pictures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("logo.png", "without a web address, which nobody can see: logo.png"),
        ("file:///C:/logo.png", "on your own computer, which nobody else can see: file:///C:/logo"),
        ("C:\\logo.png", "on your own computer, which nobody else can see: C:\\logo.png"),
        ("cid:logo", "refer to an attachment (cid:), which nobody can see: cid:logo"),
        ("http://127.0.0.1/a.png", "nobody outside it can see: http://127.0.0.1/a.png"),
        ("data:image/png;base64,iVBOR", "Outlook do not show: data:image/png;base64,iVBOR"),
        ("", "have no address (src)"),
        ("ftp://contoso.edu/a.png", "can’t open: ftp://contoso.edu/a.png"),
    ],
)
async def test_a_picture_that_nobody_can_see_is_named(
    editor: Worker, source: str, sentence: str
) -> None:
    body = f'<p>Words</p><img src="{source}" alt="Logo">'
    page = await checks(editor, body=body)
    assert sentence in page
    assert NOTHING_TO_MEND not in page
    path = await written(editor, body=body)
    assert sentence in unescape((await editor.get(path)).text)


async def test_a_picture_on_a_website_is_fine(editor: Worker) -> None:
    body = '<p>Words</p><img src="https://contoso.edu/logo.png" alt="Logo">'
    assert NOTHING_TO_MEND in await checks(editor, body=body)


# --- Formats ----------------------------------------------------------------------------------

LETTER = "Dear all,\n\nthe library is open again.\n\nYours,\nErika\nOffice"


async def test_plain_text_typed_as_html_gets_a_hint_and_a_way_to_markdown(editor: Worker) -> None:
    page = await checks(editor, body=LETTER)
    assert "This is plain text, but the format is HTML" in page
    assert 'name="kind" value="markdown"' in page
    path = await written(editor, body=LETTER)
    saved = unescape((await editor.get(path)).text)
    assert f'href="{path}/write?kind=markdown"' in saved
    form = (await editor.get(f"{path}/write", kind="markdown")).text
    assert 'name="kind" value="markdown" checked' in form


async def test_markdown_keeps_lines_as_they_were_typed(editor: Worker) -> None:
    page = await checks(editor, body=LETTER, kind="markdown")
    assert NOTHING_TO_MEND in page
    path = await written(editor, body=LETTER, kind="markdown")
    html, _text = await said_by(editor, path)
    assert html
    assert "Erika<br />\nOffice" in html
    shown = unescape((await editor.get(path)).text).replace("\r\n", "\n")
    assert "Yours,\nErika\nOffice" in shown


async def test_a_whole_document_as_markdown_gets_a_hint_and_a_way_to_html(editor: Worker) -> None:
    page = await checks(editor, body="<!doctype html><html><p>x</p></html>", kind="markdown")
    assert "This is an HTML document, but the format is Markdown" in page
    assert 'name="kind" value="html"' in page


@pytest.mark.parametrize("body", ["<p>One</p>\n<p>Two</p>", "One<br>\nTwo", "One line"])
async def test_html_that_breaks_its_lines_gets_no_hint(editor: Worker, body: str) -> None:
    page = await checks(editor, body=body)
    assert NOTHING_TO_MEND in page
    assert 'name="kind"' not in page


# --- Merge fields -----------------------------------------------------------------------------


async def test_a_field_that_some_people_do_not_have_is_counted(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu", vorname="Ada")
    await join(editor, "ben@contoso.edu", vorname=" ")
    await join(editor, "eve@contoso.edu")
    page = await checks(editor, body="<p>Guten Tag {{ vorname }}!</p>")
    assert "2 of 3 subscribers have no vorname" in page
    assert '{{ vorname | default("…") }}' in page
    page = await checks(editor, body='<p>Guten Tag {{ vorname | default("alle") }}!</p>')
    assert NOTHING_TO_MEND in page


@pytest.mark.parametrize("field", ["body", "text"])
async def test_a_mistake_in_a_field_quotes_what_was_typed_alone(editor: Worker, field: str) -> None:
    """Not the foot, whose own field would close it."""
    typed = {field: "Guten Tag {{ vorname"}
    page = await checks(editor, **typed)
    saved = await editor.post("/admin/messages/write", **GOOD | typed)
    for words in (page, unescape(saved.text)):
        assert "never closed" in words
        assert "because" not in words.partition("never closed")[0][-200:]


# --- Files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "name", "content", "sentence"),
    [
        ("html_file", "x.exe", b"<p>Words</p>", "of one of these types: .htm, .html"),
        ("html_file", "letter.docx", b"PK\x03\x04", "of one of these types"),
        ("text_file", "x.html", b"Words", "of one of these types: .txt"),
        ("html_file", "x.html", b"\x7fELF\x02\x01\x01\x00", "not a text file"),
        ("html_file", "x.html", b"x" * (2 * 1024 * 1024 + 1), "is 2.0 MiB, but the body can be at"),
        (
            "html_file",
            "x.html",
            b"x" * 16_462_643,
            "is 15.7 MiB, but the body can be at",
        ),
    ],
)
async def test_a_file_that_is_no_body_is_refused_and_what_was_typed_stays(
    editor: Worker, field: str, name: str, content: bytes, sentence: str
) -> None:
    typed = GOOD | {"text": "My own words"}
    answer = await editor.browser.post(
        "/admin/messages/write", data=typed, files={field: (name, content)}, headers=OWN_PAGE
    )
    assert answer.status_code == 422
    page = unescape(answer.text)
    assert sentence in page
    for words in typed.values():
        assert words in page


async def test_a_text_file_as_the_body_is_markdown(editor: Worker) -> None:
    files = {"html_file": ("letter.TXT", LETTER.encode())}
    answer = await editor.browser.post(
        "/admin/messages/write", data=GOOD, files=files, headers=OWN_PAGE
    )
    html, _text = await said_by(editor, answer.headers["location"].partition("?")[0])
    assert html
    assert "Erika<br />\nOffice" in html


async def test_what_was_typed_and_is_too_long_comes_back_with_both_sizes(editor: Worker) -> None:
    body = "x" * 3 * 1024 * 1024
    parts = {name: (None, text) for name, text in (GOOD | {"body": body}).items()}
    answer = await editor.browser.post("/admin/messages/write", files=parts, headers=OWN_PAGE)
    assert answer.status_code == 422
    assert "The body is 3.0 MiB, but can be at most 2.0 MiB" in answer.text
    assert body in answer.text


async def test_who_sends_more_than_a_page_takes_reads_how_much_it_takes(editor: Worker) -> None:
    answer = await editor.post("/admin/lists/new", description="x" * 70_000)
    assert answer.status_code == 413
    assert "64.0 KiB" in answer.text


# --- Preview ----------------------------------------------------------------------------------


async def test_the_preview_begins_with_the_line_that_an_inbox_shows(editor: Worker) -> None:
    hidden = '<div style="display:none">First words\u200b&nbsp;\u200c</div>'
    body = f"<style>p {{}}</style>{hidden}<h1>Ti<b>tle</b></h1><p>Text {'and more ' * 50}</p>"
    page = await checks(editor, body=body, subject="The subject")
    line = page.partition('class="inbox-line"')[2].partition("</p>")[0]
    for words in ("a@contoso.edu", "The subject", "– First words Title Text and more"):
        assert words in line
    assert "…" in line
    path = await written(editor, body=body)
    saved = (await editor.get(path)).text
    assert "– First words Title" in saved
    assert f'href="{path}/mail?as=" target="_blank"' in saved


@pytest.mark.parametrize("path", ["/admin/messages/preview", "/admin/messages/mail/preview"])
async def test_what_people_wrote_is_parsed_beside_the_event_loop(
    editor: Worker, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads: list[str] = []
    markdown, look = html_from_markdown, message_checks._run_checks

    def noted_markdown(source: str) -> str:
        threads.append(threading.current_thread().name)
        return markdown(source)

    def noted_look(*args: object) -> object:
        threads.append(threading.current_thread().name)
        return look(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(sources, "html_from_markdown", noted_markdown)
    monkeypatch.setattr(message_checks, "_run_checks", noted_look)
    await editor.post(path, **GOOD | {"kind": "markdown", "body": "*Words*"})
    assert len(threads) == 2
    assert all(name.startswith("parsing") for name in threads)


async def test_conditions_that_are_too_much_for_somebody_are_named(editor: Worker) -> None:
    loop = "<p>{% for i in topics | split %}{{ i }} {% endfor %}</p>"
    await join(editor, "ada@contoso.edu", topics="history")
    assert "loops" not in await checks(editor, body=loop * 10)
    await join(editor, "bob@contoso.edu", topics=",".join("1" * 900))
    assert "loops" not in await checks(editor, body="<p>{% if topics %}Hello{% endif %}</p>" * 10)
    assert "sending is slow" in await checks(editor, body=loop)
    assert "will be left out" in await checks(editor, body=loop * 10)


async def test_a_line_is_shown_and_mended_on_the_page(editor: Worker) -> None:
    body = '<p>Hello</p>\n<img src="https://contoso.edu/a.png">'
    fields = {"list": LIST, "subject": "Hello", "kind": "html", "body": body, "text": ""}
    checks = (await editor.post("/admin/messages/preview", **fields)).text
    assert 'href="#body" data-line="2"' in checks
    assert 'value="fix:body:alt:0"' in checks
    page = await editor.post("/admin/messages/blocks", **fields | {"op": "fix:body:alt:0"})
    assert page.status_code == 200
    assert (
        fields_in(page.text)["body"] == '<p>Hello</p>\n<img alt="" src="https://contoso.edu/a.png">'
    )
    broken = (await editor.post("/admin/messages/preview", **fields | {"body": "<p>{{ x }"})).text
    assert "never closed" in broken
    assert 'value="fix:body:field:x:3"' in broken
