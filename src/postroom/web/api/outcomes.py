"""/messages/{ref}/outcomes: who got what, in the order of the audience."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from postroom.domain.texts import _
from postroom.records import recipient_outcomes
from postroom.records.recipient_outcomes import OUTCOMES, AudiencePosition, RecipientOutcome
from postroom.web.api import openapi, paging
from postroom.web.api.auth import Reader
from postroom.web.api.message_schema import Ref, known_message
from postroom.web.api.openapi import TEXT, TIME_OR_NONE, object_of, responses
from postroom.web.api.problems import ApiProblem, ApiRoute

router = APIRouter(route_class=ApiRoute, tags=["messages"])

_WORD = {"type": "string", "enum": list(OUTCOMES)}
_OUTCOME = openapi.named(
    "Outcome",
    object_of({"address": TEXT, "outcome": _WORD, "at": TIME_OR_NONE, "words": TEXT}),
)
_PAGE = openapi.page_of("OutcomePage", _OUTCOME)
_EXAMPLE: dict[str, Any] = {
    "address": "student1@contoso.edu",
    "outcome": "sent",
    "at": "2026-11-15T09:00:02Z",
    "words": "250 2.0.0 Ok: queued",
}
_BY_OUTCOME = {
    "name": "outcome",
    "in": "query",
    "description": "Only those of this outcome.",
    "schema": _WORD,
}


@router.get(
    "/messages/{ref}/outcomes",
    summary="Who got what",
    responses=responses(
        200, "A page of people; `at` is when it ended, or when it will be tried again.", _PAGE,
        {"items": [_EXAMPLE], "next": None}, refused=(404, 422), headers=("Link",),
    ),
    openapi_extra={"parameters": paging.parameters(_BY_OUTCOME)},
)  # fmt: skip
async def show_outcomes(request: Request, caller: Reader, ref: Ref) -> Response:
    asked = paging.page_request(request, caller, "outcome")
    outcome = asked.filters.get("outcome")
    if outcome is not None and outcome not in OUTCOMES:
        raise ApiProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            _("“outcome” must be one of {outcomes}.", outcomes=", ".join(OUTCOMES)),
            field="outcome",
        )
    message, _etag = await known_message(caller, ref)
    found, following = await recipient_outcomes.page(
        caller.tables,
        message,
        OUTCOMES[outcome] if outcome else None,
        limit=asked.limit,
        start=_place(asked.after),
    )
    after = None if following is None else f"{following.batch}-{following.position}"
    return paging.page(caller, asked, [_data(fate) for fate in found], after)


def _place(after: str) -> AudiencePosition:
    """As it stood in the cursor, which is ours."""
    batch, _, position = after.partition("-")
    return AudiencePosition(int(batch), int(position)) if after else AudiencePosition()


def _data(fate: RecipientOutcome) -> dict[str, Any]:
    return {"address": fate.address, "outcome": fate.outcome, "at": fate.at, "words": fate.words}
