"""The form of a message: what was sent, what that says, and a stored message as its fields."""

from __future__ import annotations

from typing import NamedTuple

from starlette.datastructures import UploadFile
from starlette.requests import Request

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import BODY_BYTES_MAX, Message, OnDoubt, check_subject
from postroom.domain.texts import _
from postroom.mail.markdown import html_from_markdown
from postroom.mail.merge import BadTemplate, compile_header
from postroom.records import bodies
from postroom.storage.port import Storage
from postroom.web.forms import Form, opened

FIELD_BYTES_MAX = 2 * BODY_BYTES_MAX  # browsers send two characters for the end of a line


class Said(NamedTuple):
    """What a form says, checked; named as in Draft and Revision."""

    list_name: str
    subject: str
    on_doubt: OnDoubt
    html: str | None
    text: str | None
    markdown: str | None


def said_in(form: Form) -> Said | None:
    list_name = form.take("list", _chosen_list)
    subject = form.take("subject", _subject)
    doubt = form.value("on_doubt")
    found = form.take("body", lambda _body: bodies_in(form))
    if not form.is_good or list_name is None or subject is None or found is None:
        return None
    on_doubt = OnDoubt.HOLD if doubt == OnDoubt.HOLD else OnDoubt.RESEND
    return Said(list_name, subject, on_doubt, *found)


def _chosen_list(name: str) -> str:
    if not name:
        raise BadInput(_("Choose the list it goes to."))
    return check_list_name(name)


def _subject(text: str) -> str:
    subject = check_subject(text)
    try:
        compile_header(subject)
    except BadTemplate as error:
        raise BadInput(str(error)) from error
    return subject


def bodies_in(form: Form) -> tuple[str | None, str | None, str | None]:
    """HTML, text, and the Markdown that the HTML was made from; an empty one is none."""
    body, text = form.value("body"), form.value("text")
    if form.value("kind") != "markdown" or not body.strip():
        return body if body.strip() else None, text if text.strip() else None, None
    try:
        return html_from_markdown(body), text if text.strip() else None, body
    except BadTemplate as error:
        raise BadInput(str(error)) from error


async def posted_message(request: Request) -> Form:
    """The fields; an uploaded file stands for what was typed, and is shown instead of it."""
    async with opened(request, field_bytes_max=FIELD_BYTES_MAX, files_max=2) as sent:
        form = Form(sent.fields)
        for name, field in (("html_file", "body"), ("text_file", "text")):
            file = sent.files.get(name)
            if file and file.filename:
                await _take_file(form, file, name, field)
        return form


async def _take_file(form: Form, file: UploadFile, name: str, field: str) -> None:
    content = await file.read(BODY_BYTES_MAX + 1)
    if len(content) > BODY_BYTES_MAX:
        form.mistakes[name] = _("The file has more than 2 MiB: shorten it.")
        return
    try:
        form.values[field] = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        form.mistakes[name] = _("The file is not UTF-8: save it as UTF-8, and upload it again.")
        return
    if field == "body":
        is_markdown = (file.filename or "").lower().endswith((".md", ".markdown"))
        form.values["kind"] = "markdown" if is_markdown else "html"


async def values_of(storage: Storage, message: Message) -> dict[str, str]:
    """The fields of a stored message; one that lost its bodies can be written again."""
    try:
        html, text = await bodies.load(storage.blobs, message)
    except NotFound:
        html, text = None, None
    markdown = await bodies.load_markdown(storage.blobs, message)
    return {
        "list": message.list_name,
        "subject": message.subject,
        "on_doubt": message.on_doubt.value,
        "kind": "html" if markdown is None else "markdown",
        "body": (html or "") if markdown is None else markdown,
        "text": text or "",
    }
