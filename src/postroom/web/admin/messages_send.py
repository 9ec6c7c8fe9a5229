"""What people do with a message: give it a time, test it, pause, resume, cancel, retry, decide."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.due_time import BadZone, ComesTwice, parse_due_time
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import EDITABLE, Message, Status
from postroom.domain.texts import _
from postroom.domain.throttle import NO_WAIT
from postroom.domain.token import new_guid
from postroom.flow import compose, steer, test_mail
from postroom.records import bodies, counts, messages
from postroom.storage.port import Conflict
from postroom.web.admin.messages import details, read_for
from postroom.web.desk import Desk, desk_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show
from postroom.web.throttles import Limit, throttles_of
from postroom.web.visitor import Editor, Visitor

router = APIRouter(prefix="/messages")
TESTS_AN_HOUR = 30  # of one user: enough to try out, too few to bomb a mailbox
TESTS = Limit("tests", TESTS_AN_HOUR, timedelta(hours=1), TESTS_AN_HOUR, callers_max=1000)
CLICKED_LATELY = timedelta(minutes=1)  # “now” of a second click is not the first one's
_CHANGED = _("Somebody changed the message meanwhile: look at it, and decide again.")
_OFFSET = re.compile(r"[+-][0-9]{2}:[0-9]{2}")  # in place of a zone: an hour a year comes twice


# --- When it goes out -------------------------------------------------------------------------


@router.get("/{ref}/schedule")
async def schedule_page(request: Request, visitor: Editor, ref: str) -> Response:
    message, etag = await read_for(request, ref)
    if message.status not in EDITABLE:
        return go(f"/admin/messages/{ref}")
    return await _ask_when(request, visitor, message, Form({"when": "now", "etag": etag}))


@router.post("/{ref}/schedule")
async def schedule(request: Request, visitor: Editor, ref: str) -> Response:
    """Only as it was seen: what somebody else changes meanwhile has to be looked at first."""
    desk, form = desk_of(request), await posted(request)
    message, etag = await read_for(request, ref)
    due_at = _due_at(form, desk.clock.now())
    if due_at is None:
        return await _ask_when(request, visitor, message, form, 422)
    try:
        await bodies.load(desk.storage.blobs, message)
        await compose.give_time(
            desk.storage.tables, ref, due_at, desk.clock.now(), form.value("etag")
        )
    except (Conflict, WrongState, NotFound) as error:
        message, etag = await read_for(request, ref)
        is_done = _is_as_wanted(message, due_at, desk.clock.now(), form)
        if isinstance(error, NotFound) or not is_done:
            form.values["etag"] = etag
            form.mistake = _CHANGED if isinstance(error, Conflict) else str(error)
            return await _ask_when(request, visitor, message, form, 409)
    desk.wake_scheduler()
    return go(f"/admin/messages/{ref}", "scheduled")


def _is_as_wanted(message: Message, due_at: datetime, now: datetime, form: Form) -> bool:
    """A second click on the button: the first one has done it."""
    if message.status in (Status.DRAFT, Status.CANCELLED) or message.due_at is None:
        return False
    is_now = form.value("when") != "at" and now - CLICKED_LATELY <= message.due_at <= now
    return is_now or message.due_at == due_at


def _due_at(form: Form, now: datetime) -> datetime | None:
    if form.value("when") != "at":
        return now
    text = f"{form.value('date').strip()} {form.value('time').strip()}"
    zone = form.value("zone").strip() or "UTC"
    if _OFFSET.fullmatch(zone):
        text, zone = text + zone, ""
    try:
        return parse_due_time(text, zone, now)
    except BadInput as error:
        form.mistakes["zone" if isinstance(error, (BadZone, ComesTwice)) else "date"] = str(error)
        return None


async def _ask_when(
    request: Request, visitor: Visitor, message: Message, form: Form, status: int = 200
) -> Response:
    people = await counts.read(desk_of(request).storage.tables, message.list_name)
    return show(
        request,
        visitor,
        "messages/schedule.html",
        status,
        form=form,
        message=message,
        people=people.verified,
    )


# --- A test mail to oneself -------------------------------------------------------------------


@router.post("/{ref}/test")
async def send_test(request: Request, visitor: Editor, ref: str) -> Response:
    """No mail is sent inside the request: a sender takes the item."""
    desk = desk_of(request)
    message, _etag = await read_for(request, ref)
    if not _may_test(request, desk, visitor):
        form = Form(mistake=_("That were many test mails within an hour: wait a little."))
        return await details(request, visitor, message, form, 429)
    now = desk.clock.now()
    await test_mail.ask_for_test(desk.storage, ref, visitor.user.key, new_guid(), now)
    desk.wake_senders()
    return go(f"/admin/messages/{ref}", "test-sent")


def _may_test(request: Request, desk: Desk, visitor: Visitor) -> bool:
    wait = throttles_of(request).wait(TESTS, visitor.user.key, desk.clock.now())
    return wait <= NO_WAIT


# --- On its way -------------------------------------------------------------------------------


@router.post("/{ref}/pause")
async def pause(request: Request, visitor: Editor, ref: str) -> Response:
    tables = desk_of(request).storage.tables
    return await _steer(request, visitor, ref, "paused", lambda: steer.pause(tables, ref))


@router.post("/{ref}/resume")
async def resume(request: Request, visitor: Editor, ref: str) -> Response:
    tables = desk_of(request).storage.tables
    return await _steer(request, visitor, ref, "resumed", lambda: steer.resume(tables, ref))


@router.post("/{ref}/retry")
async def retry(request: Request, visitor: Editor, ref: str) -> Response:
    desk = desk_of(request)
    tables, now = desk.storage.tables, desk.clock.now()
    return await _steer(
        request, visitor, ref, "retrying", lambda: steer.retry_failed(tables, ref, now)
    )


@router.get("/{ref}/cancel")
async def cancel_page(request: Request, visitor: Editor, ref: str) -> Response:
    message, _etag = await read_for(request, ref, with_books=True)
    return show(request, visitor, "messages/cancel.html", message=message)


@router.post("/{ref}/cancel")
async def cancel(request: Request, visitor: Editor, ref: str) -> Response:
    desk = desk_of(request)
    tables, now = desk.storage.tables, desk.clock.now()
    return await _steer(request, visitor, ref, "cancelled", lambda: steer.cancel(tables, ref, now))


@router.get("/{ref}/decide")
async def decide_page(request: Request, visitor: Editor, ref: str) -> Response:
    message, _etag = await read_for(request, ref, with_books=True)
    return show(request, visitor, "messages/decide.html", message=message, form=Form())


@router.post("/{ref}/decide")
async def decide(request: Request, visitor: Editor, ref: str) -> Response:
    desk, form = desk_of(request), await posted(request)
    tables, now = desk.storage.tables, desk.clock.now()
    if form.value("held") not in ("again", "sent"):
        message, _etag = await read_for(request, ref, with_books=True)
        form.mistakes["held"] = _("Choose one of the two.")
        return show(request, visitor, "messages/decide.html", 422, message=message, form=form)
    again = form.value("held") == "again"
    return await _steer(
        request,
        visitor,
        ref,
        "decided",
        lambda: steer.decide_held(tables, ref, send_again=again, now=now),
    )


async def _steer(
    request: Request,
    visitor: Visitor,
    ref: str,
    said: str,
    act: Callable[[], Awaitable[Message]],
) -> Response:
    """Do it, and say so; what cannot be done any more is said on the message's page."""
    message, _etag = await read_for(request, ref)
    try:
        await act()
    except WrongState as error:
        message = await messages.read(desk_of(request).storage.tables, ref)
        return await details(request, visitor, message, Form(mistake=str(error)), 409)
    desk_of(request).wake_scheduler()
    return go(f"/admin/messages/{ref}", said)
