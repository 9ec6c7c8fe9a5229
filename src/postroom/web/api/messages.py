"""/messages: write, look at, edit and delete them; steering.py has what comes after that."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.due_time import FORMS, UnknownZone, parse_due_time
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.message import (
    SUBJECT_CHARS_MAX,
    Message,
    OnDoubt,
    Status,
    check_body,
    check_subject,
    message_data,
    ref_of_call,
)
from postroom.domain.texts import _
from postroom.flow import compose, report
from postroom.flow.compose import Draft, Origin, Revision
from postroom.records import bodies, messages
from postroom.records.idempotency import CallBegun
from postroom.web.api import body, etags, openapi, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.body import Member
from postroom.web.api.etags import SeenVersion
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import known_list
from postroom.web.api.message_schema import (
    EXAMPLE,
    MESSAGE,
    MESSAGE_PAGE,
    WHOLE_EXAMPLE,
    WHOLE_MESSAGE,
    Ref,
    known_message,
    mail_server_troubles,
)
from postroom.web.api.openapi import WITH_BODY, responses
from postroom.web.api.problems import ApiProblem, ApiRoute

BYTES_MAX = 10 * 1024 * 1024  # two bodies, every character escaped
LOOKED_AT_MAX = 500  # messages a call, when only those of some lists are wanted

router = APIRouter(route_class=ApiRoute, tags=["messages"])

_BODY_SCHEMA = {"type": ["string", "null"], "description": "With merge fields, {{ name }}."}
_LIST = Member(_("a text, the name of a list"), check_list_name)
_SUBJECT = Member(
    _("a text of one line"),
    check_subject,
    {"type": "string", "minLength": 1, "maxLength": SUBJECT_CHARS_MAX},
)
_BODY = Member(_("a text, or null for none"), check_body, _BODY_SCHEMA)
_ON_DOUBT = Member(
    _("resend or hold"),
    schema={
        "type": "string",
        "enum": list(OnDoubt),
        "description": "What happens to a mail of which nobody can tell whether it went out.",
    },
)
AT = Member(_("a text, a time"), schema={"type": "string", "description": f"{FORMS}."})
ZONE = Member(_("a text, a time zone such as Europe/Berlin"))


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    list: Annotated[str, _LIST]
    subject: Annotated[str, _SUBJECT]
    html: Annotated[str | None, _BODY] = None
    text: Annotated[str | None, _BODY] = None
    at: Annotated[str | UnsetType, AT] = UNSET
    zone: Annotated[str, ZONE] = ""
    on_doubt: Annotated[OnDoubt, _ON_DOUBT] = OnDoubt.RESEND


class MessageChange(msgspec.Struct, forbid_unknown_fields=True):
    list: Annotated[str | UnsetType, _LIST] = UNSET
    subject: Annotated[str | UnsetType, _SUBJECT] = UNSET
    html: Annotated[str | UnsetType | None, _BODY] = UNSET
    text: Annotated[str | UnsetType | None, _BODY] = UNSET
    on_doubt: Annotated[OnDoubt | UnsetType, _ON_DOUBT] = UNSET


_NEW_EXAMPLE = {
    "list": "contoso1",
    "subject": "New lecture series",
    "html": "<p>Dear {{ name }}, lectures begin on Monday.</p>",
    "at": "2120-01-01 09:00",
    "zone": "Europe/Berlin",
}
_BY_LIST = {
    "name": "list",
    "in": "query",
    "description": "Only messages to this list.",
    "schema": {"type": "string"},
}


@router.get(
    "/messages",
    summary="Messages, the newest first",
    responses=responses(
        200, "A page of messages, with the books of the last report.", MESSAGE_PAGE,
        {"items": [EXAMPLE], "next": None}, refused=(422,), headers=("Link",),
    ),
    openapi_extra={"parameters": paging.parameters(_BY_LIST)},
)  # fmt: skip
async def show_messages(request: Request, caller: Reader) -> Response:
    """A key that is limited to lists sees their messages alone."""
    asked = paging.page_request(request, caller, "list")
    wanted = asked.filters.get("list")
    if wanted is not None:
        caller.check_may_use(wanted)
    found, after = await _newest(caller, asked, wanted)
    return paging.page(caller, asked, [message_data(each) for each in found], after)


async def _newest(
    caller: ApiCaller, asked: paging.PageRequest, wanted: str | None
) -> tuple[list[Message], str | None]:
    """Looks at so many and no more: a page may be short, and not be the last."""
    found: list[Message] = []
    after: str | None = asked.after or None
    for _look in range(-(-LOOKED_AT_MAX // asked.limit)):
        room = asked.limit - len(found)
        seen, after = await messages.newest(caller.tables, limit=room, after=after)
        found += [each for each in seen if _is_shown(caller, each, wanted)]
        if after is None or len(found) == asked.limit:
            break
    return found, after


def _is_shown(caller: ApiCaller, message: Message, wanted: str | None) -> bool:
    return caller.key.is_for(message.list_name) and wanted in (None, message.list_name)


@router.post(
    "/messages",
    status_code=HTTPStatus.CREATED,
    summary="Write a message",
    responses=responses(
        201, "The message.", MESSAGE, EXAMPLE,
        refused=(404, 409, *WITH_BODY), headers=("ETag", "Location"),
    ),
    openapi_extra={
        "parameters": [openapi.IDEMPOTENCY_KEY],
        "requestBody": openapi.taking(NewMessage, _NEW_EXAMPLE),
    },
)  # fmt: skip
async def write_message(request: Request, caller: Writer) -> Response:
    """It goes out `at` its time; without one it stays a draft."""
    sent = await body.receive(request, BYTES_MAX)
    call = await body.parsed(sent, NewMessage)

    async def create(begun: CallBegun | None) -> tuple[SeenVersion, str]:
        now = begun.note.begun_at if begun else caller.now
        origin = Origin(begun.call, ref_of_call(begun.call, now)) if begun else None
        if origin and await _is_written(caller, origin, call):
            ref = origin.ref  # an earlier try wrote it; its list may be gone since
        else:
            await known_list(caller, call.list)
            draft = _draft(call, now)
            act = caller.context.act(caller.trace, now)
            ref = (await compose.compose(act, draft, origin)).ref
        message, etag = await messages.read_with_etag(caller.tables, ref)
        return SeenVersion(message_data(message), etag), f"/api/v1/messages/{ref}"

    return await create_once(request, caller, sent, create)


async def _is_written(caller: ApiCaller, origin: Origin, call: NewMessage) -> bool:
    """Whether an earlier try of the same call got to its end, but for the note of it."""
    found = await messages.find(caller.tables, origin.ref)
    if found is None or found.origin != origin.call:
        return False
    if call.at is not UNSET:
        return found.status is not Status.DRAFT
    return await _bodies(caller, found) != (None, None)


def _draft(call: NewMessage, now: datetime) -> Draft:
    return Draft(
        list_name=call.list,
        subject=call.subject,
        html=call.html,
        text=call.text,
        due_at=None if call.at is UNSET else due_time(call.at, call.zone, now),
        due_zone=call.zone,
        on_doubt=call.on_doubt,
    )


@router.get(
    "/messages/{ref}",
    summary="A message with its bodies and its books of this moment",
    responses=responses(
        200, "The message.", WHOLE_MESSAGE, WHOLE_EXAMPLE, refused=(404,), headers=("ETag",)
    ),
)
async def show_message(caller: Reader, ref: Ref) -> Response:
    return etags.shown(await _look(caller, ref))


@router.patch(
    "/messages/{ref}",
    summary="Edit a draft or a pending message",
    responses=responses(
        200, "The message as it says now.", WHOLE_MESSAGE, WHOLE_EXAMPLE,
        refused=(*openapi.GUARDED, *WITH_BODY), headers=("ETag",),
    ),
    openapi_extra={
        "parameters": [openapi.IF_MATCH],
        "requestBody": openapi.taking(MessageChange, {"subject": "Lectures begin on Tuesday"}),
    },
)  # fmt: skip
async def edit_message(request: Request, caller: Writer, ref: Ref) -> Response:
    """What is not named stays; a body that is null is taken away."""
    call = await body.read_body(request, MessageChange, BYTES_MAX)
    if call.list is not UNSET:
        await known_list(caller, call.list)
    revision = Revision(
        list_name=None if call.list is UNSET else call.list,
        subject=None if call.subject is UNSET else call.subject,
        html=call.html,
        text=call.text,
        on_doubt=None if call.on_doubt is UNSET else call.on_doubt,
    )

    async def act(etag: str) -> None:
        await compose.edit(caller.context.storage, ref, revision, etag)

    await etags.change(request, lambda: _look(caller, ref), act)
    return etags.shown(await _look(caller, ref))


@router.delete(
    "/messages/{ref}",
    status_code=HTTPStatus.NO_CONTENT,
    summary="Delete a draft or a pending message",
    responses=responses(204, "Gone, with its bodies.", None, refused=openapi.GUARDED),
    openapi_extra={"parameters": [openapi.IF_MATCH]},
)
async def delete_message(request: Request, caller: Writer, ref: Ref) -> Response:
    async def act(etag: str) -> None:
        await compose.discard(caller.context.storage, ref, etag)

    await etags.change(request, lambda: _look(caller, ref), act)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _look(caller: ApiCaller, ref: str) -> SeenVersion:
    message, etag = await known_message(caller, ref)
    counted = await report.books_of(caller.tables, message)
    html, text = await _bodies(caller, message)
    troubles = await mail_server_troubles(caller, message)
    shown = message_data(counted) | {"mail_server_troubles": troubles}
    return SeenVersion(shown | {"html": html, "text": text}, etag)


async def _bodies(caller: ApiCaller, message: Message) -> tuple[str | None, str | None]:
    """None of a draft whose writer died half-way: so it can be seen, mended and deleted."""
    try:
        return await bodies.load(caller.context.storage.blobs, message)
    except NotFound:
        return None, None


def due_time(at: str, zone: str, now: datetime) -> datetime:
    try:
        return parse_due_time(at, zone, now)
    except BadInput as error:
        field = "zone" if isinstance(error, UnknownZone) else "at"
        raise ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)[:300], field=field) from None
