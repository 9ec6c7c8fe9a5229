"""The web service under /api/v1, for a client's site and other programs.

auth, route, problems       access keys; how a call reaches its function; refusals
paging, etags, idempotency  pages by cursor; ETag and If-Match; creating once
lists, subscribers, suppressions, messages, controls, feedback, senders    the resources
openapi                     what /api/v1/openapi.json says beyond the routes
"""

from __future__ import annotations

from fastapi import APIRouter, Depends

from postroom.web.api import (
    controls,
    feedback,
    lists,
    messages,
    senders,
    subscribers,
    suppressions,
)
from postroom.web.api.auth import BEARER

router = APIRouter(prefix="/api/v1", dependencies=[Depends(BEARER)])
router.include_router(subscribers.sign_ups)
for _resource in (lists, subscribers, suppressions, messages, controls, feedback, senders):
    router.include_router(_resource.router)
