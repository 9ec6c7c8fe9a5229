"""The bodies of a message as blobs.

    <ref>.htm            <ref>.txt              as first written
    <ref>-<edition>.htm  <ref>-<edition>.txt    after an edit
    <ref>.md  .mjml  .json  .source             what the HTML was made from, by the message's kind
    <ref>-import.report                         what happened to an imported page

An edit writes new blobs beside the old ones, and the message's row names the current edition, so
an edit that dies half-way or comes too late changes nothing.
"""

from __future__ import annotations

import msgspec

from postroom.domain.errors import NotFound
from postroom.domain.message import BodyKind, Message
from postroom.domain.texts import _
from postroom.records import media
from postroom.storage.port import Blobs, Storage
from postroom.writing.html_import import ImportReport
from postroom.writing.sources import BodySource

HTML, TEXT = "htm", "txt"
SOURCES = {
    BodyKind.HTML: "source",  # before its styles were inlined
    BodyKind.MARKDOWN: "md",
    BodyKind.MJML: "mjml",
    BodyKind.BLOCKS: "json",
}


class MessageBodies(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message: the parts that are sent, and the source of the HTML."""

    html: str | None = None
    text: str | None = None
    source: BodySource | None = None


async def put(storage: Storage, message: Message, content: MessageBodies) -> None:
    """Write the existing bodies; the message's kind is that of the source.

    The use of their pictures is noted first (media.py).
    """
    source = content.source
    texts = [content.html, content.text, source.text if source else None]
    await media.note_message(storage.tables, message.ref, texts)
    parts = [(HTML, content.html), (TEXT, content.text)]
    parts += [(SOURCES[source.kind], source.text)] if source else []
    for ending, body in parts:
        if body is not None:
            await storage.blobs.put(_name(message, ending), body.encode())


async def load(blobs: Blobs, message: Message) -> tuple[str | None, str | None]:
    """HTML and text, each None if the message has none."""
    html = await _load(blobs, message, HTML) if message.has_html else None
    text = await _load(blobs, message, TEXT) if message.has_text else None
    return html, text


async def load_source(blobs: Blobs, message: Message) -> BodySource | None:
    """Load what the HTML was made from; nothing that is sent depends on it."""
    content = await blobs.get(_name(message, SOURCES[message.kind]))
    return BodySource(message.kind, content.decode(errors="replace")) if content else None


async def load_all(blobs: Blobs, message: Message) -> MessageBodies:
    html, text = await load(blobs, message)
    return MessageBodies(html=html, text=text, source=await load_source(blobs, message))


async def put_report(blobs: Blobs, ref: str, report: ImportReport) -> None:
    """Keep what happened when the message was imported; it is deleted with the message."""
    await blobs.put(f"{ref}-import.report", msgspec.json.encode(report))


async def load_report(blobs: Blobs, ref: str) -> ImportReport:
    content = await blobs.get(f"{ref}-import.report")
    return msgspec.json.decode(content or b"{}", type=ImportReport)


async def delete(blobs: Blobs, message: Message) -> None:
    for ending in (HTML, TEXT, SOURCES[message.kind]):
        await blobs.delete(_name(message, ending))


async def delete_all(blobs: Blobs, ref: str) -> None:
    """Delete all editions, including those of edits that died half-way; there are only a few."""
    after: str | None = None
    while True:
        names, after = await blobs.list(ref, after=after)
        for name in names:
            await blobs.delete(name)
        if after is None:
            return


async def _load(blobs: Blobs, message: Message, ending: str) -> str:
    name = _name(message, ending)
    content = await blobs.get(name)
    if content is None:
        raise NotFound(_("The body {name} is missing from storage.", name=name))
    return content.decode(errors="replace")


def _name(message: Message, ending: str) -> str:
    edition = f"-{message.edition}" if message.edition else ""
    return f"{message.ref}{edition}.{ending}"
