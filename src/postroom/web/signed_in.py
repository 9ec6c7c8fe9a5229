"""The signed-in user of an admin page, and the role that a page needs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from postroom.act import Act
from postroom.domain.consent import by_user
from postroom.domain.texts import _
from postroom.domain.user import ROLE_TEXTS, SESSION_LASTS, Role, Session, User
from postroom.domain.web_address import own_origin
from postroom.records import users
from postroom.web.context import WebContext, client_of, context_of, is_within

SAFE_METHODS = ("GET", "HEAD")
ADMIN = "/admin"
SESSION_COOKIE = "postroom"


class SignInRequired(Exception):
    """Nobody is signed in, or the session has ended."""


class NotAllowed(Exception):
    """The signed-in user may not do this; the text says why."""


class SignedIn(msgspec.Struct, frozen=True):
    user: User
    session: Session

    def may(self, role: str) -> bool:
        return self.user.role.covers(Role(role))


class RequireRole:
    """A dependency that returns the signed-in user if their role covers this one."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> SignedIn:
        check_network_and_origin(request)
        found = await find_signed_in(request)
        if found is None:
            raise SignInRequired
        if not found.may(self.role):
            raise NotAllowed(
                _(
                    "This needs the role {wanted}, but yours is {own}. Ask an owner.",
                    wanted=ROLE_TEXTS[self.role],
                    own=ROLE_TEXTS[found.user.role],
                )
            )
        return found


async def anybody(request: Request) -> None:
    """A dependency for the pages before signing in."""
    check_network_and_origin(request)


Anybody = Annotated[None, Depends(anybody)]


def check_network_and_origin(request: Request) -> None:
    """Allow only permitted networks, and same-origin requests for anything that changes state.

    Browsers send Sec-Fetch-Site, but not over plain http to another machine. Then the page's origin
    must be our URL or, if that is not set, the host of the request. A site whose name resolves to
    us (DNS rebinding) passes that check, but without a session, because cookies belong to the name
    they were set for. It can do no more than anybody who reaches our port.
    """
    context = context_of(request)
    if context.admin_networks and not is_within(client_of(request), context.admin_networks):
        raise NotAllowed(_("The admin pages are not available from your network."))
    if request.method in SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "")
    if site in ("same-origin", "none") or (site is None and origin == context.site.url):
        return
    opened_as = own_origin(origin, request.headers.get("host", "")) if site is None else ""
    if not opened_as:
        raise NotAllowed(
            _("This request came from another site. Open the page here and try again.")
        )
    if context.is_url_given:
        raise NotAllowed(
            _(
                "Postroom’s address is set to {url}, but you opened it as {opened}. Open it at "
                "its address, or set POSTROOM_URL to the address people use.",
                url=context.site.url,
                opened=opened_as,
            )
        )


async def find_signed_in(request: Request) -> SignedIn | None:
    context = context_of(request)
    token = request.cookies.get(cookie_name(context))
    if not token:
        return None
    found = await users.find_session(context.storage.tables, token, context.clock.now())
    return SignedIn(*found) if found else None


def act_of(request: Request, signed_in: SignedIn, now: datetime | None = None) -> Act:
    """The context of what this user does; `now` as in `WebContext.act`."""
    return context_of(request).act(by_user(signed_in.user.address, client_of(request)), now)


def cookie_name(context: WebContext, name: str = SESSION_COOKIE) -> str:
    """`__Host-` binds the cookie to this host, which browsers only allow over https."""
    return f"__Host-{name}" if context.is_https else name


def set_cookie(
    response: Response,
    context: WebContext,
    value: str,
    name: str = SESSION_COOKIE,
    lasts: timedelta = SESSION_LASTS,
) -> None:
    response.set_cookie(
        cookie_name(context, name),
        value,
        max_age=int(lasts.total_seconds()),
        secure=context.is_https,
        httponly=True,
        samesite="lax",  # so that a link in an email opens an admin page signed in
    )


def clear_cookie(response: Response, context: WebContext, name: str = SESSION_COOKIE) -> None:
    response.delete_cookie(
        cookie_name(context, name), secure=context.is_https, httponly=True, samesite="lax"
    )
