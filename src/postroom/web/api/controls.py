"""/messages/{ref}/…: schedule, unschedule, pause, resume, cancel, retry, decide.

Each responds with the changed message. If-Match is optional, because a message that is being sent
changes every second, and a caller who pauses it means the current version.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions.control_message import Control, control
from postroom.flow import compose
from postroom.web.api import etags
from postroom.web.api.auth import ApiCaller, Writer
from postroom.web.api.messages import At, MessageView, Ref, Zone, due_time, represent
from postroom.web.api.openapi import OptionalIfMatch, RequestBody, documented, example
from postroom.web.api.route import ApiRoute

router = APIRouter(prefix="/messages/{ref}", route_class=ApiRoute, tags=["messages"])


class NewTime(RequestBody):
    model_config = example({"at": "2120-01-01T09:00+01:00"})
    at: At
    zone: Zone = ""


class HeldDecision(RequestBody):
    model_config = example({"held": "send-again"})
    held: Literal["send-again", "count-as-sent"]


@router.post("/schedule", **documented(MessageView, "The scheduled message."))
async def schedule(
    caller: Writer, ref: Ref, call: NewTime, if_match: OptionalIfMatch = None
) -> Response:
    """Schedule a draft, or change the time of a scheduled message."""
    due_at = due_time(call.at, call.zone, caller.now)
    etags.check_if_match(if_match, await represent(caller, ref))
    await compose.give_time(caller.act, ref, due_at, zone=call.zone)
    return etags.respond(await represent(caller, ref))


@router.post("/decide", **documented(MessageView, "The changed message."))
async def decide(
    caller: Writer, ref: Ref, call: HeldDecision, if_match: OptionalIfMatch = None
) -> Response:
    """Decide on the held recipients.

    A recipient is held if the email to them may or may not have been sent.
    """
    return await _control(caller, ref, if_match, Control(call.held))


def _endpoint(action: Control) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def endpoint(caller: Writer, ref: Ref, if_match: OptionalIfMatch = None) -> Response:
        return await _control(caller, ref, if_match, action)

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
        f"/{_action}",
        _endpoint(_action),
        methods=["POST"],
        name=_action,
        summary=_summary,
        **documented(MessageView, _result),
    )


async def _control(caller: ApiCaller, ref: str, if_match: str | None, action: Control) -> Response:
    etags.check_if_match(if_match, await represent(caller, ref))
    await control(caller.act, ref, action)
    return etags.respond(await represent(caller, ref))
