"""The attachments of a message as blobs; its row lists them.

    <ref>-<id>.attachment    the content of one file, which never changes

A blob is written before the row names it, and deleted after the row no longer does. A crash in
between leaves an unused blob, which is deleted with the message (records/bodies.py).
"""

from __future__ import annotations

import hashlib

from postroom.domain.attachment import Attachment
from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.storage.port import Blobs


async def put(blobs: Blobs, ref: str, attachment: Attachment, content: bytes) -> None:
    await blobs.put(_blob(ref, attachment), content)


async def load(blobs: Blobs, ref: str, attachment: Attachment) -> bytes:
    """The content; NotFound if it is missing or is not what was attached."""
    content = await blobs.get(_blob(ref, attachment))
    if content is None or hashlib.sha256(content).hexdigest() != attachment.sha256:
        raise NotFound(
            _(
                "The attachment “{name}” is missing from storage, or damaged.",
                name=attachment.name,
            )
        )
    return content


async def delete(blobs: Blobs, ref: str, attachment: Attachment) -> None:
    await blobs.delete(_blob(ref, attachment))


def _blob(ref: str, attachment: Attachment) -> str:
    return f"{ref}-{attachment.id}.attachment"
