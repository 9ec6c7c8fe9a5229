"""Admin pages: the frame around each, and how times, numbers and notices are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from postroom.domain.address import readable_address
from postroom.domain.consent import source_text
from postroom.domain.rate_limit import rate_text
from postroom.domain.subscriber import subscription
from postroom.domain.texts import Text, _
from postroom.web.desk import desk_of
from postroom.web.forms import new_token
from postroom.web.texts import pages
from postroom.web.visitor import Visitor
from postroom.web.words import STATES, size, word

# What a page says after a form was sent: the address carries the word, never the sentence.
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
    "scheduled": _("Scheduled."),
    "paused": _("Paused: within a moment nothing more goes out."),
    "resumed": _("Going on."),
    "cancelled": _("Cancelled: who is still queued is skipped."),
    "retrying": _("The failed are queued again."),
    "decided": _("Decided."),
    "test-sent": _("The test mail is on its way."),
    "copied": _("This is the copy; the original is unchanged."),
    "emptied": _("Emptied."),
    "limit-set": _("Saved: senders follow within a few seconds."),
    "limit-cleared": _("Cleared: senders follow within a few seconds."),
}


class Entry(msgspec.Struct, frozen=True):
    """One line of the side bar."""

    path: str
    title: Text
    icon: str
    role: str = "viewer"


MENU = [
    Entry("/admin", _("Overview"), "home"),
    Entry("/admin/lists", _("Lists"), "list"),
    Entry("/admin/subscribers", _("Subscribers"), "users"),
    Entry("/admin/imports", _("Imports"), "upload"),
    Entry("/admin/messages", _("Messages"), "mail"),
    Entry("/admin/outbox", _("Outbox"), "inbox", "editor"),
    Entry("/admin/limits", _("Limits"), "gauge"),
    Entry("/admin/keys", _("Access keys"), "key", "owner"),
    Entry("/admin/users", _("Users"), "users", "owner"),
]

_pages = pages()


def show(
    request: Request,
    visitor: Visitor,
    template: str,
    status: int = HTTPStatus.OK,
    **values: object,
) -> HTMLResponse:
    """A page in the frame. htmx gets the same page, and takes the part it asked for."""
    return HTMLResponse(_render(request, template, visitor=visitor, **values), status)


def show_bare(
    request: Request, template: str, status: int = HTTPStatus.OK, **values: object
) -> HTMLResponse:
    """A page for somebody who is not signed in."""
    return HTMLResponse(_render(request, template, visitor=None, **values), status)


def part(template: str, **values: object) -> str:
    """A piece of a page, for live updates."""
    return _pages.get_template(f"admin/{template}").render(**values)


def go(path: str, said: str = "") -> Response:
    """After a POST: GET there, and say what happened."""
    assert not said or said in NOTICES
    to = f"{path}{'&' if '?' in path else '?'}said={said}" if said else path
    return RedirectResponse(to, HTTPStatus.SEE_OTHER)


def _render(request: Request, template: str, **values: object) -> str:
    desk = desk_of(request)
    return _pages.get_template(f"admin/{template}").render(
        path=request.url.path,
        menu=[entry for entry in MENU if desk.has_outbox or entry.path != "/admin/outbox"],
        notice=NOTICES.get(request.query_params.get("said", ""), ""),
        now=desk.clock.now(),
        **values,
    )


def number(value: int) -> str:
    return f"{value:,}"


def moment(at: datetime | None, otherwise: str = "–") -> Markup:
    """A time in UTC, which the script shows in the reader's own zone."""
    if at is None:
        return Markup(escape(otherwise))
    instant = at.astimezone(UTC)
    words = instant.strftime("%Y-%m-%d %H:%M UTC")
    return Markup('<time datetime="{}" data-moment>{}</time>').format(instant.isoformat(), words)


def share(part_: int, whole: int, width: float = 1000.0) -> str:
    """A length in a picture; something is always seen of what is not nothing."""
    return f"{part_ * width / whole:.2f}" if whole else "0"


def polyline(values: Sequence[float], width: float, height: float) -> str:
    """Points of a small curve from the lower left, for an SVG."""
    top = max(values, default=0) or 1
    step = width / max(1, len(values) - 1)
    return " ".join(
        f"{at * step:.1f},{height - value * (height - 2) / top - 1:.1f}"
        for at, value in enumerate(values)
    )


_pages.filters |= {"number": number, "moment": moment, "address": readable_address}
_pages.filters |= {"rate": rate_text, "size": size, "source_text": source_text, "word": word}
_pages.globals |= {"share": share, "polyline": polyline, "new_token": new_token}
_pages.globals |= {"STATES": STATES, "subscription": subscription}
