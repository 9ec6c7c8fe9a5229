"""Delivery reports for a message: bounces by reason and domain, and who bounced."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.domain.errors import NotFound
from postroom.domain.feedback import REASON_TEXTS, BounceReason, FeedbackKind
from postroom.domain.texts import Text, _
from postroom.records import feedback, messages
from postroom.records.feedback import OTHER_DOMAINS, BounceRecord
from postroom.web.admin.admin_request import Viewer, csv_download
from postroom.web.admin.messages.progress import with_current_books
from postroom.web.admin.subscriber import person_path

router = APIRouter(prefix="/messages/{ref}/feedback")
BOUNCES_A_PAGE = 50
DOMAINS_SHOWN = 15  # the others are under a fold


@router.get("")
async def feedback_page(request: Viewer, ref: str) -> Response:
    tables = request.tables
    message = await with_current_books(tables, await messages.read(tables, ref))
    after = request.query("after")
    if after and not feedback.is_bounce_cursor(after):
        raise NotFound(_("There is no such page."))
    bounces, next_ = await feedback.bounces_of(tables, ref, after=after, limit=BOUNCES_A_PAGE)
    summary = await feedback.find_summary(tables, ref)
    domains = summary.by_domain
    return request.show(
        "messages/feedback.html",
        message=message,
        feedback=summary,
        domains=[part for part in (domains[:DOMAINS_SHOWN], domains[DOMAINS_SHOWN:]) if part],
        other_domains=OTHER_DOMAINS,
        bounces=[
            (each, person_path(request.context, message.list_name, each.key), _reason(each))
            for each in bounces
        ],
        after=after,
        next=next_ or "",
    )


@router.get("/export")
async def export(request: Viewer, ref: str) -> Response:
    """Stream everybody who bounced or complained."""
    message = await messages.read(request.tables, ref)

    async def pieces() -> AsyncIterator[str]:
        names = ("email", "what", "class", "reason", "status", "words", "at", "source")
        yield BYTE_ORDER_MARK + csv_text([names])
        async for each in feedback.all_bounces_of(request.tables, ref):
            what = (each.address, each.kind, each.bounce_class, each.reason, each.status)
            yield csv_text([(*what, each.words, each.at, each.source)])

    return csv_download(pieces(), f"{message.list_name}-{ref}-bounces.csv")


def _reason(bounce: BounceRecord) -> Text | str:
    """Why it bounced; empty for a complaint, which says it all."""
    is_known = bounce.reason in REASON_TEXTS and bounce.kind is FeedbackKind.BOUNCED
    return REASON_TEXTS[BounceReason(bounce.reason)] if is_known else ""
