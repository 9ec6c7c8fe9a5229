"""Notices: what a page says once, after a form was sent.

The redirect sets a cookie that lives for a minute, and the page that shows the notice clears it: so
it works without script and with any number of web processes, a reload says nothing again, and no
address carries it. The cookie holds a word and a few values, never a sentence, so nobody can put
words of their own into a page; what cannot be read is not shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from postroom.domain.texts import Text, _, ngettext
from postroom.web.context import WebContext, context_of
from postroom.web.labels import time_text
from postroom.web.signed_in import SAFE_METHODS

KEPT_S = 60  # the page comes right after it
VALUE_CHARS_MAX = 200
_BETWEEN = "|"

NOTICES = {
    "saved": _("Saved."),
    "created": _("Created."),
    "deleted": _("Deleted."),
    "deleting": _("It is being deleted, in the background."),
    "added": _("Added."),
    "asked": _("A confirmation email will be sent to them in a moment."),
    "removed": _("Removed."),
    "withdrawn": _("Withdrawn: the link is void."),
    "revoked": _("Revoked: within five seconds nobody takes it any more."),
    "ended": _("Signed out there."),
    "password": _("Your password is changed, and every other browser signed out."),
    "unscheduled": _("Back to draft. It will not be sent."),
    "paused": _("Paused. Sending stops within a few seconds."),
    "resumed": _("Sending continues."),
    "cancelled": _("Cancelled. Nobody else will get this message."),
    "retrying": _("Sending again to everybody it failed for."),
    "decided": _("Decided."),
    "test-sent": _("Test mail requested. The result appears below the button."),
    "copied": _("This is the copy. The original is unchanged."),
    "not-editable": _("This message can no longer be edited: sending has begun."),
    "emptied": _("Emptied."),
    "limit-set": _("Saved: senders follow within a few seconds."),
    "limit-cleared": _("Cleared: senders follow within a few seconds."),
}


def _sending(people: str) -> Text:
    return ngettext(
        "Sending to {count:,} subscriber has begun.",
        "Sending to {count:,} subscribers has begun.",
        int(people),
    )


def _scheduled(due_s: str, zone: str, people: str, now_s: str) -> Text:
    due_at = datetime.fromtimestamp(float(due_s), UTC)
    when = time_text(due_at, zone, datetime.fromtimestamp(float(now_s), UTC))
    if not int(people):
        return _("Scheduled for {when}. Nobody on the list is confirmed yet.", when=when)
    return ngettext(
        "Scheduled for {when}, {count:,} subscriber.",
        "Scheduled for {when}, {count:,} subscribers.",
        int(people),
        when=when,
    )


WARNINGS = {"not-editable"}  # what was asked for was not done
WITH_VALUES: dict[str, Callable[..., Text]] = {"sending": _sending, "scheduled": _scheduled}


def go(path: str, said: str = "", *values: object) -> Response:
    """After a POST: GET there, and say what happened."""
    if not said:
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)
    cookie = _BETWEEN.join(quote(str(each), safe="") for each in (said, *values))
    assert notice_of(cookie), f"no notice is called {said}"
    return _Told(path, cookie)


class Notice(NamedTuple):
    text: Text
    is_warning: bool


def notice_of(cookie: str) -> Notice | None:
    """What the cookie says, if it is one of ours."""
    word, *values = [unquote(each) for each in cookie[:VALUE_CHARS_MAX].split(_BETWEEN)]
    with contextlib.suppress(LookupError, ValueError, TypeError, OverflowError, OSError):
        text = WITH_VALUES[word](*values) if word in WITH_VALUES else NOTICES[word]
        return Notice(text, word in WARNINGS)
    return None


def notice_for(request: Request) -> Notice | None:
    """What this page is to say; a part of a page, fetched by script, says nothing."""
    if request.method not in SAFE_METHODS or "hx-request" in request.headers:
        return None
    return notice_of(request.cookies.get(cookie_name(context_of(request)), ""))


def clear(request: Request, response: Response) -> None:
    context = context_of(request)
    response.delete_cookie(
        cookie_name(context), secure=context.is_https, httponly=True, samesite="lax"
    )


def cookie_name(context: WebContext) -> str:
    """`__Host-` binds it to this host, but browsers want https for that."""
    return "__Host-postroom-notice" if context.is_https else "postroom-notice"


class _Told(RedirectResponse):
    """A redirect with a notice for the page that it leads to."""

    def __init__(self, path: str, cookie: str) -> None:
        super().__init__(path, HTTPStatus.SEE_OTHER)
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: WebContext = scope["app"].state.context
        self.set_cookie(
            cookie_name(context),
            self._cookie,
            max_age=KEPT_S,
            secure=context.is_https,
            httponly=True,
            samesite="lax",
        )
        await super().__call__(scope, receive, send)
