"""The page that shows a message in a browser, to anybody who has its link.

The link is in the emails: /v/<ref>/<token>, where only we can make the token. The page has nobody's
data: merge fields show their defaults, conditions take the branch without values, and the
unsubscribe link leads nowhere, because a page that people share must not unsubscribe anybody.
"""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.token import is_signed
from postroom.flow.render import message_parts
from postroom.mail.mime import filled_with_defaults
from postroom.parsing import in_thread
from postroom.records import bodies, lists, messages
from postroom.web.context import context_of
from postroom.web.public.links import render
from postroom.web.security import VIEW_POLICY

router = APIRouter(include_in_schema=False)


@router.api_route("/v/{ref}/{token}", methods=["GET", "HEAD"])
async def view_message(request: Request, ref: str, token: str) -> Response:
    context = context_of(request)
    storage = context.storage
    if is_signed(token, context.site.secret, "view", ref):
        with contextlib.suppress(NotFound, BadInput):  # deleted, or no longer kept
            message = await messages.read(storage.tables, ref)
            html, text = await bodies.load(storage.blobs, message)
            mailing_list = await lists.find(storage.tables, message.list_name)
            parts = await in_thread(message_parts, message, mailing_list, html, text, context.site)
            if parts.html is None:
                words = await in_thread(filled_with_defaults, parts.text or "", is_html=False)
                return PlainTextResponse(words)
            page = await in_thread(filled_with_defaults, parts.html, is_html=True)
            return HTMLResponse(page, headers={"Content-Security-Policy": VIEW_POLICY})
    return HTMLResponse(render("not_found.html", list_title=""), 404)
