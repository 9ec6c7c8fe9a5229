"""The web service under /api/v1, for a client's site and other programs.

auth, route, problems       access keys; how a call reaches its function; refusals
paging, etags, idempotency  pages by cursor; ETag and If-Match; creating once
lists, subscribers, suppressions, messages, attachments, media, controls, feedback, senders
                            the resources
bodies, previews, imports   message bodies; their source and previews; imported pages
templates                   templates and snippets
openapi                     what /api/v1/openapi.json contains beyond the routes
"""

from __future__ import annotations

from fastapi import APIRouter, Depends

from postroom.web.api import (
    attachments,
    controls,
    feedback,
    imports,
    lists,
    media,
    messages,
    previews,
    senders,
    subscribers,
    suppressions,
    templates,
)
from postroom.web.api.auth import BEARER

PREFIX = "/api/v1"
ROUTERS = (
    subscribers.sign_ups,
    lists.router,
    subscribers.router,
    suppressions.router,
    messages.router,
    attachments.router,
    previews.router,
    controls.router,
    feedback.router,
    imports.router,
    templates.router,
    media.router,
    senders.router,
)
router = APIRouter(prefix=PREFIX, dependencies=[Depends(BEARER)])
for _each in ROUTERS:
    router.include_router(_each)
