"""Notices: a sentence that a page shows once after a form was submitted.

The redirect sets a cookie that lives for a minute, and the page that shows the notice clears it. So
it works without script and with any number of web processes, is not repeated on reload, and is not
in any URL. The cookie holds a key and a few values, never a sentence, so that nobody can put their
own text into a page; an invalid cookie is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from postroom.domain.texts import Text, _, ngettext
from postroom.web.context import context_of
from postroom.web.labels import time_text
from postroom.web.signed_in import SAFE_METHODS, cookie_name, set_cookie

COOKIE = "postroom-notice"
COOKIE_LASTS = timedelta(minutes=1)  # the page follows at once
COOKIE_CHARS_MAX = 200
_SEPARATOR = "|"

NOTICES = {
    "saved": _("Saved."),
    "created": _("Created."),
    "files-attached": _("Saved. The attachments are below the body."),
    "file-removed": _("Saved. The attachment was removed."),
    "deleted": _("Deleted."),
    "deleting": _("Deleting in the background."),
    "added": _("Added."),
    "asked": _("They will get a confirmation email in a moment."),
    "removed": _("Removed."),
    "withdrawn": _("Link revoked."),
    "revoked": _("Revoked. The key stops working within five seconds."),
    "ended": _("Signed out on that browser."),
    "password": _("Password changed. All other browsers are signed out."),
    "unscheduled": _("Unscheduled. The message is a draft again and will not be sent."),
    "paused": _("Paused. Sending stops within a few seconds."),
    "resumed": _("Sending continues."),
    "cancelled": _(
        "Cancelled. Sending stops within a few seconds, and everybody still queued is skipped."
    ),
    "retrying": _("Retrying all failed deliveries."),
    "decided": _("Done."),
    "test-sent": _("Test email requested. The result appears below the button."),
    "imported": _("The page was imported as a draft. Nothing has been sent."),
    "copied": _("This is a copy. The original is unchanged."),
    "not-editable": _("This message can no longer be edited because sending has started."),
    "emptied": _("Test mailbox emptied."),
    "suppressed": _("Suppressed. Senders skip this address within a few seconds."),
    "already-suppressed": _("Nothing was changed: this address is already suppressed."),
    "unsuppressed": _("Removed. This address gets messages to its lists again."),
    "erased": _("Erased. Only a hash of the address is kept, so that it is never emailed again."),
    "senders-set": _("Saved. The number of senders changes within a few seconds."),
    "settings-saved": _("Saved. All processes use it within a few seconds."),
    "setting-reset": _("Reset. All processes use the original value within a few seconds."),
    "limit-set": _("Saved. The limit applies within a few seconds."),
    "topic-confirmed": _("Confirmed. From now on, Amazon SNS posts this topic’s events here."),
    "topic-dismissed": _("Dismissed. The topic was not subscribed."),
    "letter-put-back": _("Put back. A sender will process it within a few seconds."),
    "row-saved": _("The row was saved."),
    "row-created": _("The row was created."),
    "row-deleted": _("The row was deleted."),
    "item-put": _("Added to the queue."),
    "item-moved": _("Moved to the other queue."),
    "item-deleted": _("Deleted from the queue."),
    "blob-saved": _("The blob was saved."),
    "blob-deleted": _("The blob was deleted."),
    "picture-added": _("Added. Enter its alt text below."),
    "limit-cleared": _("Cleared. This applies within a few seconds."),
}


def _sending(people: str) -> Text:
    return ngettext(
        "Sending to {count:,} subscriber has started.",
        "Sending to {count:,} subscribers has started.",
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


def _suppressions_imported(added: str, already: str) -> Text:
    return ngettext(
        "{count:,} address was added. Already suppressed: {already:,}.",
        "{count:,} addresses were added. Already suppressed: {already:,}.",
        int(added),
        already=int(already),
    )


def _pictures_added(count: str) -> Text:
    return ngettext(
        "{count} picture was added.",
        "{count} pictures were added. Enter an alt text for each.",
        int(count),
    )


def _letters_cleared(count: str) -> Text:
    return ngettext(
        "{count:,} dead letter was cleared.", "{count:,} dead letters were cleared.", int(count)
    )


def _letters_put_back(back: str, staying: str) -> Text:
    return ngettext(
        "{count:,} item was put back. {staying:,} could not be put back.",
        "{count:,} items were put back. {staying:,} could not be put back.",
        int(back),
        staying=int(staying),
    )


WARNINGS = {"not-editable", "already-suppressed"}  # nothing changed
WITH_VALUES: dict[str, Callable[..., Text]] = {
    "sending": _sending,
    "scheduled": _scheduled,
    "suppressions-imported": _suppressions_imported,
    "pictures-added": _pictures_added,
    "letters-cleared": _letters_cleared,
    "letters-put-back": _letters_put_back,
}


def go(path: str, notice: str = "", *values: object) -> Response:
    """Redirect after a POST, with a notice of what happened."""
    if not notice:
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)
    cookie = _SEPARATOR.join(quote(str(each), safe="") for each in (notice, *values))
    assert notice_of(cookie), f"no notice is called {notice}"
    return _RedirectWithNotice(path, cookie)


class Notice(NamedTuple):
    text: Text
    is_warning: bool


def notice_of(cookie: str) -> Notice | None:
    """The notice of a cookie, if it is valid."""
    key, *values = [unquote(each) for each in cookie[:COOKIE_CHARS_MAX].split(_SEPARATOR)]
    with contextlib.suppress(LookupError, ValueError, TypeError, OverflowError, OSError):
        text = WITH_VALUES[key](*values) if key in WITH_VALUES else NOTICES[key]
        return Notice(text, key in WARNINGS)
    return None


def notice_for(request: Request) -> Notice | None:
    """The notice to show on this page; a fragment fetched by script shows none."""
    if request.method not in SAFE_METHODS or "hx-request" in request.headers:
        return None
    return notice_of(request.cookies.get(cookie_name(context_of(request), COOKIE), ""))


class _RedirectWithNotice(RedirectResponse):
    """A redirect with a notice for its target."""

    def __init__(self, path: str, cookie: str) -> None:
        super().__init__(path, HTTPStatus.SEE_OTHER)
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        set_cookie(self, scope["app"].state.context, self._cookie, COOKIE, COOKIE_LASTS)
        await super().__call__(scope, receive, send)
