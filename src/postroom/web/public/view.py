"""The page that shows a message in a browser, to anybody who has its link.

The link is in the emails: /v/<ref>/<token>, where only we can make the token. The page has nobody's
data: merge fields show their defaults, conditions take the branch without values, and the
unsubscribe link leads nowhere, because a page that people share must not unsubscribe anybody. The
subject is the title of the page, unless its author gave it one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from html import escape

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message
from postroom.domain.token import is_signed
from postroom.flow.render import Site, message_parts
from postroom.mail.mime import filled_with_defaults
from postroom.parsing import in_thread
from postroom.records import bodies, lists, messages
from postroom.storage.port import Blobs
from postroom.web.context import context_of, one_per_app
from postroom.web.public.links import render
from postroom.web.security import VIEW_POLICY

router = APIRouter(include_in_schema=False)
PAGES_KEPT_MAX = 16
CHARS_KEPT_MAX = 256 * 1024  # of one page; far more than Gmail shows
_OWN_TITLE = re.compile(r"<title[^<>]*>\s*[^<\s]", re.IGNORECASE)
_NO_TITLE = re.compile(r"<title[^<>]*>\s*</title>", re.IGNORECASE)  # as MJML writes it
_BEFORE_TITLE = re.compile(r"\s*(?:<!doctype[^>]*>)?(?:[^<]*<html[^>]*>)?(?:\s*<head[^>]*>)?", re.I)


class ViewPage(msgspec.Struct, frozen=True):
    content: str
    is_html: bool


class ViewPages:
    """The pages that were opened last, because many people open the same one within hours.

    Only one page is made at a time: otherwise everybody with a link could fill the thread for
    bodies, for which those who write messages would wait.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], ViewPage] = OrderedDict()
        self._making = asyncio.Lock()

    async def page(
        self, blobs: Blobs, message: Message, mailing_list: MailingList | None, site: Site
    ) -> ViewPage:
        """The page of this edition; NotFound or BadInput if it cannot be made."""
        title = mailing_list.description if mailing_list else ""
        postal = mailing_list.postal_address if mailing_list else ""
        written = (message.edition, message.subject, message.preview_text)
        key = (message.ref, *written, message.list_name, title, postal)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        async with self._making:
            if key in self._kept:
                return self._kept[key]
            html, text = await bodies.load(blobs, message)
            made = await in_thread(_made, message, mailing_list, html, text, site)
            if len(made.content) <= CHARS_KEPT_MAX:
                self._kept[key] = made
            if len(self._kept) > PAGES_KEPT_MAX:
                self._kept.popitem(last=False)
        return made


def _made(
    message: Message,
    mailing_list: MailingList | None,
    html: str | None,
    text: str | None,
    site: Site,
) -> ViewPage:
    parts = message_parts(message, mailing_list, html, text, site)
    if parts.html is None:
        return ViewPage(filled_with_defaults(parts.text or "", is_html=False), is_html=False)
    subject = filled_with_defaults(message.subject, is_html=False).strip()
    page = filled_with_defaults(parts.html, is_html=True)
    return ViewPage(_with_title(page, subject), is_html=True)


def _with_title(page: str, subject: str) -> str:
    if _OWN_TITLE.search(page):
        return page
    page = _NO_TITLE.sub("", page, count=1)
    start = _BEFORE_TITLE.match(page)
    at = start.end() if start else 0
    return f"{page[:at]}<title>{escape(subject)}</title>{page[at:]}"


@router.api_route("/v/{ref}/{token}", methods=["GET", "HEAD"])
async def view_message(request: Request, ref: str, token: str) -> Response:
    context = context_of(request)
    storage = context.storage
    if is_signed(token, context.site.secret, "view", ref):
        with contextlib.suppress(NotFound, BadInput):  # deleted, or no longer kept
            message = await messages.read(storage.tables, ref)
            mailing_list = await lists.find(storage.tables, message.list_name)
            pages = one_per_app(request.app, ViewPages)
            page = await pages.page(storage.blobs, message, mailing_list, context.site)
            if not page.is_html:
                return PlainTextResponse(page.content)
            return HTMLResponse(page.content, headers={"Content-Security-Policy": VIEW_POLICY})
    return HTMLResponse(render("not_found.html", list_title=""), 404)
