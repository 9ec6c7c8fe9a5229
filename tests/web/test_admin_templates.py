"""Templates and snippets: copied into messages, never changing one afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.records import bodies
from tests.web.drafts import etag_of, fields_in, said_by, stored
from tests.web.office import LIST
from tests.web.signed_in import Worker, at_work, notice_in
from tests.web.test_admin_blocks import new_form, order, pressed, saved

TEMPLATES = "/admin/templates"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def created(editor: Worker, title: str, **fields: str) -> str:
    answer = await editor.post(f"{TEMPLATES}/new", title=title, **fields)
    assert answer.status_code == 303, unescape(answer.text)
    return answer.headers["location"]


def template_fields(page: str) -> dict[str, str]:
    return fields_in(page.replace('id="template-form"', 'id="message"'))


async def test_a_message_is_kept_as_a_template_and_starts_the_next(editor: Worker) -> None:
    fields = await new_form(editor)
    heading = order(fields)[0]
    path = await saved(editor, fields | {f"{heading}-text": "Our own words"})
    page = await editor.get(f"{TEMPLATES}/new", message=path.rpartition("/")[2])
    kept = await created(editor, "Ours", message=fields_in_new(page.text)["message"])
    assert "Ours" in (await editor.get(TEMPLATES)).text
    assert "Our own words" in (await editor.get(f"{kept}/preview")).text
    template_id = kept.rpartition("/")[2]
    begun = fields_in((await editor.get("/admin/messages/new", template=template_id)).text)
    assert begun[f"{heading}-text"] == "Our own words"


def fields_in_new(page: str) -> dict[str, str]:
    return fields_in(
        page.replace('<form method="post" action="/admin/templates/new"', '<form id="message"')
    )


@pytest.mark.parametrize("is_scheduled", [False, True], ids=["draft", "scheduled"])
async def test_changing_a_template_changes_no_message(editor: Worker, is_scheduled: bool) -> None:
    await editor.office.join(verified=True)
    kept = await created(editor, "Ours", **{"from": "letter"})
    template_id = kept.rpartition("/")[2]
    begun = fields_in((await editor.get("/admin/messages/new", template=template_id)).text)
    path = await saved(editor, begun | {"subject": "Hello"})
    if is_scheduled:
        when = {"date": "2119-11-17", "time": "09:00", "zone": "UTC"}
        etag = etag_of((await editor.get(f"{path}/schedule")).text)
        answer = await editor.post(f"{path}/schedule", etag=etag, **when)
        assert answer.status_code == 303, answer.text
    before = await said_by(editor, path)
    row = await stored(editor, path)
    assert row.status == ("pending" if is_scheduled else "draft")
    fields = template_fields((await editor.get(kept)).text)
    block = order(fields)[0]
    changed = fields | {f"{block}-text": "Other words", "theme-link": "#000000"}
    answer = await editor.post(kept, **changed)
    assert (answer.status_code, notice_in(answer)) == (303, "saved")
    assert "Other words" in (await editor.get(f"{kept}/preview")).text
    assert await said_by(editor, path) == before
    assert await stored(editor, path) == row


async def test_two_people_who_change_a_template_see_each_other(editor: Worker) -> None:
    kept = await created(editor, "Ours", **{"from": "letter"})
    fields = template_fields((await editor.get(kept)).text)
    block = order(fields)[0]
    await editor.post(kept, **fields | {f"{block}-text": "Theirs"})
    answer = await editor.post(kept, **fields | {f"{block}-text": "Mine"})
    assert answer.status_code == 409
    assert template_fields(answer.text)[f"{block}-text"] == "Mine"
    wrong = await editor.post(kept, **fields | {"theme-width": "9999"})
    assert wrong.status_code == 422


async def test_a_template_that_a_list_uses_is_not_deleted(editor: Worker) -> None:
    kept = await created(editor, "Ours", **{"from": "event"})
    template_id = kept.rpartition("/")[2]
    page = (await editor.get(f"/admin/lists/{LIST}/edit")).text
    etag = unescape(page.partition('name="etag" value="')[2].partition('"')[0])
    values = {"sender": "a@contoso.edu", "template": template_id, "language": "ar", "etag": etag}
    assert (await editor.post(f"/admin/lists/{LIST}/edit", **values)).status_code == 303
    begun = (await editor.get("/admin/messages/new", list=LIST)).text
    assert "The name of the event" in begun
    path = await saved(editor, fields_in(begun, subject="Hello"))
    html, _text = await said_by(editor, path)
    assert '<html lang="ar" dir="rtl"' in (html or "")
    assert (await stored(editor, path)).language == ""
    asked = template_fields_of_delete((await editor.get(f"{kept}/delete")).text)
    refused = await editor.post(f"{kept}/delete", **asked)
    assert refused.status_code == 409
    assert LIST in refused.text


def template_fields_of_delete(page: str) -> dict[str, str]:
    return {"etag": unescape(page.partition('name="etag" value="')[2].partition('"')[0])}


async def test_a_template_is_deleted_once_nobody_uses_it(editor: Worker) -> None:
    kept = await created(editor, "Ours", **{"from": "event"})
    stale = await editor.post(f"{kept}/delete", etag="stale")
    assert stale.status_code == 409
    asked = template_fields_of_delete((await editor.get(f"{kept}/delete")).text)
    assert notice_in(await editor.post(f"{kept}/delete", **asked)) == "deleted"
    assert notice_in(await editor.post(f"{kept}/delete", **asked)) == "deleted"
    names, _more = await editor.office.storage.blobs.list()
    assert names == []


async def test_a_snippet_is_added_to_a_message(editor: Worker) -> None:
    kept = await created(editor, "Signature", kind="snippet", **{"from": "letter"})
    fields = await new_form(editor)
    ours = len(order(fields))
    typed = {"snippet": kept.rpartition("/")[2]}
    answer = await editor.post("/admin/messages/blocks", **fields | typed | {"op": "snippet"})
    added = fields_in(answer.text)
    assert len(order(added)) == ours + 3
    assert len(set(order(added))) == ours + 3
    assert f'data-touched="{order(added)[ours]}"' in answer.text
    assert order(await pressed(editor, added, "undo")) == order(fields)


async def test_a_snippet_has_no_design_of_its_own(editor: Worker) -> None:
    kept = await created(editor, "Signature", kind="snippet", **{"from": "event"})
    page = (await editor.get(kept)).text
    assert 'name="theme-link"' not in page
    fields = template_fields(page)
    block = order(fields)[0]
    answer = await editor.post(kept, **fields | {f"{block}-text": "With thanks"})
    assert (answer.status_code, notice_in(answer)) == (303, "saved")
    assert "With thanks" in (await editor.get(f"{kept}/preview")).text


async def test_a_message_takes_the_design_of_another_template(editor: Worker) -> None:
    fields = await new_form(editor)
    headline = order(fields)[0]
    typed = {f"{headline}-text": "My headline", "template": "event"}
    fields = await pressed(editor, fields, "template", **typed)
    assert fields["theme-link"] == "#7b2d8e"
    assert "My headline" in fields.values()


async def test_a_form_sent_twice_creates_one_template(editor: Worker) -> None:
    page = (await editor.get(f"{TEMPLATES}/new")).text
    fields = fields_in_new(page) | {"title": "Ours"}
    first = await editor.post(f"{TEMPLATES}/new", **fields)
    second = await editor.post(f"{TEMPLATES}/new", **fields)
    assert first.headers["location"] == second.headers["location"]
    empty = await editor.post(f"{TEMPLATES}/new", title=" ")
    assert empty.status_code == 422


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("markdown", "# Hello\n\nDear *{{ name }}*\n\n---\n\n- one", ["Hello", "<em>", "<li"]),
        ("html", "<p>one {{ name }}</p>", ["<p>one"]),
    ],
)
async def test_messages_in_other_formats_become_templates(
    editor: Worker, kind: str, body: str, shown: list[str]
) -> None:
    values = {"list": LIST, "subject": "Hello", "kind": kind, "body": body, "text": ""}
    path = await saved(editor, values)
    assert "Save as template" in (await editor.get(path)).text
    kept = await created(editor, "Kept", message=path.rpartition("/")[2])
    page = (await editor.get(f"{kept}/preview")).text
    for each in shown:
        assert each in page


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("html", "<html><body><p>x</p></body></html>"),
        ("mjml", "<mjml><mj-body><mj-text>x</mj-text></mj-body></mjml>"),
    ],
)
async def test_a_whole_page_does_not_become_a_template(
    editor: Worker, kind: str, body: str
) -> None:
    values = {"list": LIST, "subject": "Hello", "kind": kind, "body": body, "text": ""}
    path = await saved(editor, values)
    answer = await editor.post(f"{TEMPLATES}/new", title="x", message=path.rpartition("/")[2])
    assert answer.status_code == 422
    assert "complete " in answer.text


@pytest.mark.parametrize("kind", ["blocks", "html", "markdown", "mjml"])
async def test_a_copy_has_everything_of_its_message(editor: Worker, kind: str) -> None:
    bodies_of = {
        "html": "<style>p{color:red}</style><p>x</p>",
        "markdown": "*x*",
        "mjml": "<mjml><mj-body><mj-text>x</mj-text></mj-body></mjml>",
    }
    fields = {"subject": "Hello", "preview_text": "Look", "language": "de", "text": "own text"}
    if kind == "blocks":
        values = await new_form(editor) | fields
    else:
        values = fields | {"list": LIST, "kind": kind, "body": bodies_of[kind], "on_doubt": "hold"}
    path = await saved(editor, values)
    answer = await editor.post(f"{path}/copy")
    copied = answer.headers["location"].removesuffix("/write")
    assert copied != path
    blobs = editor.office.storage.blobs
    first, second = await stored(editor, path), await stored(editor, copied)
    assert await bodies.load_all(blobs, second) == await bodies.load_all(blobs, first)
    for name in ("kind", "preview_text", "language", "on_doubt", "list_name"):
        assert getattr(second, name) == getattr(first, name)
