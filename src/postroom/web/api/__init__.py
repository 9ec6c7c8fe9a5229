"""The web service under /api/v1: what a client's site and other programs may ask for.

problems, gate, body          refusals; who may call; what a call brings
paging, versions, idempotency pages by cursor; ETag and If-Match; creating once
subscribe, lists, subscribers, messages, steering, outcomes      the resources
described                     what /api/v1/openapi.json says of all that
"""

from __future__ import annotations

from fastapi import APIRouter

from postroom.web.api import lists, messages, outcomes, steering, subscribe, subscribers
from postroom.web.api.described import describe
from postroom.web.api.problems import Refused

__all__ = ["Refused", "describe", "router"]

router = APIRouter(prefix="/api/v1")
for _resource in (subscribe, lists, subscribers, messages, steering, outcomes):
    router.include_router(_resource.router)
