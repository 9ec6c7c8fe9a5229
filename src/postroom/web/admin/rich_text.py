"""The Markdown of a text as a document of the rich text editor, which has no parser of its own."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.block import TEXT_CHARS_MAX
from postroom.parsing import in_thread
from postroom.web.admin.admin_request import Editor
from postroom.web.forms import opened
from postroom.writing.editor_text import editor_document

router = APIRouter(prefix="/rich-text")
FIELD_BYTES_MAX = 12 * TEXT_CHARS_MAX  # a character is up to four bytes, each written as %XX


@router.post("")
async def read(request: Editor) -> Response:
    """JSON; nothing if the text can only be edited as Markdown."""
    async with opened(request.http, field_bytes_max=FIELD_BYTES_MAX) as submitted:
        text = submitted.fields.get("text", "")
    document = await in_thread(editor_document, text)
    return Response(document, media_type="application/json")
