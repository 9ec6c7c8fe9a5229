"""The mail server in use, or how to set one up."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.web.context import context_of
from postroom.web.live_updates import polls_of
from postroom.web.mail_server import troubles_now
from postroom.web.pages import show
from postroom.web.signed_in import Viewer

router = APIRouter(prefix="/sending")


@router.get("")
async def sending_page(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    troubles = await troubles_now(polls_of(request), context)
    server = context.mail_server
    return show(request, signed_in, "sending.html", server=server, mail_troubles=troubles)
