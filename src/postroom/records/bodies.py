"""The bodies of a message as blobs.

    <ref>.htm            <ref>.txt              as first written
    <ref>-<edition>.htm  <ref>-<edition>.txt    after an edit
    <ref>.md             <ref>-<edition>.md     the Markdown source of the HTML, if any

An edit writes new blobs beside the old ones, and the message's row names the current edition, so
an edit that dies half-way or comes too late changes nothing.
"""

from __future__ import annotations

from postroom.domain.errors import NotFound
from postroom.domain.message import Message
from postroom.domain.texts import _
from postroom.storage.port import Blobs

HTML, TEXT, MARKDOWN = "htm", "txt", "md"


async def put(
    blobs: Blobs, message: Message, html: str | None, text: str | None, markdown: str | None = None
) -> None:
    for ending, body in ((HTML, html), (TEXT, text), (MARKDOWN, markdown)):
        if body is not None:
            await blobs.put(_name(message, ending), body.encode())


async def load(blobs: Blobs, message: Message) -> tuple[str | None, str | None]:
    """HTML and text, each None if the message has none."""
    html = await _load(blobs, message, HTML) if message.has_html else None
    text = await _load(blobs, message, TEXT) if message.has_text else None
    return html, text


async def load_markdown(blobs: Blobs, message: Message) -> str | None:
    """Load the Markdown that the HTML was made from; nothing that is sent depends on it."""
    content = await blobs.get(_name(message, MARKDOWN))
    return None if content is None else content.decode(errors="replace")


async def delete(blobs: Blobs, message: Message) -> None:
    for ending in (HTML, TEXT, MARKDOWN):
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
        raise NotFound(_("The body {name} is missing from the storage.", name=name))
    return content.decode(errors="replace")


def _name(message: Message, ending: str) -> str:
    edition = f"-{message.edition}" if message.edition else ""
    return f"{message.ref}{edition}.{ending}"
