"""Webhooks: what providers report about emails is stored before they get an answer.

POST /webhooks/PROVIDER; no cookie and no key. Each provider proves itself by its signature, or by
the secret that an owner gave it. See webhooks/intake.py.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from postroom.feedback.webhooks.post import WebhookRequest
from postroom.web.webhooks.intake import intake_of
from postroom.web.webhooks.keys import Provider

router = APIRouter(include_in_schema=False)


@router.api_route("/webhooks/{provider}", methods=["POST", "OPTIONS"])
async def receive(request: Request, provider: str) -> Response:
    if provider not in Provider.__members__.values():
        return PlainTextResponse("There is no such webhook.", 404)
    post = WebhookRequest(
        body=await request.body(),
        headers={name.lower(): value for name, value in request.headers.items()},
        query=dict(request.query_params),
        method=request.method,
    )
    return await intake_of(request.app).receive(Provider(provider), post)
