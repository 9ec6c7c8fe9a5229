"""/messages/{ref}/feedback and /bounces: the delivery reports for a message, and who bounced."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackKind
from postroom.flow import report
from postroom.records import feedback
from postroom.records.feedback import BounceRecord, feedback_data
from postroom.web.api.auth import Reader
from postroom.web.api.messages import Ref, require_message
from postroom.web.api.openapi import Count, ResultPage, documented, example
from postroom.web.api.paging import PageQuery, parse_page
from postroom.web.api.route import ApiRoute

router = APIRouter(prefix="/messages/{ref}", route_class=ApiRoute, tags=["messages"])

FEEDBACK_EXAMPLE: dict[str, Any] = {
    "ref": "639154470120000000",
    "sent": 1000,
    "failed": 2,
    "delivered": 970,
    "deferred": 4,
    "bounced": 21,
    "complained": 1,
    "unsubscribed": 0,
    "opened": 0,
    "clicked": 0,
    "classes": {"dead": 18, "temporary": 3, "ours": 0, "complaint": 0, "ignore": 0},
    "reasons": [
        {
            "class": "dead",
            "reason": "no_such_user",
            "count": 18,
            "example": "550 5.1.1 User unknown",
        }
    ],
    "domains": [
        {
            "domain": "contoso.edu",
            "delivered": 970,
            "dead": 18,
            "temporary": 3,
            "ours": 0,
            "other": 0,
            "complained": 1,
        }
    ],
    "paused_because": None,
}
BOUNCE_EXAMPLE: dict[str, Any] = {
    "address": "student1@contoso.edu",
    "kind": "bounced",
    "class": "dead",
    "reason": "no_such_user",
    "status": "5.1.1",
    "words": "550 5.1.1 User unknown",
    "at": "2026-11-15T09:00:02Z",
    "source": "smtp",
}


class ClassCounts(BaseModel):
    dead: Count
    temporary: Count
    ours: Count
    complaint: Count
    ignore: Count


class ReasonView(BaseModel):
    bounce_class: BounceClass = Field(alias="class")
    reason: BounceReason
    count: Count
    example: str = Field(description="An example of a server's response.")


class DomainView(BaseModel):
    domain: str = Field(description="“…” for all domains that are not named, beyond 150.")
    delivered: Count
    dead: Count
    temporary: Count
    ours: Count
    other: Count
    complained: Count


class PauseView(BaseModel):
    refused: Count = Field(
        description="Recipients refused for reasons on our side when it was paused."
    )
    ended: Count = Field(description="Emails that had been sent or refused by then.")
    words: str = Field(description="A server's response.")
    is_too_large: bool = Field(
        description="True if nobody was refused, but the email is too large for the mail server."
    )


class FeedbackView(BaseModel):
    model_config = example(FEEDBACK_EXAMPLE)
    ref: str
    sent: Count
    failed: Count
    delivered: Count
    deferred: Count
    bounced: Count
    complained: Count
    unsubscribed: Count = Field(description="Through the provider, not through our link.")
    opened: Count
    clicked: Count
    classes: ClassCounts = Field(description="Bounces by whose problem it is.")
    reasons: list[ReasonView]
    domains: list[DomainView]
    paused_because: PauseView | None = Field(
        description="Why the message was paused automatically; null unless it was."
    )


class BounceView(BaseModel):
    model_config = example(BOUNCE_EXAMPLE)
    address: str
    kind: FeedbackKind
    bounce_class: BounceClass | None = Field(alias="class")
    reason: str
    status: str = Field(description="The enhanced code (RFC 3463), if there was one.")
    words: str
    at: datetime
    source: str = Field(description="Who reported it: smtp, mailbox, or a provider.")


@router.get("/feedback", **documented(FeedbackView, "The delivery reports.", headers=""))
async def show_feedback(caller: Reader, ref: Ref) -> Response:
    """Show the delivery reports for a message: recipients by kind, class, reason and domain."""
    message, _etag = await require_message(caller, ref)
    message = await report.books_of(caller.tables, message)
    summary = await feedback.find_summary(caller.tables, ref)
    content = msgspec.json.encode(feedback_data(message, summary))
    return Response(content, media_type="application/json")


@router.get("/bounces", **documented(ResultPage[BounceView], "One page of recipients."))
async def show_bounces(caller: Reader, ref: Ref, query: Annotated[PageQuery, Query()]) -> Response:
    """Show who bounced or complained, in the order of the audience."""
    requested = parse_page(caller, query)
    await require_message(caller, ref)
    found, after = await feedback.bounces_of(
        caller.tables, ref, after=requested.after, limit=requested.limit
    )
    return requested.respond([_bounce_data(each) for each in found], after)


def _bounce_data(bounce: BounceRecord) -> dict[str, Any]:
    return {
        "address": bounce.address,
        "kind": bounce.kind,
        "class": bounce.bounce_class,
        "reason": bounce.reason,
        "status": bounce.status,
        "words": bounce.words,
        "at": bounce.at,
        "source": bounce.source,
    }
