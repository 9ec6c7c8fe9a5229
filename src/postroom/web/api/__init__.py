"""The web service under /api/v1: what a client's site and other programs may ask for.

problems, gate, body          refusals; who may call; what a call brings
paging, versions, idempotency pages by cursor; ETag and If-Match; creating once
subscribe, lists, subscribers, messages, steering, outcomes      the resources
described                     what /api/v1/openapi.json says of all that
"""

from __future__ import annotations

from fastapi import APIRouter

from postroom.web.api import control, lists, messages, outcomes, subscribe, subscribers
from postroom.web.api.openapi import describe
from postroom.web.api.problems import ApiProblem

__all__ = ["ApiProblem", "describe", "router"]

router = APIRouter(prefix="/api/v1")
for _resource in (subscribe, lists, subscribers, messages, control, outcomes):
    router.include_router(_resource.router)
