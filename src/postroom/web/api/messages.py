"""/messages: create, show, edit and delete; controls.py schedules and controls them."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query
from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.due_time import FORMS, UnknownZone, parse_due_time
from postroom.domain.errors import BadInput, NotFound
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
from postroom.flow import compose, report
from postroom.flow.compose import Draft, Origin, Revision
from postroom.records import bodies, messages
from postroom.records.idempotency import CallBegun
from postroom.web.api import etags, paging
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.etags import Representation
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import require_list
from postroom.web.api.message_schema import (
    WHOLE_EXAMPLE,
    MessageView,
    Ref,
    WholeMessageView,
    mail_server_troubles,
    require_message,
)
from postroom.web.api.openapi import (
    ABSENT,
    GUARDED,
    WITH_BODY,
    IdempotencyKey,
    IfMatch,
    RequestBody,
    ResultPage,
    documented,
    example,
)
from postroom.web.api.paging import PageQuery
from postroom.web.api.problems import invalid
from postroom.web.api.route import ApiRoute
from postroom.web.api.subscribe import ExistingList

BYTES_MAX = 10 * 1024 * 1024  # two bodies, every character escaped
READ_MAX = 500  # messages read by a call that filters them by list

router = APIRouter(route_class=ApiRoute, tags=["messages"])


Subject = Annotated[
    str,
    AfterValidator(check_subject),
    Field(json_schema_extra={"minLength": 1, "maxLength": SUBJECT_CHARS_MAX}),
]
Body = Annotated[
    str | None,
    AfterValidator(lambda text: None if text is None else check_body(text)),
    Field(description="May contain merge fields such as {{ name }}."),
]
Doubt = Annotated[
    OnDoubt, Field(description="What to do with an email that may or may not have been sent.")
]
At = Annotated[str, Field(description=f"{FORMS}.")]
Zone = Annotated[str, Field(description="The time zone of `at`, such as Europe/Berlin.")]


class NewMessage(RequestBody):
    model_config = example(
        {name: WHOLE_EXAMPLE[name] for name in ("list", "subject", "html")}
        | {"at": "2120-01-01 09:00", "zone": "Europe/Berlin"}
    )
    bytes_max: ClassVar[int] = BYTES_MAX
    list: ExistingList
    subject: Subject
    html: Body = None
    text: Body = None
    at: At = ABSENT
    zone: Zone = ""
    on_doubt: Doubt = OnDoubt.RESEND


class MessageChange(RequestBody):
    model_config = example({"subject": "Lectures begin on Tuesday"})
    bytes_max: ClassVar[int] = BYTES_MAX
    list_name: Annotated[ExistingList, Field(alias="list")] = ABSENT
    subject: Subject = ABSENT
    html: Body = ABSENT
    text: Body = ABSENT
    on_doubt: Doubt = ABSENT


class MessagePageQuery(PageQuery):
    list: Annotated[str, Field(description="Only messages to this list.")] = ABSENT


@router.get(
    "/messages",
    summary="Show messages, newest first",
    **documented(ResultPage[MessageView], "Messages with their last counts.", headers="Link"),
)
async def show_messages(
    request: Request, caller: Reader, query: Annotated[MessagePageQuery, Query()]
) -> Response:
    """An access key that is limited to some lists sees only messages to these.

    A call reads a limited number of messages, so a page may be short without being the last.
    """
    requested = paging.parse_page(request, caller, query)
    if query.list is not None:
        caller.check_may_use(query.list)
    found: list[Message] = []
    after: str | None = requested.after or None
    for _read in range(-(-READ_MAX // requested.limit)):
        missing = requested.limit - len(found)
        read, after = await messages.newest(caller.tables, limit=missing, after=after)
        found += [
            each
            for each in read
            if caller.key.is_for(each.list_name) and query.list in (None, each.list_name)
        ]
        if after is None or len(found) == requested.limit:
            break
    return paging.respond(caller, requested, [message_data(each) for each in found], after)


@router.post(
    "/messages",
    summary="Create a message",
    **documented(MessageView, "The new message.", 404, 409, *WITH_BODY, status=201),
)
async def create_message(
    request: Request, caller: Writer, call: NewMessage, idempotency_key: IdempotencyKey = None
) -> Response:
    """It is sent at `at`; without it, it stays a draft."""

    async def create(begun: CallBegun | None) -> tuple[Representation, str]:
        now = begun.note.begun_at if begun else caller.now
        origin = Origin(begun.call, ref_of_call(begun.call, now)) if begun else None
        if origin and await _is_created(caller, origin, call):
            ref = origin.ref  # by an earlier attempt; its list may have been deleted since
        else:
            await require_list(caller, call.list)
            draft = Draft(
                list_name=call.list,
                subject=call.subject,
                html=call.html,
                text=call.text,
                due_at=None if call.at is None else due_time(call.at, call.zone, now),
                due_zone=call.zone,
                on_doubt=call.on_doubt,
            )
            act = caller.context.act(caller.trace, now)
            ref = (await compose.compose(act, draft, origin)).ref
        message, etag = await messages.read_with_etag(caller.tables, ref)
        return Representation(message_data(message), etag), f"/api/v1/messages/{ref}"

    return await create_once(request, caller, idempotency_key, create)


async def _is_created(caller: ApiCaller, origin: Origin, call: NewMessage) -> bool:
    """Whether an earlier attempt of the same call did everything but store its response."""
    found = await messages.find(caller.tables, origin.ref)
    if found is None or found.origin != origin.call:
        return False
    if call.at is not None:
        return found.status is not Status.DRAFT
    return await _bodies(caller, found) != (None, None)


@router.get(
    "/messages/{ref}",
    summary="Show a message with its bodies and current counts",
    **documented(WholeMessageView, "The message.", 404, headers="ETag"),
)
async def show_message(caller: Reader, ref: Ref) -> Response:
    return etags.respond(await _represent(caller, ref))


@router.patch(
    "/messages/{ref}",
    summary="Edit a draft or a scheduled message",
    **documented(WholeMessageView, "The edited message.", *GUARDED, *WITH_BODY, headers="ETag"),
)
async def edit_message(
    caller: Writer, ref: Ref, call: MessageChange, if_match: IfMatch = None
) -> Response:
    """Omitted members are not changed; null removes a body."""
    revision = Revision(**call.model_dump(exclude_unset=True))
    if revision.list_name is not None:
        await require_list(caller, revision.list_name)
    await etags.change(
        if_match,
        lambda: _represent(caller, ref),
        lambda etag: compose.edit(caller.context.storage, ref, revision, etag),
    )
    return etags.respond(await _represent(caller, ref))


@router.delete(
    "/messages/{ref}",
    summary="Delete a draft or a scheduled message",
    **documented(None, "The message and its bodies are deleted.", *GUARDED, status=204),
)
async def delete_message(caller: Writer, ref: Ref, if_match: IfMatch = None) -> Response:
    await etags.change(
        if_match,
        lambda: _represent(caller, ref),
        lambda etag: compose.discard(caller.context.storage, ref, etag),
    )
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _represent(caller: ApiCaller, ref: str) -> Representation:
    message, etag = await require_message(caller, ref)
    data = message_data(await report.books_of(caller.tables, message))
    data["html"], data["text"] = await _bodies(caller, message)
    data["mail_server_troubles"] = await mail_server_troubles(caller, message)
    return Representation(data, etag)


async def _bodies(caller: ApiCaller, message: Message) -> tuple[str | None, str | None]:
    """None for a draft written only half-way, so that it can be shown, edited and deleted."""
    try:
        return await bodies.load(caller.context.storage.blobs, message)
    except NotFound:
        return None, None


def due_time(at: str, zone: str, now: datetime) -> datetime:
    try:
        return parse_due_time(at, zone, now)
    except BadInput as error:
        field = "zone" if isinstance(error, UnknownZone) else "at"
        raise invalid(str(error)[:300], field) from None
