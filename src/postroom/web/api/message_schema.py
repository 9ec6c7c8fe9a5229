"""A message as the web service shows it, and which messages a key may see."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Path

from postroom.domain.errors import NotFound
from postroom.domain.message import GOING_OUT, Message, OnDoubt, Status
from postroom.domain.texts import _
from postroom.domain.trouble import TroubleKind
from postroom.records import leases, messages
from postroom.records.stored import Stored
from postroom.web.api import openapi
from postroom.web.api.auth import ApiCaller
from postroom.web.api.openapi import NUMBER, TEXT, TIME, TIME_OR_NONE, TRUTH, object_of
from postroom.web.api.problems import ApiProblem
from postroom.web.mail_server import shared_troubles

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
    "test_mode": TRUTH,
    "created_at": TIME,
    "due_at": TIME_OR_NONE,
    "completed_at": TIME_OR_NONE,
}
_BODY = {"type": ["string", "null"]}
_TROUBLE = object_of(
    {
        "kind": {"type": "string", "enum": list(TroubleKind)},
        "detail": TEXT,
        "since": TIME,
        "next_try_at": TIME,
        "senders": NUMBER,
        "running": NUMBER,
    }
)
_TROUBLES = {
    "type": "array",
    "items": _TROUBLE,
    "description": "What keeps the mail server from taking a message that is going out: reported "
    "by `senders` of the `running` senders.",
}
MESSAGE = openapi.named("Message", object_of(_PROPERTIES))
WHOLE_MESSAGE = openapi.named(
    "MessageWithBodies",
    object_of(_PROPERTIES | {"mail_server_troubles": _TROUBLES, "html": _BODY, "text": _BODY}),
)
MESSAGE_PAGE = openapi.page_of("MessagePage", MESSAGE)

EXAMPLE: dict[str, Any] = {
    "ref": "639154470120000000",
    "status": "pending",
    "list": "contoso1",
    "subject": "New lecture series",
    "from": "History Department <donotreply@contoso.edu>",
    "on_doubt": "resend",
    **dict.fromkeys(_COUNTS, 0),
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


async def mail_server_troubles(caller: ApiCaller, message: Message) -> list[dict[str, Any]]:
    """None of a message that does not wait for the mail server."""
    if message.status not in GOING_OUT:
        return []
    alive = await leases.living(caller.tables, caller.now)
    return [
        {
            "kind": each.trouble.kind,
            "detail": str(each.trouble.sentence),
            "since": each.trouble.since,
            "next_try_at": each.trouble.next_try_at,
            "senders": each.senders,
            "running": each.running,
        }
        for each in shared_troubles(alive, caller.now)
    ]


async def known_message(caller: ApiCaller, ref: str) -> Stored[Message]:
    """The message and its etag; one to a list that is not the key's is not there for it."""
    absent = ApiProblem(
        HTTPStatus.NOT_FOUND, _("There is no message {ref}: check the ref.", ref=ref[:40])
    )
    try:
        found = await messages.read_with_etag(caller.tables, ref)
    except NotFound:
        raise absent from None
    if not caller.key.is_for(found.value.list_name):
        raise absent
    return found
