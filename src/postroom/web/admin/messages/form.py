"""The form of a message: reading it, checking it, and filling it from a stored message."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.datastructures import UploadFile
from starlette.requests import Request

from postroom.domain.attachment import ATTACHED_BYTES_MAX, FILES_MAX, NewFile, new_attachments
from postroom.domain.block import BadBlock
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import (
    BODY_BYTES_MAX,
    BodyKind,
    Message,
    OnDoubt,
    check_language,
    check_subject,
)
from postroom.domain.texts import _
from postroom.mail.merge import compile_header
from postroom.mail.mime import check_template
from postroom.mail.preview_text import check_preview_text
from postroom.parsing import in_thread
from postroom.records import bodies, lists
from postroom.records.bodies import MessageBodies
from postroom.storage.port import Storage, Tables
from postroom.web import labels
from postroom.web.admin.block_pictures import FILE as PICTURE_FILE
from postroom.web.admin.block_pictures import read_picture
from postroom.web.block_form import FIELDS_MAX, edited, gather_blocks
from postroom.web.forms import Form, opened
from postroom.writing.sources import BodySource, has_styles, html_from_source

FIELD_BYTES_MAX = 8 * 1024 * 1024  # up to this size, a body that is too long gets an error message
KEEP_STYLES = "keep"  # the value of the field css: send <style> as it was written
# What the body and the text part may be uploaded as; the second kind of each is Markdown.
_BODY_FILES = ((".htm", ".html", ".mjml"), (".md", ".markdown", ".txt"))
_TEXT_FILES = ((".txt",), (".md", ".markdown"))
ATTACHMENTS = "attachments"  # the field with files to attach
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass
class MessageForm(Form):
    """With the files that are to be attached; a page cannot choose them again."""

    files: list[NewFile] = field(default_factory=list)


class MessageInput(NamedTuple):
    """The checked content of a form, with the names of Draft and Revision."""

    list_name: str
    subject: str
    preview_text: str
    language: str
    on_doubt: OnDoubt
    html: str | None
    text: str | None
    source: BodySource | None


async def read_input(form: Form, tables: Tables) -> MessageInput | None:
    """The content; None, with errors in the form, if it is not valid."""
    list_name = form.take("list", _chosen_list)
    subject = form.take("subject", _subject)
    preview_text = form.take("preview_text", _preview_text)
    language = form.take("language", lambda text: check_language(text.strip()))
    found = None
    try:
        found = await bodies_in(form, await _list_language(tables, list_name or ""))
    except BadBlock as error:
        form.mistakes[f"block-{error.block_id}" if error.block_id else "document"] = str(error)
    except BadInput as error:
        form.mistakes["body"] = str(error)
    if not form.is_good or list_name is None or subject is None or found is None:
        return None
    on_doubt = OnDoubt.HOLD if form.value("on_doubt") == OnDoubt.HOLD else OnDoubt.RESEND
    return MessageInput(
        list_name,
        subject,
        preview_text or "",
        language or "",
        on_doubt,
        found.html,
        found.text,
        found.source,
    )


async def _list_language(tables: Tables, list_name: str) -> str:
    found = await lists.find(tables, list_name) if list_name else None
    return found.language if found else "en"


def _preview_text(text: str) -> str:
    text = check_preview_text(text)
    check_template(text, is_html=False)
    return text


def _chosen_list(name: str) -> str:
    if not name:
        raise BadInput(_("Choose a list."))
    return check_list_name(name)


def _subject(text: str) -> str:
    subject = check_subject(text)
    compile_header(subject)
    return subject


async def bodies_in(form: Form, list_language: str = "en") -> MessageBodies:
    """The bodies that are sent, and what the HTML is made from."""
    body = form.value("body")
    text = form.value("text")
    for each in (body, text):
        size = len(each.encode(errors="surrogatepass"))
        if size > BODY_BYTES_MAX:  # before anything else is done with it
            raise BadInput(
                _(
                    "The body is {size}, but can be at most {limit}. Shorten it, or put large "
                    "pictures on a website.",
                    size=labels.size(size),
                    limit=labels.size(BODY_BYTES_MAX),
                )
            )
    html = body if body.strip() else None
    source = _source_in(form)
    if source:
        language = form.value("language").strip() or list_language
        html = await in_thread(html_from_source, source, language)
    return MessageBodies(html=html, text=text if text.strip() else None, source=source)


def _source_in(form: Form) -> BodySource | None:
    """What the HTML is made from; None if it is sent as it was typed, or if there is nothing."""
    body = form.value("body")
    match form.value("kind"):
        case BodyKind.BLOCKS:
            has_blocks = bool(edited(form.value("document")).blocks)
            return BodySource(BodyKind.BLOCKS, form.value("document")) if has_blocks else None
        case (BodyKind.MARKDOWN | BodyKind.MJML) as kind:
            return BodySource(BodyKind(kind), body) if body.strip() else None
    is_inlined = form.value("css") != KEEP_STYLES and has_styles(body)
    return BodySource(BodyKind.HTML, body) if is_inlined else None


async def posted_message(request: Request) -> MessageForm:
    """The fields; an uploaded file replaces what was typed."""
    async with opened(
        request,
        fields_max=FIELDS_MAX,
        field_bytes_max=FIELD_BYTES_MAX,
        files_max=3 + 2 * FILES_MAX,  # so that too many get their own error
    ) as submitted:
        form = MessageForm(submitted.fields)
        gather_blocks(form)
        for name, field in (("html_file", "body"), ("text_file", "text")):
            file = submitted.files.get(name)
            if file and file.filename:
                await _read_file(form, file, name, field)
        await _read_attachments(form, submitted.all_files.get(ATTACHMENTS, []))
        await read_picture(form, submitted.files.get(PICTURE_FILE))
        return form


async def _read_attachments(form: MessageForm, files: list[UploadFile]) -> None:
    """Read the files; if one cannot be attached, the form says why."""
    chosen = [file for file in files if file.filename]
    for file in chosen:
        # One byte more than allowed is enough for the check to refuse it.
        content = await file.read(ATTACHED_BYTES_MAX + 1)
        form.files.append(NewFile(file.filename or "", content))
    try:
        await in_thread(new_attachments, form.files, [])
    except BadInput as error:
        form.mistakes[ATTACHMENTS] = str(error)
    # Part of what makes a submission the same as another one.
    digests = [f"{each.name} {hashlib.sha256(each.content).hexdigest()}" for each in form.files]
    form.values["attached"] = " ".join(digests)


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
            "pictures on a website.",
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
        is_mjml = file_name.endswith(".mjml")
        is_markdown = file_name.endswith(markdown)
        form.values["kind"] = "mjml" if is_mjml else "markdown" if is_markdown else "html"


async def values_of(storage: Storage, message: Message) -> dict[str, str]:
    """The fields of a stored message; empty bodies if they were deleted."""
    try:
        content = await bodies.load_all(storage.blobs, message)
    except NotFound:
        content = MessageBodies()
    source = content.source
    values = {
        "list": message.list_name,
        "subject": message.subject,
        "preview_text": message.preview_text,
        "language": message.language,
        "on_doubt": message.on_doubt.value,
        "kind": message.kind.value,
        "text": content.text or "",
    }
    if source and source.kind is BodyKind.BLOCKS:
        return values | {"document": source.text}
    is_kept = message.kind is BodyKind.HTML and source is None and has_styles(content.html or "")
    css = {"css": KEEP_STYLES} if is_kept else {}
    return values | css | {"body": source.text if source else content.html or ""}
