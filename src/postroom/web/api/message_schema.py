"""Messages as the web service shows them, and which of them a key may see."""

from __future__ import annotations

import builtins
import contextlib
from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, Field

from postroom.domain.errors import NotFound
from postroom.domain.message import GOING_OUT, Message, OnDoubt, Status
from postroom.domain.texts import _
from postroom.domain.trouble import TroubleKind
from postroom.records import leases, messages
from postroom.records.stored import Stored
from postroom.web.api.auth import ApiCaller
from postroom.web.api.openapi import Count, example
from postroom.web.api.problems import ApiProblem
from postroom.web.mail_server import shared_troubles

Ref = Annotated[str, Path(description="The ref of a message.", examples=["634852858215726983"])]
_COUNTS = ("audience", "queued", "sending", "sent", "failed", "held", "skipped", "doubts")
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


class MessageView(BaseModel):
    model_config = example(EXAMPLE)
    ref: str
    status: Status
    list: str
    subject: str
    sender: str = Field(alias="from")
    on_doubt: OnDoubt
    audience: Count
    queued: Count
    sending: Count
    sent: Count
    failed: Count
    held: Count
    skipped: Count
    doubts: Count
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


async def mail_server_troubles(caller: ApiCaller, message: Message) -> list[dict[str, Any]]:
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
