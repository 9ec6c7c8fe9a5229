"""/messages/{ref}/outcomes: the outcome of every recipient, in the order of the audience."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from postroom.records import recipient_outcomes
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition
from postroom.web.api import paging
from postroom.web.api.auth import Reader
from postroom.web.api.message_schema import Ref, require_message
from postroom.web.api.openapi import ResultPage, documented, example
from postroom.web.api.paging import PageQuery
from postroom.web.api.route import ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["messages"])
OutcomeName = StrEnum("OutcomeName", [(name, name) for name in OUTCOMES])  # type: ignore[misc]


class OutcomeView(BaseModel):
    model_config = example(
        {
            "address": "student1@contoso.edu",
            "outcome": "sent",
            "at": "2026-11-15T09:00:02Z",
            "words": "250 2.0.0 Ok: queued",
        }
    )
    address: str
    outcome: OutcomeName
    at: datetime | None = Field(description="When it was final, or when it will be retried.")
    words: str = Field(description="The reply of the mail server.")


class OutcomePageQuery(PageQuery):
    outcome: OutcomeName | None = Field(None, description="Only recipients with this outcome.")


@router.get(
    "/messages/{ref}/outcomes",
    summary="Show the outcome of every recipient",
    **documented(ResultPage[OutcomeView], "One page of recipients.", 404, headers="Link"),
)
async def show_outcomes(
    request: Request, caller: Reader, ref: Ref, query: Annotated[OutcomePageQuery, Query()]
) -> Response:
    requested = paging.parse_page(request, caller, query)
    message, _etag = await require_message(caller, ref)
    start = AudiencePosition()
    if requested.after:
        batch, _dash, position = requested.after.partition("-")
        start = AudiencePosition(int(batch), int(position))
    found, following = await recipient_outcomes.page(
        caller.tables,
        message,
        OUTCOMES[query.outcome] if query.outcome else None,
        limit=requested.limit,
        start=start,
    )
    after = None if following is None else f"{following.batch}-{following.position}"
    items = [msgspec.structs.asdict(each) for each in found]
    return paging.respond(caller, requested, items, after)
