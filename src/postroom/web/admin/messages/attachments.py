"""The attachments of a message: their sizes and downloads."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions.attach_files import find_attachment
from postroom.domain.attachment import (
    ATTACHED_BYTES_MAX,
    FILES_MAX,
    Attachment,
    encoded_bytes,
)
from postroom.domain.message import Message
from postroom.records import attachments, counts, messages
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import Viewer
from postroom.web.downloads import as_download

router = APIRouter(prefix="/messages")


class AttachmentsView(msgspec.Struct, frozen=True):
    """The files of a message as pages show them, with their size in emails."""

    ref: str
    files: tuple[Attachment, ...]
    people: int  # who get them
    files_max: int = FILES_MAX
    bytes_max: int = ATTACHED_BYTES_MAX

    @property
    def mail_bytes(self) -> int:
        return encoded_bytes(self.files)

    @property
    def all_bytes(self) -> int:
        return self.mail_bytes * self.people


async def attachments_view(
    tables: Tables, message: Message | None, list_name: str = ""
) -> AttachmentsView:
    """Of a message that is not being sent yet, everybody on the list counts."""
    if message is None or not message.attachments:
        return AttachmentsView(message.ref if message else "", (), 0)
    if message.queuing_at is not None:
        return AttachmentsView(message.ref, message.attachments, message.size)
    people = await counts.read(tables, list_name or message.list_name)
    return AttachmentsView(message.ref, message.attachments, people.verified)


@router.get("/{ref}/attachments/{attachment_id}")
async def download_attachment(request: Viewer, ref: str, attachment_id: str) -> Response:
    message = await messages.read(request.tables, ref)
    attachment = find_attachment(message, attachment_id)
    content = await attachments.load(request.storage.blobs, ref, attachment)
    return as_download(attachment.name, attachment.media_type, content)
