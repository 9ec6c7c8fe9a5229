"""Files that a call sends in base64."""

from __future__ import annotations

import base64
import binascii

from postroom.domain.texts import _
from postroom.parsing import in_thread
from postroom.web.api.problems import invalid

PIECE_CHARS = 256 * 1024  # decoded at a time, since the decoder blocks everybody else


async def decoded_file(text: str, field: str) -> bytes:
    """The content of a file; refused, with the name of its member, if it is not base64."""
    try:
        return await in_thread(_decoded, text)
    except (binascii.Error, ValueError):
        raise invalid(_("“{name}” must be base64.", name=field), field) from None


def _decoded(text: str) -> bytes:
    if "=" in text[:-2]:  # else padding could end each piece
        raise ValueError("padding within the text")
    pieces = range(0, len(text), PIECE_CHARS)
    return b"".join(base64.b64decode(text[at : at + PIECE_CHARS], validate=True) for at in pieces)
