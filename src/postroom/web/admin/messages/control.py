"""What people do with a message: send, schedule, test, pause, resume, cancel, retry, decide.

Sending now and scheduling are two pages with two addresses: no page can do both.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import APIRouter
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
from postroom.web.admin.admin_request import AdminRequest, Editor
from postroom.web.admin.messages.pages import details
from postroom.web.admin.messages.progress import with_current_books
from postroom.web.forms import Form
from postroom.web.pages import go
from postroom.web.throttles import CallLimit, throttles_of

router = APIRouter(prefix="/messages")
TESTS_AN_HOUR = 30  # per user: enough for testing, too few to flood a mailbox
TESTS = CallLimit("tests", TESTS_AN_HOUR, timedelta(hours=1), TESTS_AN_HOUR, callers_max=1000)
SECOND_CLICK = timedelta(minutes=1)  # a second click on “Send now” comes later than the first
_SEND = "messages/send.html"
_SCHEDULE = "messages/schedule.html"


@router.get("/{ref}/send")
async def send_page(request: Editor, ref: str) -> Response:
    return await _show_time_form(request, _SEND, ref)


@router.post("/{ref}/send")
async def send_now(request: Editor, ref: str) -> Response:
    """Send only the version that was seen, and only if the form names no other time."""
    form = await request.form()
    message = await messages.read(request.tables, ref)
    if form.value("date").strip() or form.value("time").strip():
        form.mistake = _(
            "Nothing was sent because you entered a date or time. Schedule the message for that "
            "time, or go back and send it now."
        )
        return await _show(request, _SCHEDULE, message, form, 422)
    people = await counts.read(request.tables, message.list_name)
    if message.status in EDITABLE and not people.verified:
        return await _show(request, _SEND, message, form, 409)
    if await _give_time(request.act(), message, form, None):
        return go(f"/admin/messages/{ref}", "sending", people.verified)
    return await _refuse(request, ref, _SEND, form)


@router.get("/{ref}/schedule")
async def schedule_page(request: Editor, ref: str) -> Response:
    return await _show_time_form(request, _SCHEDULE, ref)


@router.post("/{ref}/schedule")
async def schedule(request: Editor, ref: str) -> Response:
    """Schedule only the version that was seen, so that no other change is missed."""
    form = await request.form()
    message = await messages.read(request.tables, ref)
    now = request.now()
    due_at = _due_at(form, now)
    if due_at is None:
        return await _show(request, _SCHEDULE, message, form, 422)
    zone = _zone(form)
    if await _give_time(request.act(now), message, form, due_at, zone):
        people = (await counts.read(request.tables, message.list_name)).verified
        due_s = due_at.timestamp()
        return go(f"/admin/messages/{ref}", "scheduled", due_s, zone, people, now.timestamp())
    return await _refuse(request, ref, _SCHEDULE, form)


async def _show_time_form(request: AdminRequest, template: str, ref: str) -> Response:
    """The form with the scheduled time, if there is one, in its own time zone."""
    message, etag = await messages.read_with_etag(request.tables, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    form = Form({"etag": etag})
    if message.due_at:
        local = in_zone(message.due_at, message.due_zone)
        form.values |= {
            "date": local.strftime("%Y-%m-%d"),
            "time": local.strftime("%H:%M"),
            "zone": known_zone(message.due_zone),
            "offset": local.isoformat()[-len("+00:00") :],
        }
    return await _show(request, template, message, form)


def _due_at(form: Form, now: datetime) -> datetime | None:
    """The chosen time; None, with an error beside the field, if it is not valid."""
    has_time = bool(form.value("time").strip())
    if not form.value("date").strip():
        form.mistakes["date"] = _("Choose a date.") if has_time else _("Choose a date and a time.")
        return None
    if not has_time:
        form.mistakes["time"] = _("Choose a time.")
        return None
    try:
        due_at = _parse_time(form, now)
        if due_at <= now:
            raise TimeInThePast
        return due_at
    except TimeInThePast:
        form.mistakes["date"] = _("This time is in the past. Choose a later one or use “Send now”.")
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


def _parse_time(form: Form, now: datetime) -> datetime:
    """The offset decides between the two instants of an ambiguous time."""
    text = f"{form.value('date').strip()} {form.value('time').strip()}"
    zone = _zone(form)
    if OFFSET.fullmatch(zone):
        return parse_due_time(text + zone, "", now)
    try:
        return parse_due_time(text, zone, now)
    except AmbiguousTime as ambiguous:
        if form.value("offset") not in ambiguous.offsets:
            raise
        return parse_due_time(text + form.value("offset"), "", now)


def _zone(form: Form) -> str:
    return form.value("zone").strip() or "UTC"


async def _show(
    request: AdminRequest, template: str, message: Message, form: Form, status: int = 200
) -> Response:
    offsets: tuple[str, ...] = ()
    try:
        _parse_time(Form(form.values | {"offset": ""}), request.now())
    except AmbiguousTime as ambiguous:
        offsets = ambiguous.offsets
    except BadInput:
        pass
    return request.show(
        template,
        status,
        form=form,
        message=message,
        offsets=offsets,
        people=await counts.read(request.tables, message.list_name),
        mailing_list=await lists.find(request.tables, message.list_name),
    )


async def _give_time(
    act: Act, message: Message, form: Form, due_at: datetime | None, zone: str = ""
) -> bool:
    """Schedule it, None for now; False, with the reason in the form, if that did not work."""
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
            changed = _("Somebody just changed this message. Check it and try again.")
            form.mistake = changed if isinstance(error, Conflict) else str(error)
            return False
    return True


def _has_time(message: Message, due_at: datetime | None, now: datetime) -> bool:
    """Whether the first of two clicks has already given it this time."""
    if message.status in (Status.DRAFT, Status.CANCELLED) or message.due_at is None:
        return False
    if due_at is None:
        return now - SECOND_CLICK <= message.due_at <= now
    return message.due_at == due_at


async def _refuse(request: AdminRequest, ref: str, template: str, form: Form) -> Response:
    """The form again, or the page of a message that is being sent already."""
    message = await messages.read(request.tables, ref)
    if message.status in EDITABLE:
        return await _show(request, template, message, form, 409)
    return await details(request, message, Form(mistake=form.mistake), 409)


@router.post("/{ref}/test")
async def send_test(request: Editor, ref: str) -> Response:
    """Queue the test email for a sender; nothing is sent within the request."""
    message = await messages.read(request.tables, ref)
    user = request.signed_in.user
    if throttles_of(request.http).wait(TESTS, user.key, request.now()) > NO_WAIT:
        form = Form(mistake=_("You have sent too many test emails. Try again in an hour."))
        return await details(request, message, form, 429)
    await send_test_mail.ask_for_test(request.act(), ref, user.key, new_guid())
    return go(f"/admin/messages/{ref}", "test-sent")


def _add_button(action: Control, name: str, notice: str) -> None:
    """A route for an action that needs no confirmation page of its own."""

    @router.post(f"/{{ref}}/{name}", name=name)
    async def press(request: Editor, ref: str) -> Response:
        return await _control(request, ref, action, notice)


_add_button(Control.UNSCHEDULE, "unschedule", "unscheduled")
_add_button(Control.PAUSE, "pause", "paused")
_add_button(Control.RESUME, "resume", "resumed")
_add_button(Control.RETRY_FAILED, "retry", "retrying")
_add_button(Control.CANCEL, "cancel", "cancelled")


@router.get("/{ref}/cancel")
async def cancel_page(request: Editor, ref: str) -> Response:
    return request.show("messages/cancel.html", message=await _read_with_books(request, ref))


@router.get("/{ref}/decide")
async def decide_page(request: Editor, ref: str) -> Response:
    message = await _read_with_books(request, ref)
    return request.show("messages/decide.html", message=message, form=Form())


@router.post("/{ref}/decide")
async def decide(request: Editor, ref: str) -> Response:
    form = await request.form()
    match form.value("held"):
        case "again":
            return await _control(request, ref, Control.SEND_HELD_AGAIN, "decided")
        case "sent":
            return await _control(request, ref, Control.COUNT_HELD_AS_SENT, "decided")
    form.mistakes["held"] = _("Choose one of the two options.")
    message = await _read_with_books(request, ref)
    return request.show("messages/decide.html", 422, message=message, form=form)


async def _control(request: AdminRequest, ref: str, action: Control, notice: str) -> Response:
    """Do it and say so; if it is no longer possible, the message's page says why."""
    await messages.read(request.tables, ref)
    try:
        await control(request.act(), ref, action)
    except WrongState as error:
        message = await messages.read(request.tables, ref)
        is_done = action is Control.UNSCHEDULE and message.status is Status.DRAFT  # second click
        if not is_done:
            return await details(request, message, Form(mistake=str(error)), 409)
    return go(f"/admin/messages/{ref}", notice)


async def _read_with_books(request: AdminRequest, ref: str) -> Message:
    return await with_current_books(request.tables, await messages.read(request.tables, ref))
