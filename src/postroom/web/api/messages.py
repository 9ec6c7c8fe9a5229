"""/messages: create, show, edit and delete, and the outcome of every recipient; see controls.py."""

from __future__ import annotations

import builtins
import contextlib
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.due_time import FORMS, UnknownZone, parse_due_time
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.message import (
    GOING_OUT,
    SUBJECT_CHARS_MAX,
    BodyKind,
    Message,
    OnDoubt,
    Status,
    check_subject,
    message_data,
    ref_of_call,
)
from postroom.domain.texts import _
from postroom.domain.trouble import TroubleKind
from postroom.flow import compose, report
from postroom.flow.compose import Draft, Origin, Revision
from postroom.records import bodies, leases, lists, messages, recipient_outcomes
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition
from postroom.records.stored import Stored
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Reader, Writer
from postroom.web.api.bodies import BodyMembers, written_again
from postroom.web.api.etags import Representation, expected_version
from postroom.web.api.idempotency import create_once
from postroom.web.api.lists import ExistingList, require_list
from postroom.web.api.openapi import (
    ABSENT,
    Count,
    IdempotencyKey,
    IfMatch,
    ResultPage,
    documented,
    example,
)
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.problems import ApiProblem, invalid
from postroom.web.api.route import ApiRoute
from postroom.web.mail_server import shared_troubles

READ_MAX = 500  # messages read by a call that filters them by list

router = APIRouter(prefix="/messages", route_class=ApiRoute, tags=["messages"])

Ref = Annotated[str, Path(description="The ref of a message.", examples=["634852858215726983"])]
_COUNTS = ("audience", "queued", "sending", "sent", "failed", "held", "skipped", "doubts")
EXAMPLE: dict[str, Any] = {
    "ref": "639154470120000000",
    "status": "pending",
    "list": "contoso1",
    "subject": "New lecture series",
    "from": "History Department <donotreply@contoso.edu>",
    "format": "html",
    "preview_text": "",
    "language": "",
    "on_doubt": "resend",
    **dict.fromkeys(_COUNTS, 0),
    "attachments": [],
    "test_mode": False,
    "created_at": "2026-11-15T09:00:00Z",
    "due_at": "2120-01-01T08:00:00Z",
    "completed_at": None,
}
WHOLE_EXAMPLE = EXAMPLE | {
    "mail_server_troubles": [],
    "html": "<p>Dear {{ name }}, lectures begin on Monday.</p>",
    "text": None,
}
_REVISED = {"list_name", "subject", "text", "preview_text", "language", "on_doubt"}
OutcomeName = StrEnum("OutcomeName", [(name, name) for name in OUTCOMES])  # type: ignore[misc]

Subject = Annotated[
    str,
    AfterValidator(check_subject),
    Field(json_schema_extra={"minLength": 1, "maxLength": SUBJECT_CHARS_MAX}),
]
Doubt = Annotated[
    OnDoubt, Field(description="What to do with an email that may or may not have been sent.")
]
At = Annotated[str, Field(description=f"{FORMS}.")]
Zone = Annotated[str, Field(description="The time zone of `at`, such as Europe/Berlin.")]


class MessageView(BaseModel):
    model_config = example(EXAMPLE)
    ref: str
    status: Status
    list: str
    subject: str
    sender: str = Field(alias="from")
    format: BodyKind = Field(description="What the HTML is made from; see …/source.")
    preview_text: str
    language: str = Field(description="The language of its text; empty for that of the list.")
    on_doubt: OnDoubt
    audience: Count
    queued: Count
    sending: Count
    sent: Count
    failed: Count
    held: Count
    skipped: Count
    doubts: Count
    attachments: builtins.list[str] = Field(description="The file names.")
    test_mode: bool
    created_at: datetime
    due_at: datetime | None
    completed_at: datetime | None


class TroubleView(BaseModel):
    kind: TroubleKind
    detail: str
    since: datetime
    next_try_at: datetime
    senders: Count
    running: Count


class WholeMessageView(MessageView):
    model_config = example(WHOLE_EXAMPLE)
    mail_server_troubles: builtins.list[TroubleView] = Field(
        description="Why the mail server does not accept emails of a message that is being sent, "
        "as reported by `senders` of the `running` senders."
    )
    html: str | None
    text: str | None


class NewMessage(BodyMembers):
    model_config = example(
        {name: WHOLE_EXAMPLE[name] for name in ("list", "subject", "html")}
        | {"at": "2120-01-01 09:00", "zone": "Europe/Berlin"}
    )
    list: ExistingList
    subject: Subject
    at: At = ABSENT
    zone: Zone = ""
    on_doubt: Doubt = OnDoubt.RESEND


class MessageChange(BodyMembers):
    model_config = example({"subject": "Lectures begin on Tuesday"})
    list_name: Annotated[ExistingList, Field(alias="list")] = ABSENT
    subject: Subject = ABSENT
    on_doubt: Doubt = ABSENT


class OutcomeView(BaseModel):
    model_config = example(
        {
            "address": "student1@contoso.edu",
            "outcome": "sent",
            "at": "2026-11-15T09:00:02Z",
            "words": "250 2.0.0 Ok: queued",
        }
    )
    address: str
    outcome: OutcomeName
    at: datetime | None = Field(description="When it was final, or when it will be retried.")
    words: str = Field(description="The reply of the mail server.")


class MessagePageQuery(PageQuery):
    list: Annotated[str, Field(description="Only messages to this list.")] = ABSENT


class OutcomePageQuery(PageQuery):
    outcome: OutcomeName | None = Field(None, description="Only recipients with this outcome.")


@router.get("", **documented(ResultPage[MessageView], "Messages with their last counts."))
async def show_messages(caller: Reader, query: Annotated[MessagePageQuery, Query()]) -> Response:
    """Show messages, newest first.

    An access key that is limited to certain lists sees only messages to those.

    A call reads a limited number of messages, so a page may be short without being the last.
    """
    requested = parse_page(caller, query)
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
    return requested.respond([message_data(each) for each in found], after)


@router.post("", **documented(MessageView, "The new message.", status=201))
async def create_message(
    caller: Writer, call: NewMessage, idempotency_key: IdempotencyKey = None
) -> Response:
    """Create a message.

    It is sent at `at`; without it, it stays a draft.
    """

    async def create(act: Act, call_id: str) -> tuple[Representation, str]:
        origin = Origin(call_id, ref_of_call(call_id, act.now)) if call_id else None
        if origin and await _is_created(caller, origin, call):
            ref = origin.ref  # by an earlier attempt; its list may have been deleted since
        else:
            mailing_list = (await require_list(caller, call.list)).value
            made = await call.written(caller, call.language or mailing_list.language)
            draft = Draft(
                list_name=call.list,
                subject=call.subject,
                html=made.html,
                text=call.text,
                source=made.source,
                preview_text=call.preview_text or "",
                language=call.language or "",
                due_at=None if call.at is None else due_time(call.at, call.zone, act.now),
                due_zone=call.zone,
                on_doubt=call.on_doubt,
            )
            ref = (await compose.compose(act, draft, origin)).ref
        message, etag = await messages.read_with_etag(caller.tables, ref)
        return Representation(message_data(message), etag), f"/api/v1/messages/{ref}"

    return await create_once(caller, idempotency_key, create)


async def _is_created(caller: ApiCaller, origin: Origin, call: NewMessage) -> bool:
    """Whether an earlier attempt of the same call did everything but store its response."""
    found = await messages.find(caller.tables, origin.ref)
    if found is None or found.origin != origin.call:
        return False
    if call.at is not None:
        return found.status is not Status.DRAFT
    return await _bodies(caller, found) != (None, None)


@router.get("/{ref}", **documented(WholeMessageView, "The message."))
async def show_message(caller: Reader, ref: Ref) -> Response:
    """Show a message with its bodies and current counts."""
    return etags.respond(await represent_whole(caller, ref))


@router.patch("/{ref}", **documented(WholeMessageView, "The edited message."))
async def edit_message(
    caller: Writer, ref: Ref, call: MessageChange, if_match: IfMatch = None
) -> Response:
    """Edit a draft or a scheduled message.

    Omitted members are not changed; null removes a body. A body in another format replaces the
    HTML; `design` alone changes only the colors, font, logo and footer of a message in blocks.
    """
    if call.list_name is not None:
        await require_list(caller, call.list_name)
    async with (
        expected_version(if_match, lambda: represent_whole(caller, ref)) as etag,
        caller.act.audited(AuditKind.MESSAGE, ref, AuditAction.CHANGE),
    ):
        revision = await _revision(caller, ref, call)
        await compose.edit(caller.context.storage, ref, revision, etag)
    return etags.respond(await represent_whole(caller, ref))


async def _revision(caller: ApiCaller, ref: str, call: MessageChange) -> Revision:
    """What the call changes; a new language also changes the HTML that is made from a source."""
    sent = call.model_dump(include=_REVISED & call.model_fields_set)
    message = (await require_message(caller, ref)).value
    before = await bodies.load_source(caller.context.storage.blobs, message)
    language = await _language(caller, message, call)
    if call.has_body:
        made = await call.written(caller, language, before)
    elif before and {"language", "list_name"} & call.model_fields_set:
        made = await written_again(before, language)
    else:
        return Revision(**sent)
    return Revision(**sent, html=made.html, source=made.source)


async def _language(caller: ApiCaller, message: Message, call: MessageChange) -> str:
    """The language of the changed message, or else that of its list."""
    own: str = message.language if call.language is None else call.language
    mailing_list = await lists.find(caller.tables, call.list_name or message.list_name)
    return own or (mailing_list.language if mailing_list else "en")


@router.delete("/{ref}", **documented(None, "The message and its bodies are deleted.", status=204))
async def delete_message(caller: Writer, ref: Ref, if_match: IfMatch = None) -> Response:
    """Delete a draft or a scheduled message."""
    async with (
        expected_version(if_match, lambda: represent_whole(caller, ref)) as etag,
        caller.act.audited(AuditKind.MESSAGE, ref, AuditAction.DELETE),
    ):
        await compose.discard(caller.context.storage, ref, etag)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/{ref}/outcomes", **documented(ResultPage[OutcomeView], "One page of recipients."))
async def show_outcomes(
    caller: Reader, ref: Ref, query: Annotated[OutcomePageQuery, Query()]
) -> Response:
    """Show the outcome of every recipient."""
    requested = parse_page(caller, query)
    message, _etag = await require_message(caller, ref)
    start = AudiencePosition()
    if requested.after:
        batch, _dash, position = requested.after.partition("-")
        start = AudiencePosition(int(batch), int(position))
    found, following = await recipient_outcomes.page(
        caller.tables,
        message,
        OUTCOMES[query.outcome] if query.outcome else None,
        limit=requested.limit,
        start=start,
    )
    after = None if following is None else f"{following.batch}-{following.position}"
    return requested.respond([msgspec.structs.asdict(each) for each in found], after)


async def represent(caller: ApiCaller, ref: str) -> Representation:
    message, etag = await require_message(caller, ref)
    return Representation(message_data(await report.books_of(caller.tables, message)), etag)


async def represent_whole(caller: ApiCaller, ref: str) -> Representation:
    message, etag = await require_message(caller, ref)
    data = message_data(await report.books_of(caller.tables, message))
    data["html"], data["text"] = await _bodies(caller, message)
    data["mail_server_troubles"] = await _mail_server_troubles(caller, message)
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


async def _mail_server_troubles(caller: ApiCaller, message: Message) -> list[dict[str, Any]]:
    """The problems that senders report, if the message is being sent."""
    if message.status not in GOING_OUT:
        return []
    alive = await leases.living(caller.tables, caller.now)
    return [
        {
            "kind": shared.trouble.kind,
            "detail": str(shared.trouble.sentence),
            "since": shared.trouble.since,
            "next_try_at": shared.trouble.next_try_at,
            "senders": shared.senders,
            "running": shared.running,
        }
        for shared in shared_troubles(alive, caller.now)
    ]


async def require_message(caller: ApiCaller, ref: str) -> Stored[Message]:
    """The message; refused if there is none, or if its list is not for this key."""
    with contextlib.suppress(NotFound):
        found = await messages.read_with_etag(caller.tables, ref)
        if caller.key.is_for(found.value.list_name):
            return found
    raise ApiProblem(404, _("There is no message {ref}.", ref=ref[:40]))
