"""Messages written on the admin pages, for tests to go on with."""

from __future__ import annotations

from html import unescape

from selectolax.lexbor import LexborHTMLParser

from postroom.domain.message import Message
from postroom.records import bodies, messages
from tests.web.office import LIST
from tests.web.signed_in import Worker

GOOD = {
    "list": LIST,
    "subject": "New lectures",
    "kind": "html",
    "body": "<p>Dear {{ name }}</p>",
    "text": "",
    "on_doubt": "resend",
}


async def written(editor: Worker, **changes: str) -> str:
    """The path of a new draft."""
    answer = await editor.post("/admin/messages/write", **GOOD | changes)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].partition("?")[0]


async def stored(editor: Worker, path: str) -> Message:
    return await messages.read(editor.office.storage.tables, path.rpartition("/")[2])


async def said_by(editor: Worker, path: str) -> tuple[str | None, str | None]:
    return await bodies.load(editor.office.storage.blobs, await stored(editor, path))


def fields_in(page: str, **typed: str) -> dict[str, str]:
    """The fields of the message's form as a browser sends them, with what was typed."""
    form = LexborHTMLParser(page).css_first("form#message")
    assert form is not None
    fields: dict[str, str] = {}
    for node in form.css("input, textarea, select"):
        given = node.attributes
        name = given.get("name")
        is_off = given.get("type") in ("radio", "checkbox") and "checked" not in given
        if not name or is_off or given.get("type") == "file":
            continue
        if node.tag == "select":
            chosen = node.css_first("option[selected]") or node.css_first("option")
            fields[name] = (chosen.attributes.get("value") if chosen else "") or ""
        elif node.tag == "textarea":
            fields[name] = node.text().removeprefix("\n")
        else:
            fields[name] = given.get("value") or ""
    return fields | typed


def etag_of(page: str) -> str:
    return unescape(page.partition('name="etag" value="')[2].partition('"')[0])
