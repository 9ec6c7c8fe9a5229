"""/messages/{ref}/attachments: attach files to a message, list them, get them, remove them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from postroom.act import Act
from postroom.actions.attach_files import attach, detach, find_attachment
from postroom.domain.attachment import (
    ATTACHED_BYTES_MAX,
    UNKNOWN_TYPE,
    Attachment,
    NewFile,
    clean_name,
    encoded_bytes,
)
from postroom.domain.errors import BadInput
from postroom.domain.message import Message
from postroom.domain.texts import _
from postroom.records import attachments
from postroom.storage.port import Conflict
from postroom.web.api import etags
from postroom.web.api.auth import Reader, Writer
from postroom.web.api.base64_files import decoded_file
from postroom.web.api.etags import Representation
from postroom.web.api.idempotency import create_once
from postroom.web.api.messages import Ref, require_message
from postroom.web.api.openapi import (
    Count,
    IdempotencyKey,
    OptionalIfMatch,
    RequestBody,
    documented,
    example,
)
from postroom.web.api.problems import ApiProblem, invalid
from postroom.web.api.route import ApiRoute
from postroom.web.downloads import as_download

router = APIRouter(prefix="/messages/{ref}/attachments", route_class=ApiRoute, tags=["messages"])

AttachmentId = Annotated[str, Path(alias="attachment", description="The id of an attachment.")]
EXAMPLE: dict[str, Any] = {
    "id": "5f0c6d1e9a7b4c3d8e2f1a0b9c8d7e6f",
    "name": "programme.pdf",
    "media_type": "application/pdf",
    "bytes": 48213,
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}


class AttachmentView(BaseModel):
    model_config = example(EXAMPLE)
    id: str
    name: str
    media_type: str
    bytes: Count
    sha256: str


class AttachmentList(BaseModel):
    model_config = example({"items": [EXAMPLE], "encoded_bytes": 65978})
    items: list[AttachmentView]
    encoded_bytes: Count = Field(description="What they add to every email, as base64.")


class NewAttachment(RequestBody):
    model_config = example({"name": "programme.pdf", "content": "JVBERi0xLjcK"})
    bytes_max: ClassVar[int] = ATTACHED_BYTES_MAX // 3 * 4 + 64 * 1024
    name: Annotated[
        str,
        AfterValidator(clean_name),
        Field(description="The file name, whose extension determines the media type."),
    ]
    content: str = Field(description="The file in base64.", min_length=1)


@router.get("", **documented(AttachmentList, "The attachments, in the order of the emails."))
async def show_attachments(caller: Reader, ref: Ref) -> Response:
    """Show the attachments of a message."""
    message, etag = await require_message(caller, ref)
    return etags.respond(Representation(_list_data(message), etag))


@router.post("", **documented(AttachmentView, "The new attachment.", status=201))
async def attach_file(
    caller: Writer, ref: Ref, call: NewAttachment, idempotency_key: IdempotencyKey = None
) -> Response:
    """Attach a file to a draft or a scheduled message.

    All attachments of a message together can be at most 10 MiB. Files that Gmail and Outlook
    block, such as programs, are refused.
    """
    content = await decoded_file(call.content, "content")

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        before, _etag = await require_message(caller, ref)
        try:
            file = NewFile(call.name, content)
            message, etag = await attach(act, ref, [file], call=call_id)
        except BadInput as error:
            raise invalid(str(error)[:300], "content") from None
        known = {each.id for each in before.attachments}
        new = [each for each in message.attachments if each.id not in known]
        attached = new[-1] if new else message.attachments[-1]
        path = f"/api/v1/messages/{ref}/attachments/{attached.id}"
        return Representation(_data(attached), etag), path

    return await create_once(caller, idempotency_key, create)


@router.get(
    "/{attachment}",
    response_class=Response,
    responses={
        200: {
            "description": "The content.",
            "content": {
                UNKNOWN_TYPE: {
                    "schema": {"type": "string", "format": "binary"},
                    "example": "%PDF-1.7",
                }
            },
        }
    },
)
async def get_attachment(caller: Reader, ref: Ref, attachment_id: AttachmentId) -> Response:
    """Get the content of an attachment."""
    message, _etag = await require_message(caller, ref)
    attachment = find_attachment(message, attachment_id)
    content = await attachments.load(caller.context.storage.blobs, ref, attachment)
    return as_download(attachment.name, UNKNOWN_TYPE, content)


@router.delete("/{attachment}", **documented(None, "The attachment is removed.", status=204))
async def remove_attachment(
    caller: Writer, ref: Ref, attachment_id: AttachmentId, if_match: OptionalIfMatch = None
) -> Response:
    """Remove an attachment from a draft or a scheduled message."""
    message, etag = await require_message(caller, ref)
    etags.check_if_match(if_match, Representation(_list_data(message), etag))
    try:
        await detach(caller.act, ref, attachment_id, etag)
    except Conflict:
        raise ApiProblem(409, _("The message has just been changed. Try again.")) from None
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _data(attachment: Attachment) -> dict[str, Any]:
    return msgspec.structs.asdict(attachment)


def _list_data(message: Message) -> dict[str, Any]:
    attached = message.attachments
    return {"items": [_data(each) for each in attached], "encoded_bytes": encoded_bytes(attached)}
