"""How emails are sent: the transport and its health, deliveries in doubt, and a test."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.doctor import Check
from postroom.domain.errors import NotFound
from postroom.domain.message import Message
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.domain.texts import _
from postroom.records import leases, messages, rate_limits
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Owner, Viewer
from postroom.web.mail_server import shared_troubles

router = APIRouter(prefix="/sending")
MESSAGES_READ_MAX = 500  # messages that are not archived: a few milliseconds
SHOWN_MAX = 10


class DoubtfulDeliveries(NamedTuple):
    """Deliveries that wait for a decision, because the email may or may not have been sent."""

    people: int
    messages: list[Message]  # the newest that have some
    is_all: bool  # False: there are more messages than were read


@router.get("")
async def sending_page(request: Viewer) -> Response:
    """The transport in use, or how to set one up."""
    return await _show(request)


@router.post("/test")
async def test(request: Owner) -> Response:
    """Show the result at once: it may be long, and a reload tests again, which is harmless."""
    examine = request.context.examine_transport
    if examine is None:
        raise NotFound(_("There is nothing to test."))
    return await _show(request, await examine())


async def _show(request: AdminRequest, check: Check | None = None) -> Response:
    context = request.context
    now = request.now()
    alive = await leases.living(request.tables, now)
    return request.show(
        "sending.html",
        server=context.mail_server,
        transport=context.transport,
        can_test=context.examine_transport is not None,
        check=check,
        senders=leases.senders_among(alive),
        mail_troubles=shared_troubles(alive, now),
        limit=await _limit(request.tables),
        doubtful=await _read_doubtful(request.tables),
    )


async def _limit(tables: Tables) -> RateLimit | None:
    row = (await rate_limits.all_limits(tables)).get(TRANSPORT)
    return row.limit(TRANSPORT) if row and row.is_readable else None


async def _read_doubtful(tables: Tables) -> DoubtfulDeliveries:
    """As of the last report of each message."""
    live, has_more = await messages.first_live(tables, limit=MESSAGES_READ_MAX)
    found = [each for each in reversed(live) if each.books.held]
    people = sum(each.books.held for each in found)
    return DoubtfulDeliveries(people, found[:SHOWN_MAX], is_all=not has_more)
