"""What people do with a message: send, schedule, test, pause, resume, cancel, retry, decide.

Sending now and scheduling are two pages with two addresses: no page can do both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import send_test_mail
from postroom.actions.control_message import Control, control
from postroom.domain.due_time import (
    OFFSET,
    AmbiguousTime,
    NonexistentTime,
    TimeInThePast,
    UnknownZone,
    in_zone,
    known_zone,
    parse_due_time,
)
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import EDITABLE, Message, Status
from postroom.domain.texts import _
from postroom.domain.throttle import NO_WAIT
from postroom.domain.token import new_guid
from postroom.flow import compose
from postroom.records import bodies, counts, lists, messages
from postroom.storage.port import Conflict
from postroom.web.admin.messages.pages import details, read_for
from postroom.web.context import WebContext, context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, SignedIn, act_of
from postroom.web.throttles import CallLimit, throttles_of

router = APIRouter(prefix="/messages")
TESTS_AN_HOUR = 30  # of one user: enough to try out, too few to bomb a mailbox
TESTS = CallLimit("tests", TESTS_AN_HOUR, timedelta(hours=1), TESTS_AN_HOUR, callers_max=1000)
CLICKED_LATELY = timedelta(minutes=1)  # “now” of a second click is not the first one's
_CHANGED = _("Somebody just changed this message. Check it and try again.")
_IN_THE_PAST = _("This time is in the past. Choose a later one or use “Send now”.")


# --- Send now ---------------------------------------------------------------------------------


@router.get("/{ref}/send")
async def send_page(request: Request, signed_in: Editor, ref: str) -> Response:
    message, etag = await read_for(request, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    return await _ask_to_send(request, signed_in, message, Form({"etag": etag}))


@router.post("/{ref}/send")
async def send_now(request: Request, signed_in: Editor, ref: str) -> Response:
    """Send only the version that was seen, and only if the form names no other time."""
    context, form = context_of(request), await posted(request)
    message, _etag = await read_for(request, ref)
    if form.value("date").strip() or form.value("time").strip():
        form.mistake = _(
            "Nothing was sent because you entered a date or time. Schedule the message for that "
            "time, or go back and send it now."
        )
        return await _ask_when(request, signed_in, message, form, 422)
    people = await counts.read(context.storage.tables, message.list_name)
    if message.status in EDITABLE and not people.verified:
        return await _ask_to_send(request, signed_in, message, form, 409)
    if await _give_time(act_of(request, signed_in), message, form, None):
        return go(f"/admin/messages/{ref}", "sending", people.verified)
    return await _refused(request, signed_in, ref, form, _ask_to_send)


async def _ask_to_send(
    request: Request, signed_in: SignedIn, message: Message, form: Form, status: int = 200
) -> Response:
    return await _ask(request, signed_in, "messages/send.html", message, form, status)


# --- Schedule ---------------------------------------------------------------------------------


@router.get("/{ref}/schedule")
async def schedule_page(request: Request, signed_in: Editor, ref: str) -> Response:
    message, etag = await read_for(request, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    form = Form({"etag": etag, **_time_fields(message)})
    return await _ask_when(request, signed_in, message, form)


@router.post("/{ref}/schedule")
async def schedule(request: Request, signed_in: Editor, ref: str) -> Response:
    """Schedule only the version that was seen, so that no other change is missed."""
    context, form = context_of(request), await posted(request)
    message, _etag = await read_for(request, ref)
    now = context.clock.now()
    due_at = _due_at(form, now)
    if due_at is None:
        return await _ask_when(request, signed_in, message, form, 422)
    if await _give_time(act_of(request, signed_in, now), message, form, due_at, _zone(form)):
        people = await counts.read(context.storage.tables, message.list_name)
        told = due_at.timestamp(), _zone(form), people.verified, now.timestamp()
        return go(f"/admin/messages/{ref}", "scheduled", *told)
    return await _refused(request, signed_in, ref, form, _ask_when)


def _time_fields(message: Message) -> dict[str, str]:
    """The scheduled time in its own time zone."""
    if message.due_at is None:
        return {}
    local = in_zone(message.due_at, message.due_zone)
    return {
        "date": local.strftime("%Y-%m-%d"),
        "time": local.strftime("%H:%M"),
        "zone": known_zone(message.due_zone),
        "offset": local.isoformat()[-len("+00:00") :],
    }


def _due_at(form: Form, now: datetime) -> datetime | None:
    """The chosen time; None, with an error beside the field, if it is not valid."""
    has_date, has_time = bool(form.value("date").strip()), bool(form.value("time").strip())
    if not has_date:
        form.mistakes["date"] = _("Choose a date.") if has_time else _("Choose a date and a time.")
        return None
    if not has_time:
        form.mistakes["time"] = _("Choose a time.")
        return None
    try:
        due_at = _chosen(form, now)
        if due_at > now:
            return due_at
        form.mistakes["date"] = _IN_THE_PAST
    except TimeInThePast:
        form.mistakes["date"] = _IN_THE_PAST
    except AmbiguousTime:
        form.mistakes["offset"] = _(
            "The clocks go back that night, so this time occurs twice. Choose which one you mean."
        )
    except UnknownZone as error:
        form.mistakes["zone"] = str(error)
    except NonexistentTime as error:
        form.mistakes["time"] = str(error)
    except BadInput:
        form.mistakes["date"] = _("Choose a date and a time.")
    return None


def _chosen(form: Form, now: datetime) -> datetime:
    """The offset decides between the two instants of an ambiguous time."""
    text, zone = f"{form.value('date').strip()} {form.value('time').strip()}", _zone(form)
    if OFFSET.fullmatch(zone):
        return parse_due_time(text + zone, "", now)
    try:
        return parse_due_time(text, zone, now)
    except AmbiguousTime as twice:
        if form.value("offset") not in twice.offsets:
            raise
        return parse_due_time(text + form.value("offset"), "", now)


def _zone(form: Form) -> str:
    return form.value("zone").strip() or "UTC"


def _offsets(form: Form, now: datetime) -> tuple[str, ...]:
    """The two instants of an ambiguous time; none if it is unique."""
    try:
        _chosen(Form(form.values | {"offset": ""}), now)
    except AmbiguousTime as twice:
        return twice.offsets
    except BadInput:
        pass
    return ()


async def _ask_when(
    request: Request, signed_in: SignedIn, message: Message, form: Form, status: int = 200
) -> Response:
    offsets = _offsets(form, context_of(request).clock.now())
    template = "messages/schedule.html"
    return await _ask(request, signed_in, template, message, form, status, offsets=offsets)


# --- Both -------------------------------------------------------------------------------------


async def _ask(
    request: Request,
    signed_in: SignedIn,
    template: str,
    message: Message,
    form: Form,
    status: int,
    **more: object,
) -> Response:
    tables = context_of(request).storage.tables
    return show(
        request,
        signed_in,
        template,
        status,
        form=form,
        message=message,
        people=await counts.read(tables, message.list_name),
        mailing_list=await lists.find(tables, message.list_name),
        **more,
    )


async def _give_time(
    act: Act, message: Message, form: Form, due_at: datetime | None, zone: str = ""
) -> bool:
    """Whether it is scheduled for this time (None for now); if not, the form says why."""
    etag = form.value("etag")
    try:
        await bodies.load(act.storage.blobs, message)
        await compose.give_time(act, message.ref, due_at or act.now, etag, zone=zone)
    except NotFound as error:
        form.mistake = str(error)
        return False
    except (Conflict, WrongState) as error:
        message, etag = await messages.read_with_etag(act.tables, message.ref)
        if not _has_time(message, due_at, act.now):
            form.values["etag"] = etag
            form.mistake = _CHANGED if isinstance(error, Conflict) else str(error)
            return False
    return True


def _has_time(message: Message, due_at: datetime | None, now: datetime) -> bool:
    """Whether the first of two clicks has done it already."""
    if message.status in (Status.DRAFT, Status.CANCELLED) or message.due_at is None:
        return False
    if due_at is None:
        return now - CLICKED_LATELY <= message.due_at <= now
    return message.due_at == due_at


async def _refused(
    request: Request,
    signed_in: SignedIn,
    ref: str,
    form: Form,
    ask: Callable[..., Awaitable[Response]],
) -> Response:
    """The form again, or the page of a message that is being sent already."""
    message, _etag = await read_for(request, ref)
    if message.status in EDITABLE:
        return await ask(request, signed_in, message, form, 409)
    return await details(request, signed_in, message, Form(mistake=form.mistake), 409)


# --- A test mail to oneself -------------------------------------------------------------------


@router.post("/{ref}/test")
async def send_test(request: Request, signed_in: Editor, ref: str) -> Response:
    """Put an item for a sender; nothing is sent inside the request."""
    context = context_of(request)
    message, _etag = await read_for(request, ref)
    if not _may_test(request, context, signed_in):
        form = Form(mistake=_("You have sent too many test emails. Try again in an hour."))
        return await details(request, signed_in, message, form, 429)
    act = act_of(request, signed_in)
    await send_test_mail.ask_for_test(act, ref, signed_in.user.key, new_guid())
    return go(f"/admin/messages/{ref}", "test-sent")


def _may_test(request: Request, context: WebContext, signed_in: SignedIn) -> bool:
    wait = throttles_of(request).wait(TESTS, signed_in.user.key, context.clock.now())
    return wait <= NO_WAIT


# --- While it is being sent ---------------------------------------------------------------------

_NOTICES = {
    Control.UNSCHEDULE: "unscheduled",
    Control.PAUSE: "paused",
    Control.RESUME: "resumed",
    Control.CANCEL: "cancelled",
    Control.RETRY_FAILED: "retrying",
    Control.SEND_HELD_AGAIN: "decided",
    Control.COUNT_HELD_AS_SENT: "decided",
}


@router.post("/{ref}/unschedule")
async def unschedule(request: Request, signed_in: Editor, ref: str) -> Response:
    return await _control(request, signed_in, ref, Control.UNSCHEDULE)


@router.post("/{ref}/pause")
async def pause(request: Request, signed_in: Editor, ref: str) -> Response:
    return await _control(request, signed_in, ref, Control.PAUSE)


@router.post("/{ref}/resume")
async def resume(request: Request, signed_in: Editor, ref: str) -> Response:
    return await _control(request, signed_in, ref, Control.RESUME)


@router.post("/{ref}/retry")
async def retry(request: Request, signed_in: Editor, ref: str) -> Response:
    return await _control(request, signed_in, ref, Control.RETRY_FAILED)


@router.get("/{ref}/cancel")
async def cancel_page(request: Request, signed_in: Editor, ref: str) -> Response:
    message, _etag = await read_for(request, ref, with_books=True)
    return show(request, signed_in, "messages/cancel.html", message=message)


@router.post("/{ref}/cancel")
async def cancel(request: Request, signed_in: Editor, ref: str) -> Response:
    return await _control(request, signed_in, ref, Control.CANCEL)


@router.get("/{ref}/decide")
async def decide_page(request: Request, signed_in: Editor, ref: str) -> Response:
    message, _etag = await read_for(request, ref, with_books=True)
    return show(request, signed_in, "messages/decide.html", message=message, form=Form())


@router.post("/{ref}/decide")
async def decide(request: Request, signed_in: Editor, ref: str) -> Response:
    form = await posted(request)
    match form.value("held"):
        case "again":
            return await _control(request, signed_in, ref, Control.SEND_HELD_AGAIN)
        case "sent":
            return await _control(request, signed_in, ref, Control.COUNT_HELD_AS_SENT)
    message, _etag = await read_for(request, ref, with_books=True)
    form.mistakes["held"] = _("Choose one of the two.")
    return show(request, signed_in, "messages/decide.html", 422, message=message, form=form)


async def _control(request: Request, signed_in: SignedIn, ref: str, action: Control) -> Response:
    """Do it and say so; if it is not possible any more, the message's page says why."""
    context = context_of(request)
    await read_for(request, ref)
    try:
        await control(act_of(request, signed_in), ref, action)
    except WrongState as error:
        message = await messages.read(context.storage.tables, ref)
        is_done = action is Control.UNSCHEDULE and message.status is Status.DRAFT  # second click
        if not is_done:
            return await details(request, signed_in, message, Form(mistake=str(error)), 409)
    return go(f"/admin/messages/{ref}", _NOTICES[action])
