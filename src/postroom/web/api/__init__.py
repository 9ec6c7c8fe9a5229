"""The web service under /api/v1, for a client's site and other programs.

auth, route, problems       access keys; how a call reaches its function; refusals
paging, etags, idempotency  pages by cursor; ETag and If-Match; creating once
subscribe, lists, subscribers, suppressions, messages, controls, outcomes    the resources
openapi                     what /api/v1/openapi.json says beyond the routes
"""

from __future__ import annotations

from fastapi import APIRouter, Depends

from postroom.web.api import (
    controls,
    lists,
    messages,
    outcomes,
    subscribe,
    subscribers,
    suppressions,
)
from postroom.web.api.auth import BEARER
from postroom.web.api.openapi import add_problem_schema
from postroom.web.api.problems import ApiProblem

__all__ = ["ApiProblem", "add_problem_schema", "router"]

router = APIRouter(prefix="/api/v1", dependencies=[Depends(BEARER)])
for _resource in (subscribe, lists, subscribers, suppressions, messages, controls, outcomes):
    router.include_router(_resource.router)
