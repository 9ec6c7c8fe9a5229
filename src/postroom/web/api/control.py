"""What may be done to a message: schedule, unschedule, pause, resume, cancel, retry, decide.

Each answers with the message as it stands then. If-Match is looked at but not asked for: a message
going out changes every second, and whoever pauses it means it as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.errors import WrongState
from postroom.domain.message import Message, message_data
from postroom.domain.texts import _
from postroom.flow import compose, report, steer
from postroom.web.api import body, etags, openapi
from postroom.web.api.auth import ApiCaller, Writer
from postroom.web.api.body import Member
from postroom.web.api.etags import SeenVersion
from postroom.web.api.message_schema import EXAMPLE, MESSAGE, Ref, known_message
from postroom.web.api.messages import AT, ZONE, due_time
from postroom.web.api.openapi import WITH_BODY, responses
from postroom.web.api.problems import ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["messages"])
_IF_MATCH = openapi.IF_MATCH | {
    "description": "The ETag of the version that is meant. Without it, whichever there is."
}
Act = Callable[[Message], Awaitable[Message]]


class Decision(StrEnum):
    SEND_AGAIN = "send-again"
    COUNT_AS_SENT = "count-as-sent"


class NewTime(msgspec.Struct, forbid_unknown_fields=True):
    at: Annotated[str, AT]
    zone: Annotated[str, ZONE] = ""


class HeldDecided(msgspec.Struct, forbid_unknown_fields=True):
    held: Annotated[
        Decision,
        Member(_("send-again or count-as-sent"), schema={"type": "string", "enum": list(Decision)}),
    ]


def _described(description: str, *refused: int, **extra: Any) -> dict[str, Any]:
    """What all of these routes say of themselves."""
    refusals = (404, 409, 412, *refused)
    return {
        "responses": responses(
            200, description, MESSAGE, EXAMPLE, refused=refusals, headers=("ETag",)
        ),
        "openapi_extra": {"parameters": [_IF_MATCH], **extra},
    }


@router.post(
    "/messages/{ref}/schedule",
    summary="Give a draft a time, or a pending message another one",
    **_described(
        "The message, pending.",
        *WITH_BODY,
        requestBody=openapi.taking(NewTime, {"at": "2120-01-01T09:00+01:00"}),
    ),
)
async def schedule(request: Request, caller: Writer, ref: Ref) -> Response:
    call = await body.read_body(request, NewTime)
    due_at = due_time(call.at, call.zone, caller.now)
    return await _steer(
        request,
        caller,
        ref,
        lambda _: compose.give_time(caller.act, ref, due_at, zone=call.zone),
    )


@router.post(
    "/messages/{ref}/unschedule",
    summary="Bring a pending message back to draft",
    **_described("The message, a draft: it is not sent until it is scheduled again."),
)
async def unschedule(request: Request, caller: Writer, ref: Ref) -> Response:
    """409 once it has been started."""
    return await _steer(request, caller, ref, lambda _: steer.unschedule(caller.tables, ref))


@router.post(
    "/messages/{ref}/pause",
    summary="Hold a message that is going out",
    **_described("The message, paused: who is queued waits."),
)
async def pause(request: Request, caller: Writer, ref: Ref) -> Response:
    return await _steer(request, caller, ref, lambda _: steer.pause(caller.tables, ref))


@router.post(
    "/messages/{ref}/resume",
    summary="Let a paused message go on",
    **_described("The message, queuing."),
)
async def resume(request: Request, caller: Writer, ref: Ref) -> Response:
    return await _steer(request, caller, ref, lambda _: steer.resume(caller.tables, ref))


@router.post(
    "/messages/{ref}/cancel",
    summary="Stop a message for good",
    **_described("The message, cancelled: who is still queued is skipped."),
)
async def cancel(request: Request, caller: Writer, ref: Ref) -> Response:
    return await _steer(
        request, caller, ref, lambda _: steer.cancel(caller.tables, ref, caller.now)
    )


@router.post(
    "/messages/{ref}/retry",
    summary="Send again to those it failed for",
    **_described("The message: the failed are queued again."),
)
async def retry(request: Request, caller: Writer, ref: Ref) -> Response:
    def act(message: Message) -> Awaitable[Message]:
        _check_somebody(message.books.failed, ref, "failed")
        return steer.retry_failed(caller.tables, ref, caller.now)

    return await _steer(request, caller, ref, act)


@router.post(
    "/messages/{ref}/decide",
    summary="Decide on the held",
    **_described(
        "The message: the held are queued again, or count as sent.",
        *WITH_BODY,
        requestBody=openapi.taking(HeldDecided, {"held": "send-again"}),
    ),
)
async def decide(request: Request, caller: Writer, ref: Ref) -> Response:
    """Held are those of whom nobody can tell whether the mail went out."""
    call = await body.read_body(request, HeldDecided)
    send_again = call.held is Decision.SEND_AGAIN

    def act(message: Message) -> Awaitable[Message]:
        _check_somebody(message.books.held, ref, "held")
        return steer.decide_held(caller.tables, ref, send_again=send_again, now=caller.now)

    return await _steer(request, caller, ref, act)


async def _steer(request: Request, caller: ApiCaller, ref: str, act: Act) -> Response:
    """Act on a message that is there, wake the scheduler, and show what came of it."""
    message, seen = await _look(caller, ref)
    etags.check_meant(request, seen)
    await act(message)
    caller.context.wake_scheduler()
    return etags.shown((await _look(caller, ref))[1])


async def _look(caller: ApiCaller, ref: str) -> tuple[Message, SeenVersion]:
    message, etag = await known_message(caller, ref)
    counted = await report.books_of(caller.tables, message)
    return counted, SeenVersion(message_data(counted), etag)


def _check_somebody(count: int, ref: str, outcome: str) -> None:
    if not count:
        raise WrongState(
            _(
                "Nobody of message {ref} is {outcome}: there is nothing to do.",
                ref=ref,
                outcome=outcome,
            )
        )
