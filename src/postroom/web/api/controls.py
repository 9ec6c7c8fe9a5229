"""/messages/{ref}/…: schedule, unschedule, pause, resume, cancel, retry, decide.

Each responds with the changed message. If-Match is optional, because a message that is being sent
changes every second, and a caller who pauses it means the current version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions.control_message import Control, control
from postroom.domain.message import Message, message_data
from postroom.flow import compose, report
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Writer
from postroom.web.api.etags import Representation
from postroom.web.api.message_schema import MessageView, Ref, require_message
from postroom.web.api.messages import At, Zone, due_time
from postroom.web.api.openapi import WITH_BODY, OptionalIfMatch, RequestBody, documented, example
from postroom.web.api.route import ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["messages"])


class NewTime(RequestBody):
    model_config = example({"at": "2120-01-01T09:00+01:00"})
    at: At
    zone: Zone = ""


class HeldDecision(RequestBody):
    model_config = example({"held": "send-again"})
    held: Literal["send-again", "count-as-sent"]


@router.post(
    "/messages/{ref}/schedule",
    summary="Schedule a draft, or change the time of a scheduled message",
    **documented(MessageView, "The scheduled message.", 404, 409, 412, *WITH_BODY, headers="ETag"),
)
async def schedule(
    caller: Writer, ref: Ref, call: NewTime, if_match: OptionalIfMatch = None
) -> Response:
    due_at = due_time(call.at, call.zone, caller.now)
    return await _change(
        caller,
        ref,
        if_match,
        lambda: compose.give_time(caller.act, ref, due_at, zone=call.zone),
    )


@router.post(
    "/messages/{ref}/decide",
    summary="Decide on the held recipients",
    **documented(MessageView, "The changed message.", 404, 409, 412, *WITH_BODY, headers="ETag"),
)
async def decide(
    caller: Writer, ref: Ref, call: HeldDecision, if_match: OptionalIfMatch = None
) -> Response:
    """A recipient is held if the email to them may or may not have been sent."""
    action = Control(call.held)
    return await _change(caller, ref, if_match, lambda: control(caller.act, ref, action))


def _endpoint(action: Control) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def endpoint(caller: Writer, ref: Ref, if_match: OptionalIfMatch = None) -> Response:
        return await _change(caller, ref, if_match, lambda: control(caller.act, ref, action))

    return endpoint


for _action, _summary, _result in (
    (Control.UNSCHEDULE, "Turn a scheduled message back into a draft", "The draft."),
    (Control.PAUSE, "Pause a message that is being sent", "The paused message."),
    (Control.RESUME, "Resume a paused message", "The message; sending continues."),
    (Control.CANCEL, "Cancel a message for good", "The message; queued recipients are skipped."),
    (
        Control.RETRY_FAILED,
        "Send again to all failed recipients",
        "The message; its failed recipients are queued again.",
    ),
):
    router.add_api_route(
        f"/messages/{{ref}}/{_action}",
        _endpoint(_action),
        methods=["POST"],
        name=_action,
        summary=_summary,
        **documented(MessageView, _result, 404, 409, 412, headers="ETag"),
    )


async def _change(
    caller: ApiCaller, ref: str, if_match: str | None, act: Callable[[], Awaitable[Message]]
) -> Response:
    """Act on a message that the caller may see, and respond with it."""

    async def read() -> Representation:
        message, etag = await require_message(caller, ref)
        return Representation(message_data(await report.books_of(caller.tables, message)), etag)

    etags.check_if_match(if_match, await read())
    await act()
    return etags.respond(await read())
