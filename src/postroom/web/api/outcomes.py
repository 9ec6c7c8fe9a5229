"""/messages/{ref}/outcomes: the outcome of every recipient, in the order of the audience."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from postroom.records import recipient_outcomes
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition
from postroom.web.api import paging
from postroom.web.api.auth import Reader
from postroom.web.api.message_schema import Ref, known_message
from postroom.web.api.openapi import ResultPage, answers, example
from postroom.web.api.paging import PageQuery
from postroom.web.api.route import ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["messages"])
OutcomeName = StrEnum("OutcomeName", [(name, name) for name in OUTCOMES])  # type: ignore[misc]
_EXAMPLE: dict[str, Any] = {
    "address": "student1@contoso.edu",
    "outcome": "sent",
    "at": "2026-11-15T09:00:02Z",
    "words": "250 2.0.0 Ok: queued",
}


class OutcomeView(BaseModel):
    model_config = example(_EXAMPLE)
    address: str
    outcome: OutcomeName
    at: datetime | None = Field(description="When it ended, or when it will be tried again.")
    words: str = Field(description="What the mail server said.")


class OutcomePageQuery(PageQuery):
    outcome: OutcomeName | None = Field(None, description="Only recipients with this outcome.")


@router.get(
    "/messages/{ref}/outcomes",
    summary="Show the outcome of every recipient",
    response_model=ResultPage[OutcomeView],
    response_description="One page of recipients.",
    responses=answers(200, 404, headers=("Link",)),
)
async def show_outcomes(
    request: Request, caller: Reader, ref: Ref, query: Annotated[OutcomePageQuery, Query()]
) -> Response:
    asked = paging.page_request(request, caller, query)
    message, _etag = await known_message(caller, ref)
    start = AudiencePosition()
    if asked.after:
        batch, _dash, position = asked.after.partition("-")
        start = AudiencePosition(int(batch), int(position))
    found, following = await recipient_outcomes.page(
        caller.tables,
        message,
        OUTCOMES[query.outcome] if query.outcome else None,
        limit=asked.limit,
        start=start,
    )
    after = None if following is None else f"{following.batch}-{following.position}"
    return paging.page(caller, asked, [msgspec.structs.asdict(fate) for fate in found], after)
