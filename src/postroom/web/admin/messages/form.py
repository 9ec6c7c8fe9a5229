"""The form of a message: reading it, checking it, and filling it from a stored message."""

from __future__ import annotations

import re
from typing import NamedTuple

from starlette.datastructures import UploadFile
from starlette.requests import Request

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import BODY_BYTES_MAX, Message, OnDoubt, check_subject
from postroom.domain.texts import _
from postroom.mail.markdown import html_from_markdown
from postroom.mail.merge import compile_header
from postroom.parsing import in_thread
from postroom.records import bodies
from postroom.storage.port import Storage
from postroom.web import labels
from postroom.web.forms import Form, opened

FIELD_BYTES_MAX = 8 * 1024 * 1024  # up to this size, a body that is too long gets an error message
# What the body and the text part may be uploaded as; the second kind of each is Markdown.
_BODY_FILES = ((".htm", ".html"), (".md", ".markdown", ".txt"))
_TEXT_FILES = ((".txt",), (".md", ".markdown"))
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


class MessageInput(NamedTuple):
    """The checked content of a form, with the names of Draft and Revision."""

    list_name: str
    subject: str
    on_doubt: OnDoubt
    html: str | None
    text: str | None
    markdown: str | None


async def read_input(form: Form) -> MessageInput | None:
    """The content; None, with errors in the form, if it is not valid."""
    list_name = form.take("list", _chosen_list)
    subject = form.take("subject", _subject)
    found = None
    try:
        found = await bodies_in(form)
    except BadInput as error:
        form.mistakes["body"] = str(error)
    if not form.is_good or list_name is None or subject is None or found is None:
        return None
    on_doubt = OnDoubt.HOLD if form.value("on_doubt") == OnDoubt.HOLD else OnDoubt.RESEND
    return MessageInput(list_name, subject, on_doubt, *found)


def _chosen_list(name: str) -> str:
    if not name:
        raise BadInput(_("Choose a list."))
    return check_list_name(name)


def _subject(text: str) -> str:
    subject = check_subject(text)
    compile_header(subject)
    return subject


async def bodies_in(form: Form) -> tuple[str | None, str | None, str | None]:
    """HTML, text, and the Markdown source of the HTML; None if empty."""
    body = form.value("body")
    text = form.value("text")
    for each in (body, text):
        size = len(each.encode(errors="surrogatepass"))
        if size > BODY_BYTES_MAX:  # before anything else is done with it
            raise BadInput(
                _(
                    "The body is {size}, but can be at most {limit}. Shorten it, or put large "
                    "images on a website.",
                    size=labels.size(size),
                    limit=labels.size(BODY_BYTES_MAX),
                )
            )
    html = body if body.strip() else None
    markdown = None
    if html is not None and form.value("kind") == "markdown":
        html = await in_thread(html_from_markdown, body)
        markdown = body
    return html, text if text.strip() else None, markdown


async def posted_message(request: Request) -> Form:
    """The fields; an uploaded file replaces what was typed."""
    async with opened(request, field_bytes_max=FIELD_BYTES_MAX, files_max=2) as submitted:
        form = Form(submitted.fields)
        for name, field in (("html_file", "body"), ("text_file", "text")):
            file = submitted.files.get(name)
            if file and file.filename:
                await _read_file(form, file, name, field)
        return form


async def _read_file(form: Form, file: UploadFile, name: str, field: str) -> None:
    """Keep what was typed if the file is refused."""
    file_name = (file.filename or "").lower()
    size = file.size or 0
    plain, markdown = _BODY_FILES if field == "body" else _TEXT_FILES
    if not file_name.endswith(plain + markdown):
        form.mistakes[name] = _(
            "Choose a file of one of these types: {kinds}.", kinds=", ".join(plain + markdown)
        )
        return
    if size > BODY_BYTES_MAX:
        form.mistakes[name] = _(
            "The file is {size}, but the body can be at most {limit}. Shorten it, or put large "
            "images on a website.",
            size=labels.size(size),
            limit=labels.size(BODY_BYTES_MAX),
        )
        return
    try:
        text = (await file.read(BODY_BYTES_MAX)).decode("utf-8-sig")
    except UnicodeDecodeError:
        form.mistakes[name] = _("The file is not in UTF-8. Save it as UTF-8 and upload it again.")
        return
    if _CONTROL_CHARACTERS.search(text):
        form.mistakes[name] = _("This is not a text file. Choose another one.")
        return
    form.values[field] = text.replace("\r\n", "\n")
    if field == "body":
        form.values["kind"] = "markdown" if file_name.endswith(markdown) else "html"


async def values_of(storage: Storage, message: Message) -> dict[str, str]:
    """The fields of a stored message; empty bodies if they were deleted."""
    try:
        html, text = await bodies.load(storage.blobs, message)
    except NotFound:
        html = text = None
    markdown = await bodies.load_markdown(storage.blobs, message)
    return {
        "list": message.list_name,
        "subject": message.subject,
        "on_doubt": message.on_doubt.value,
        "kind": "html" if markdown is None else "markdown",
        "body": (html or "") if markdown is None else markdown,
        "text": text or "",
    }
