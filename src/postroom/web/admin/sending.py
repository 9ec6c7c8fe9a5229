"""How mails leave: the mail server in use, or how to set one up."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.web.desk import desk_of
from postroom.web.mail_server import troubles_now
from postroom.web.pages import show
from postroom.web.pulse import pulses_of
from postroom.web.visitor import Viewer

router = APIRouter(prefix="/sending")


@router.get("")
async def sending_page(request: Request, visitor: Viewer) -> Response:
    desk = desk_of(request)
    troubles = await troubles_now(pulses_of(request), desk)
    server = desk.mail_server
    return show(request, visitor, "sending.html", server=server, mail_troubles=troubles)
