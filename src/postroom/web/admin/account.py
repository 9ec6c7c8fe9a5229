"""Signing in and out, the first account, the user's own password and browsers."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from datetime import datetime, timedelta
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser, WrongPassword
from postroom.domain.address import BadAddress, parse_address
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.throttle import NO_WAIT, Rate
from postroom.domain.token import sign
from postroom.domain.user import User
from postroom.records import throttles, users
from postroom.web.context import WebContext, client_of, context_of, one_per_app
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show, show_bare
from postroom.web.signed_in import (
    Anybody,
    Viewer,
    clear_cookie,
    cookie_name,
    find_signed_in,
    set_cookie,
)
from postroom.web.throttles import network_of

router = APIRouter()
HOME = "/admin"
HOUR = timedelta(hours=1)
# At once and per hour: a person mistypes, a program tries for ever. Attempts at one account count
# by network, or anybody could lock anybody out.
ADDRESS_TRIES = 10
NETWORK_TRIES = 50
_OF_ADDRESS = Rate(ADDRESS_TRIES, HOUR, ADDRESS_TRIES)
_OF_NETWORK = Rate(NETWORK_TRIES, HOUR, NETWORK_TRIES)
REFUSED_MAX = 10_000


class SignInTries:
    """Counts password attempts over all web processes.

    Exactly, in storage: checking a password costs more than the row does. Callers who have to wait
    are remembered here, so that further attempts cost no storage calls.
    """

    def __init__(self, context: WebContext) -> None:
        self._tables = context.storage.tables
        self._secret = context.site.secret
        self._refused_until: OrderedDict[str, datetime] = OrderedDict()

    async def wait(self, network: str, address: str, now: datetime) -> timedelta:
        """Count the attempt and return no wait; or return how long to wait.

        Counted before the password is checked, so that attempts at the same time all count.
        """
        all_ = self._hidden(network)
        these = self._hidden(network, address)
        wait = max(self._refused_for(all_, now), self._refused_for(these, now))
        if wait <= NO_WAIT:
            wait = await self._count(all_, _OF_NETWORK, now)
        if wait <= NO_WAIT:
            wait = await self._count(these, _OF_ADDRESS, now)
        return wait

    async def forgive(self, network: str, address: str) -> None:
        await throttles.forgive_tries(self._tables, self._hidden(network, address))

    async def _count(self, caller: str, rate: Rate, now: datetime) -> timedelta:
        wait = await throttles.count_try(self._tables, caller, rate, now)
        if wait > NO_WAIT:
            self._refused_until[caller] = now + wait
            self._refused_until.move_to_end(caller)
            if len(self._refused_until) > REFUSED_MAX:
                self._refused_until.popitem(last=False)
        return wait

    def _refused_for(self, caller: str, now: datetime) -> timedelta:
        """A time more than an hour away was written by a wrong clock: nobody waits for that."""
        wait = self._refused_until.get(caller, now) - now
        return wait if NO_WAIT < wait < HOUR else NO_WAIT

    def _hidden(self, *caller: str) -> str:
        return sign(self._secret, "tries", *caller)


_BROWSERS = ("Edg", "OPR", "Firefox", "Chrome", "Safari")
_SYSTEMS = ("Windows", "Android", "iPhone", "iPad", "Macintosh", "Linux")
_COMMON_NAMES = {"Edg": "Edge", "OPR": "Opera", "Macintosh": "Mac"}


@router.get("/sign-in")
async def sign_in_page(request: Request, _anybody: Anybody) -> Response:
    if await find_signed_in(request):
        return go(_safe(request.query_params.get("next", "")))
    form = Form()
    if not await users.has_any(context_of(request).storage.tables):
        form.mistake = _(
            "There is no account yet. Open the link that “postroom serve” printed when it started."
        )
    return _door(request, form, request.query_params.get("next", ""))


@router.post("/sign-in")
async def sign_in_now(request: Request, _anybody: Anybody) -> Response:
    """The same answer whether the address or the password is wrong."""
    context = context_of(request)
    form = await posted(request)
    where = _safe(form.value("next"))
    tries = _tries(request)
    who = _who(form.value("address"))
    wait = await tries.wait(network_of(client_of(request)), who, context.clock.now())
    if wait > NO_WAIT:
        form.mistake = _too_many(wait)
        return _door(request, form, where, status=429)
    user = await sign_in.check(
        context.storage.tables, form.value("address"), form.value("password")
    )
    if user is None:
        form.mistake = _("The email address or password is wrong.")
        return _door(request, form, where, status=422)
    await tries.forgive(network_of(client_of(request)), who)
    return await _let_in(request, user, where)


@router.post("/sign-out")
async def sign_out(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    await users.end_session(context.storage.tables, signed_in.session.id)
    response = go("/admin/sign-in")
    clear_cookie(response, context)
    return response


@router.get("/welcome/{token}")
async def welcome_page(request: Request, token: str, _anybody: Anybody) -> Response:
    """An invitation, or the first start; opening the link changes nothing."""
    context = context_of(request)
    invitation = await sign_in.find_invitation(context.storage.tables, token, context.clock.now())
    if invitation is None:
        return show_bare(request, "void_link.html", 404)
    form = Form({"address": invitation.address})
    return show_bare(request, "welcome.html", form=form, is_first=not invitation.address)


@router.post("/welcome/{token}")
async def welcome(request: Request, token: str, _anybody: Anybody) -> Response:
    context = context_of(request)
    tables = context.storage.tables
    now = context.clock.now()
    invitation = await sign_in.find_invitation(tables, token, now)
    if invitation is None:  # nothing that a stranger sends is read
        return show_bare(request, "void_link.html", 404)
    form = await posted(request)
    address = form.value("address")
    password = form.value("password")
    try:
        user = await sign_in.accept(tables, token, address, password, now)
    except BadAddress as error:
        form.mistakes["address"] = str(error)
    except BadInput as error:
        form.mistakes["password"] = str(error)
    else:
        if user is None:
            return show_bare(request, "void_link.html", 404)
        return await _let_in(request, user, HOME)
    is_first = not invitation.address
    return show_bare(request, "welcome.html", 422, form=form, is_first=is_first)


@router.get("/account")
async def account_page(request: Request, signed_in: Viewer) -> Response:
    return await _account(request, signed_in, Form())


@router.post("/account/password")
async def change_password(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    form = await posted(request)
    tables = context.storage.tables
    now = context.clock.now()
    wait = await _tries(request).wait(signed_in.session.id, signed_in.user.key, now)
    if wait > NO_WAIT:
        form.mistake = _too_many(wait)
        return await _account(request, signed_in, form, status=429)
    try:
        await sign_in.change_password(
            tables, signed_in.user, form.value("old_password"), form.value("new_password"), now
        )
    except WrongPassword as error:
        form.mistakes["old_password"] = str(error)
        return await _account(request, signed_in, form, status=422)
    except BadInput as error:
        form.mistakes["new_password"] = str(error)
        return await _account(request, signed_in, form, status=422)
    return await _let_in(request, signed_in.user, "/admin/account", "password")


@router.post("/account/sessions/end")
async def end_session(request: Request, signed_in: Viewer) -> Response:
    """Sign out one of the user's browsers, or all of them."""
    context = context_of(request)
    form = await posted(request)
    tables = context.storage.tables
    now = context.clock.now()
    if form.value("session") == "all":
        await sign_in.sign_out_everywhere(tables, signed_in.user, now)
        response = go("/admin/sign-in")
        clear_cookie(response, context)
        return response
    own = {session.id for session in await users.sessions_of(tables, signed_in.user, now)}
    if form.value("session") in own:
        await users.end_session(tables, form.value("session"))
    return go("/admin/account", "ended")


async def _account(request: Request, signed_in: Viewer, form: Form, status: int = 200) -> Response:
    context = context_of(request)
    sessions = await users.sessions_of(context.storage.tables, signed_in.user, context.clock.now())
    return show(request, signed_in, "account.html", status, form=form, sessions=sessions)


def _door(request: Request, form: Form, where: str, status: int = 200) -> Response:
    form.values["next"] = where
    form.values.pop("password", None)
    return show_bare(request, "sign_in.html", status, form=form)


async def _let_in(request: Request, user: User, where: str, said: str = "") -> Response:
    """Start a new session, so that nobody can have planted its token."""
    context = context_of(request)
    old = request.cookies.get(cookie_name(context))
    if old:
        await users.end_session(context.storage.tables, users.token_hash(old))
    browser = Browser(client_of(request), _browser(request.headers.get("user-agent", "")))
    token = await sign_in.begin(context.storage.tables, user, browser, context.clock.now())
    response = go(where, said)
    set_cookie(response, context, token)
    return response


def _tries(request: Request) -> SignInTries:
    return one_per_app(request.app, SignInTries, context_of(request))


def _who(typed: str) -> str:
    """The identity of an address, so that other spellings are not other callers."""
    try:
        return parse_address(typed.strip()).storage_key
    except BadAddress:
        return typed.strip().casefold()[:320]


def _too_many(wait: timedelta) -> Text:
    minutes = math.ceil(wait / timedelta(minutes=1))
    return ngettext(
        "Too many attempts. Try again in {minutes} minute.",
        "Too many attempts. Try again in {minutes} minutes.",
        minutes,
        minutes=minutes,
    )


def _safe(where: str) -> str:
    """Only a page of ours: for a browser, //elsewhere and \\elsewhere are other sites."""
    return quote(where, safe="/?=&%") if re.match(r"/admin(/[^/\\]|$|\?)", where) else HOME


def _browser(agent: str) -> str:
    """“Firefox · Linux”, as far as it is known."""
    found = [
        *[each for each in _BROWSERS if each in agent][:1],
        *[each for each in _SYSTEMS if each in agent][:1],
    ]
    return " · ".join(_COMMON_NAMES.get(each, each) for each in found)
