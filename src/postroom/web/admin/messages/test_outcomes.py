"""The outcome of a test email, shown beside its button."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from postroom.records import leases, trials
from postroom.web.context import context_of
from postroom.web.mail_server import shared_troubles
from postroom.web.pages import part
from postroom.web.signed_in import Editor, SignedIn

router = APIRouter(prefix="/messages")


@router.get("/{ref}/test/live")
async def outcome(request: Request, signed_in: Editor, ref: str) -> Response:
    """A fragment of the page; it reloads itself until the outcome is known."""
    values = await test_outcome(request, signed_in, ref)
    return HTMLResponse(part("messages/test_outcome.html", **values))


async def test_outcome(request: Request, signed_in: SignedIn, ref: str) -> dict[str, Any]:
    """The values of the fragment; the mail server is checked only while the email waits."""
    context = context_of(request)
    tables = context.storage.tables
    now = context.clock.now()
    trial = await trials.find(tables, ref, signed_in.user.key)
    alive = await leases.living(tables, now) if trial and trial.is_open else []
    return {
        "ref": ref,
        "trial": trial,
        "now": now,
        "is_test_mode": context.has_outbox,
        "has_sender": bool(leases.senders_among(alive)),
        "mail_troubles": shared_troubles(alive, now),
    }
