"""A message as the web service shows it, and which messages a key may see."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Path

from postroom.domain.errors import NotFound
from postroom.domain.message import Message, OnDoubt, Status
from postroom.domain.texts import _
from postroom.records import messages
from postroom.web.api import described
from postroom.web.api.described import NUMBER, TEXT, TIME, TIME_OR_NONE, object_of
from postroom.web.api.gate import Caller
from postroom.web.api.problems import Refused

Ref = Annotated[str, Path(description="The ref of a message.", examples=["634852858215726983"])]

_COUNTS = ("audience", "queued", "sending", "sent", "failed", "held", "skipped", "doubts")
_PROPERTIES: dict[str, Any] = {
    "ref": TEXT,
    "status": {"type": "string", "enum": list(Status)},
    "list": TEXT,
    "subject": TEXT,
    "from": TEXT,
    "on_doubt": {"type": "string", "enum": list(OnDoubt)},
    **dict.fromkeys(_COUNTS, NUMBER),
    "created_at": TIME,
    "due_at": TIME_OR_NONE,
    "completed_at": TIME_OR_NONE,
}
_BODY = {"type": ["string", "null"]}
MESSAGE = described.named("Message", object_of(_PROPERTIES))
WHOLE_MESSAGE = described.named(
    "MessageWithBodies", object_of(_PROPERTIES | {"html": _BODY, "text": _BODY})
)
MESSAGE_PAGE = described.page_of("MessagePage", MESSAGE)

EXAMPLE: dict[str, Any] = {
    "ref": "639154470120000000",
    "status": "pending",
    "list": "contoso1",
    "subject": "New lecture series",
    "from": "History Department <donotreply@contoso.edu>",
    "on_doubt": "resend",
    **dict.fromkeys(_COUNTS, 0),
    "created_at": "2026-11-15T09:00:00Z",
    "due_at": "2120-01-01T08:00:00Z",
    "completed_at": None,
}
WHOLE_EXAMPLE = EXAMPLE | {
    "html": "<p>Dear {{ name }}, lectures begin on Monday.</p>",
    "text": None,
}


async def known_message(caller: Caller, ref: str) -> tuple[Message, str]:
    """The message and its etag; one to a list that is not the key's is not there for it."""
    absent = Refused(
        HTTPStatus.NOT_FOUND, _("There is no message {ref}: check the ref.", ref=ref[:40])
    )
    try:
        message, etag = await messages.read_with_etag(caller.tables, ref)
    except NotFound:
        raise absent from None
    if not caller.key.is_for(message.list_name):
        raise absent
    return message, etag
