"""The block editor: every button works by a plain form, and nothing typed is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from selectolax.lexbor import LexborHTMLParser

from postroom.domain.block import BlockDocument, HeadingBlock, PictureBlock, parse_document
from postroom.domain.message import BodyKind
from postroom.domain.user import Role
from postroom.records import bodies
from tests.web.drafts import etag_of, fields_in, stored
from tests.web.office import LIST
from tests.web.signed_in import OWN_PAGE, Worker, at_work

BLOCKS = "/admin/messages/blocks"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def new_form(editor: Worker, **typed: str) -> dict[str, str]:
    page = (await editor.get("/admin/messages/new", list=LIST)).text
    return fields_in(page, subject="Hello", **typed)


async def pressed(editor: Worker, fields: dict[str, str], op: str, **typed: str) -> dict[str, str]:
    answer = await editor.post(BLOCKS, **fields | typed | {"op": op})
    assert answer.status_code == 200, answer.text
    return fields_in(answer.text)


async def saved(editor: Worker, fields: dict[str, str]) -> str:
    answer = await editor.post("/admin/messages/write", **fields)
    assert answer.status_code == 303, unescape(answer.text)
    return answer.headers["location"].partition("?")[0]


async def document_of(editor: Worker, path: str) -> BlockDocument:
    source = await bodies.load_source(editor.office.storage.blobs, await stored(editor, path))
    assert source is not None
    assert source.kind is BodyKind.BLOCKS
    return parse_document(source.text)


def order(fields: dict[str, str]) -> list[str]:
    return [entry["id"] for entry in msgspec.json.decode(fields["shape"])]


async def test_a_message_is_written_in_blocks_without_script(editor: Worker) -> None:
    fields = await new_form(editor)
    fields = await pressed(editor, fields, "add:picture")
    new = order(fields)[-1]
    typed = {f"{new}-src": "https://contoso.edu/a.png", f"{new}-alt": "A door"}
    fields = await pressed(editor, fields | typed, f"up:{new}")
    assert fields[f"{new}-alt"] == "A door"
    path = await saved(editor, fields)
    document = await document_of(editor, path)
    picture = document.blocks[-2]
    assert isinstance(picture, PictureBlock)
    assert (picture.src, picture.alt) == ("https://contoso.edu/a.png", "A door")
    html, _text = await bodies.load(editor.office.storage.blobs, await stored(editor, path))
    assert 'src="https://contoso.edu/a.png"' in (html or "")
    page = (await editor.get(f"{path}/write")).text
    assert fields_in(page)[f"{new}-alt"] == "A door"


async def test_blocks_are_copied_removed_and_brought_back(editor: Worker) -> None:
    fields = await new_form(editor)
    first = order(fields)[0]
    copied = await pressed(editor, fields, f"copy:{first}", **{f"{first}-text": "Twice"})
    twin = order(copied)[1]
    assert copied[f"{twin}-text"] == "Twice"
    removed = await pressed(editor, copied, f"remove:{first}")
    assert order(removed) == order(copied)[1:]
    undone = await pressed(editor, removed, "undo")
    assert order(undone) == order(copied)
    assert undone[f"{first}-text"] == "Twice"
    assert order(await pressed(editor, undone, "undo")) == order(fields)


async def test_another_design_is_undone_with_what_was_typed(editor: Worker) -> None:
    fields = await new_form(editor)
    first = order(fields)[0]
    typed = {f"{first}-text": "Our news", "theme-link": "#123456", "template": "event"}
    changed = await pressed(editor, fields, "template", **typed)
    assert changed["theme-link"] != "#123456"
    undone = await pressed(editor, changed, "undo")
    assert order(undone) == order(fields)
    assert (undone[f"{first}-text"], undone["theme-link"]) == ("Our news", "#123456")
    assert undone["undo"] == ""


async def test_what_a_check_fixed_is_undone(editor: Worker) -> None:
    fields = await new_form(editor)
    first = order(fields)[0]
    fixed = await pressed(editor, fields, f"fix:remove:{first}", **{f"{first}-text": ""})
    assert order(fixed) == order(fields)[1:]
    assert order(await pressed(editor, fixed, "undo")) == order(fields)


@pytest.mark.parametrize("kind", ["", "html"])
async def test_enter_saves_and_presses_no_button_of_a_block(editor: Worker, kind: str) -> None:
    """A browser presses the first button of a form."""
    page = (await editor.get("/admin/messages/new", list=LIST, kind=kind)).text
    buttons = LexborHTMLParser(page).css("form#message button:not([type=button])")
    assert buttons[0].attributes["name"] == "enter"
    assert "formaction" not in buttons[0].attributes
    fields = fields_in(page, subject="By Enter", enter="yes")
    path = await saved(editor, fields | ({"body": "<p>Words</p>"} if kind else {}))
    assert (await stored(editor, path)).subject == "By Enter"


async def test_enter_in_the_search_for_a_picture_searches(editor: Worker) -> None:
    fields = await pressed(editor, await new_form(editor), "add:picture")
    search = {"enter": "yes", "find_picture": "lake"}
    answer = await editor.post("/admin/messages/write", **fields | search)
    assert answer.status_code == 200
    assert "No picture found" in answer.text
    path = await saved(editor, fields)
    fields = fields_in((await editor.get(f"{path}/write")).text)
    fields = await pressed(editor, fields, f"choose:{order(fields)[-1]}")
    answer = await editor.post(f"{path}/write", **fields | search)
    assert "No picture found" in answer.text


@pytest.mark.parametrize(
    ("language", "expected"), [("", ["Left", "Right"]), ("ar", ["Right", "Left"])]
)
async def test_alignment_is_named_as_the_reader_sees_it(
    editor: Worker, language: str, expected: list[str]
) -> None:
    fields = await new_form(editor, language=language)
    page = (await editor.post(BLOCKS, **fields | {"op": "add:space"})).text
    choices = LexborHTMLParser(page).css(f"#{order(fields)[0]}-align option")
    assert [choices[0].text(), choices[2].text()] == expected
    assert [each.attributes["value"] for each in choices] == ["start", "center", "end"]


async def test_columns_hold_blocks_and_become_three(editor: Worker) -> None:
    fields = await pressed(editor, await new_form(editor), "add:columns")
    columns = order(fields)[-1]
    fields = await pressed(editor, fields, f"add:heading:{columns}.0")
    fields = await pressed(editor, fields, f"columns:{columns}:3")
    first = order(fields)[0]
    fields = await pressed(editor, fields, f"move:{first}:{columns}.2.0")
    document = await document_of(editor, await saved(editor, fields))
    inner = msgspec.to_builtins(document.blocks[-1])["columns"]
    assert [len(column) for column in inner] == [1, 0, 1]
    refused = await editor.post(BLOCKS, **fields | {"op": f"add:columns:{columns}.0"})
    assert "A column cannot contain columns" in refused.text


async def test_a_mistake_names_its_block_and_keeps_what_was_typed(editor: Worker) -> None:
    fields = await new_form(editor)
    button = next(name for name in fields if name.endswith("-href")).removesuffix("-href")
    answer = await editor.post(
        "/admin/messages/write", **fields | {f"{button}-href": "javascript:alert(1)"}
    )
    assert answer.status_code == 422
    assert f'href="#block-{button}"' in answer.text
    assert "Block 3 (Button)" in unescape(answer.text)
    assert fields_in(answer.text)[f"{button}-href"] == "javascript:alert(1)"
    assert fields_in(answer.text)["subject"] == "Hello"


async def test_with_htmx_only_the_blocks_come_back(editor: Worker) -> None:
    fields = await new_form(editor)
    answer = await editor.browser.post(
        BLOCKS, data=fields | {"op": "add:space"}, headers={"HX-Request": "true"} | OWN_PAGE
    )
    assert answer.text.strip().startswith('<div id="blocks"')
    assert 'data-touched="b' in answer.text
    assert '<span id="undo" hx-swap-oob="true">' in answer.text


async def test_somebody_elses_blocks_are_not_overwritten(editor: Worker) -> None:
    path = await saved(editor, await new_form(editor))
    page = (await editor.get(f"{path}/write")).text
    mine, theirs = fields_in(page), fields_in(page)
    first = order(mine)[0]
    await editor.post(f"{path}/write", **theirs | {f"{first}-text": "Theirs"})
    answer = await editor.post(f"{path}/write", **mine | {f"{first}-text": "Mine"})
    assert answer.status_code == 409
    again = fields_in(answer.text)
    assert again[f"{first}-text"] == "Mine"
    taken = await pressed(editor, again, "theirs")
    assert taken[f"{first}-text"] == "Theirs"
    assert etag_of(answer.text) == taken["etag"]


async def test_autosave_stores_blocks_once_and_only_changes(editor: Worker) -> None:
    fields = await new_form(editor)
    first = (await editor.post("/admin/messages/autosave", **fields)).json()
    assert first["state"] == "saved"
    path = f"/admin/messages/{first['ref']}"
    again = fields | {"etag": first["etag"], "ref": first["ref"]}
    second = (await editor.post(f"{path}/autosave", **again)).json()
    assert (second["state"], second["etag"]) == ("saved", first["etag"])
    heading = order(fields)[0]
    await editor.post(f"{path}/autosave", **again | {f"{heading}-text": "New words"})
    document = await document_of(editor, path)
    assert isinstance(document.blocks[0], HeadingBlock)
    assert document.blocks[0].text == "New words"


async def test_checks_show_the_block_and_fix_what_they_can(editor: Worker) -> None:
    fields = await pressed(editor, await new_form(editor), "add:picture")
    new = order(fields)[-1]
    fields |= {f"{new}-src": "https://contoso.edu/a.png", "theme-text": "#cccccc"}
    report = (await editor.post("/admin/messages/preview", **fields)).text
    assert f'href="#block-{new}"' in report
    assert f'value="fix:decorative:{new}"' in report
    assert 'value="fix:theme:text"' in report
    for fix in (f"fix:decorative:{new}", "fix:theme:text"):
        fields = await pressed(editor, fields, fix)
    report = (await editor.post("/admin/messages/preview", **fields)).text
    assert "Fix it" not in report


async def test_other_formats_and_blocks_turn_into_each_other(editor: Worker) -> None:
    fields = await new_form(editor)
    typed = await pressed(editor, fields, "kind:html")
    assert typed["kind"] == "html"
    assert "The news in one line" in typed["body"]
    back = await pressed(
        editor, typed | {"kind": "markdown", "body": "Some *words*"}, "kind:blocks"
    )
    assert back[f"{order(back)[0]}-text"] == "Some *words*"


@pytest.mark.parametrize(
    "body",
    [
        "<mjml><mj-body><mj-section><mj-column><mj-text>Hi {{ name }}</mj-text></mj-column>"
        "</mj-section></mj-body></mjml>"
    ],
)
async def test_mjml_is_a_format_of_its_own(editor: Worker, body: str) -> None:
    fields = {"list": LIST, "subject": "Hello", "kind": "mjml", "body": body, "text": ""}
    path = await saved(editor, fields)
    html, _text = await bodies.load(editor.office.storage.blobs, await stored(editor, path))
    assert "Hi {{ name }}" in (html or "")
    assert fields_in((await editor.get(f"{path}/write")).text)["body"] == body


async def test_styles_of_html_are_copied_into_the_tags_unless_kept(editor: Worker) -> None:
    body = "<style>p { color: red }</style><p>Dear {{ name | default('x') }}</p>"
    fields = {"list": LIST, "subject": "Hello", "kind": "html", "body": body, "text": ""}
    for css, expected in (("inline", True), ("keep", False)):
        path = await saved(editor, fields | {"css": css})
        html, _text = await bodies.load(editor.office.storage.blobs, await stored(editor, path))
        assert ('<p style="color: red' in (html or "")) is expected
        form = fields_in((await editor.get(f"{path}/write")).text)
        assert (form["body"], form["css"]) == (body, css)


async def test_the_preview_text_is_hidden_at_the_beginning(editor: Worker) -> None:
    path = await saved(editor, await new_form(editor, preview_text="Read {{ name }} this"))
    page = unescape((await editor.get(path)).text)
    assert "Read [name] this" in page  # as an inbox shows it
    mail = (await editor.get(f"{path}/mail")).text
    assert mail.index("Read [name] this") < mail.index("The news in one line")


MANY = [{"id": "x", "kind": "text"}] * 2000
FORGED: dict[str, dict[str, Any]] = {
    "columns": {"shape": [{"id": "b1", "kind": "columns", "columns": [MANY, []]}]},
    "undo": {"shape": [], "undo": [{"shape": MANY, "removed": {"x": MANY[0]}}]},
    "a document": {"document": {"blocks": MANY, "theme": {}}},
    "articles": {
        "document": {
            "blocks": [{"id": "b1", "kind": "articles", "articles": [{}] * 2000}],
            "theme": {},
        }
    },
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("op", ["undo", "kind:blocks"])
async def test_a_forged_form_does_not_become_a_page_of_countless_blocks(
    editor: Worker, name: str, op: str
) -> None:
    """Eight megabytes of them would become two gigabytes of HTML, on the event loop."""
    fields = await new_form(editor, kind="blocks")
    if "document" in FORGED[name]:
        del fields["shape"]
    fields |= {
        field: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for field, value in FORGED[name].items()
    }
    headers = OWN_PAGE | {"HX-Request": "true"}
    answer = await editor.browser.post(BLOCKS, data=fields | {"op": op}, headers=headers)
    assert answer.status_code == 200
    assert len(answer.content) < 1_000_000
