"""Admin pages: the frame around each, and the format of times and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from postroom.domain.address import readable_address
from postroom.domain.consent import source_text
from postroom.domain.rate_limit import rate_text
from postroom.domain.subscriber import subscription
from postroom.domain.suppression import suppression_source_text
from postroom.domain.texts import Text, _
from postroom.web.context import context_of, has_mailbox
from postroom.web.forms import new_token
from postroom.web.labels import STATES, size, states, time_text, word
from postroom.web.notices import COOKIE, go, notice_for
from postroom.web.signed_in import SignedIn, clear_cookie
from postroom.web.templating import template_environment

__all__ = ["MenuEntry", "go", "number", "part", "show", "show_bare"]


class MenuEntry(msgspec.Struct, frozen=True):
    """One line of the sidebar."""

    path: str
    title: Text
    icon: str
    role: str = "viewer"


MENU = [
    MenuEntry("/admin", _("Overview"), "home"),
    MenuEntry("/admin/lists", _("Lists"), "list"),
    MenuEntry("/admin/subscribers", _("Subscribers"), "users"),
    MenuEntry("/admin/imports", _("Imports"), "upload"),
    MenuEntry("/admin/suppression", _("Suppression"), "mail-off"),
    MenuEntry("/admin/messages", _("Messages"), "mail"),
    MenuEntry("/admin/templates", _("Templates"), "stack"),
    MenuEntry("/admin/media", _("Media"), "photo"),
    MenuEntry("/admin/outbox", _("Test mailbox"), "inbox", "editor"),
]
SYSTEM_MENU = [
    MenuEntry("/admin/sending", _("Sending"), "send"),
    MenuEntry("/admin/limits", _("Limits"), "gauge"),
    MenuEntry("/admin/instances", _("Instances"), "device-desktop"),
    MenuEntry("/admin/traces", _("Traces"), "clock"),
    MenuEntry("/admin/dead-letters", _("Queues and dead letters"), "stack"),
    MenuEntry("/admin/webhooks", _("Webhooks"), "activity", "owner"),
    MenuEntry("/admin/storage", _("Storage"), "database", "owner"),
    MenuEntry("/admin/audit", _("Audit log"), "history", "owner"),
    MenuEntry("/admin/settings", _("Settings"), "settings", "owner"),
    MenuEntry("/admin/keys", _("Access keys"), "key", "owner"),
    MenuEntry("/admin/users", _("Users"), "users", "owner"),
]

_pages = template_environment()


def show(
    request: Request,
    signed_in: SignedIn,
    template: str,
    status: int = HTTPStatus.OK,
    **values: object,
) -> HTMLResponse:
    """A page in the frame; htmx gets the same page and picks the part it needs."""
    notice = notice_for(request)
    page = _render(request, template, signed_in=signed_in, notice=notice, **values)
    response = HTMLResponse(page, status)
    if notice:
        clear_cookie(response, context_of(request), COOKIE)
    return response


def show_bare(
    request: Request, template: str, status: int = HTTPStatus.OK, **values: object
) -> HTMLResponse:
    """A page for somebody who is not signed in."""
    return HTMLResponse(_render(request, template, signed_in=None, notice=None, **values), status)


def part(template: str, **values: object) -> str:
    """A piece of a page, for live updates."""
    return _pages.get_template(f"admin/{template}").render(**values)


def _render(request: Request, template: str, **values: object) -> str:
    context = context_of(request)
    return _pages.get_template(f"admin/{template}").render(
        path=request.url.path,
        menu=[each for each in MENU if has_mailbox(request) or each.path != "/admin/outbox"],
        system_menu=SYSTEM_MENU,
        **{"now": context.clock.now(), "is_test_mode": context.has_outbox, **values},
    )


def number(value: int) -> str:
    return f"{value:,}"


def moment(at: datetime | None, otherwise: str = "–") -> Markup:
    """A time in UTC, which the script shows in the reader's own zone."""
    if at is None:
        return Markup(escape(otherwise))
    instant = at.astimezone(UTC)
    text = instant.strftime("%Y-%m-%d %H:%M UTC")
    return Markup('<time datetime="{}" data-moment>{}</time>').format(instant.isoformat(), text)


def second(at: datetime) -> Markup:
    """A time to the second, which the script shows in the reader's own zone."""
    instant = at.astimezone(UTC)
    text = instant.strftime("%Y-%m-%d %H:%M:%S UTC")
    tag = '<time datetime="{}" data-moment="second">{}</time>'
    return Markup(tag).format(instant.isoformat(), text)


def until(at: datetime) -> Markup:
    """A time to the second, which the script shows as the time left."""
    instant = at.astimezone(UTC)
    text = _("at {time} UTC", time=instant.strftime("%H:%M:%S"))
    return Markup('<time datetime="{}" data-until>{}</time>').format(instant.isoformat(), text)


def share(part_: int, whole: int, width: float = 1000.0) -> str:
    """The length of a part of a bar."""
    return f"{part_ * width / whole:.2f}" if whole else "0"


def percent(part_: int, whole: int) -> str:
    """“3.4 %”, with a decimal only where it matters."""
    if not whole:
        return "–"
    value = 100 * part_ / whole
    is_round = part_ in (0, whole) or value >= 10
    return f"{value:.0f}%" if is_round else f"{value:.1f}%"


def polyline(values: Sequence[float], width: float, height: float) -> str:
    """The points of a small curve from the lower left, for an SVG."""
    top = max(values, default=0) or 1
    step = width / max(1, len(values) - 1)
    return " ".join(
        f"{at * step:.1f},{height - value * (height - 2) / top - 1:.1f}"
        for at, value in enumerate(values)
    )


_pages.filters |= {"number": number, "moment": moment, "until": until, "word": word, "size": size}
_pages.filters["second"] = second
_pages.filters |= {"address": readable_address, "rate": rate_text, "source_text": source_text}
_pages.filters |= {"suppression_source": suppression_source_text}
_pages.globals |= {"share": share, "percent": percent, "polyline": polyline, "new_token": new_token}
_pages.globals |= {"STATES": STATES, "states": states, "time_text": time_text}
_pages.globals["subscription"] = subscription
