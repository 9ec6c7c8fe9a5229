"""Signing in and out, the first account, the user's own password and browsers."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from datetime import datetime, timedelta
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.act import Act
from postroom.actions import sign_in
from postroom.actions.sign_in import Browser, WrongPassword
from postroom.domain.address import BadAddress, parse_address
from postroom.domain.audit import (
    ActorKind,
    AuditAction,
    AuditActor,
    AuditKind,
    AuditOutcome,
    new_entry,
    values_text,
)
from postroom.domain.consent import by_user
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.throttle import NO_WAIT, Rate
from postroom.domain.token import sign
from postroom.domain.user import User
from postroom.records import audit, throttles, users
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Viewer
from postroom.web.context import WebContext, client_of, context_of, one_per_app
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show_bare
from postroom.web.signed_in import Anybody, clear_cookie, cookie_name, find_signed_in, set_cookie
from postroom.web.throttles import network_of

router = APIRouter()
HOME = "/admin"
HOUR = timedelta(hours=1)
# At once and per hour: a person mistypes, a program keeps trying. Attempts at one account count by
# network, so that nobody can lock somebody else out.
_OF_ADDRESS = Rate(10, HOUR, 10)
_OF_NETWORK = Rate(50, HOUR, 50)
REFUSED_MAX = 10_000


class SignInTries:
    """Counts password attempts over all web processes.

    They are counted exactly, in storage: checking a password costs more than writing the row.
    Callers who have to wait are remembered here, so that further attempts cost no storage calls.
    """

    def __init__(self, context: WebContext) -> None:
        self._tables = context.storage.tables
        self._secret = context.site.secret
        self._refused_until: OrderedDict[str, datetime] = OrderedDict()

    async def wait(self, network: str, address: str, now: datetime) -> timedelta:
        """Count the attempt and return no wait; or return how long to wait.

        Counted before the password is checked, so that attempts at the same time all count.
        """
        limits = {
            sign(self._secret, "tries", network): _OF_NETWORK,
            sign(self._secret, "tries", network, address): _OF_ADDRESS,
        }
        wait = max(self._refused_for(caller, now) for caller in limits)
        for caller, rate in limits.items():
            if wait <= NO_WAIT:
                wait = await throttles.count_try(self._tables, caller, rate, now)
                self._remember(caller, now, wait)
        return wait

    async def forgive(self, network: str, address: str) -> None:
        caller = sign(self._secret, "tries", network, address)
        await throttles.forgive_tries(self._tables, caller)

    def _remember(self, caller: str, now: datetime, wait: timedelta) -> None:
        if wait > NO_WAIT:
            self._refused_until[caller] = now + wait
            self._refused_until.move_to_end(caller)
            if len(self._refused_until) > REFUSED_MAX:
                self._refused_until.popitem(last=False)

    def _refused_for(self, caller: str, now: datetime) -> timedelta:
        """How long the caller still has to wait; over an hour only by a wrong clock, so ignored."""
        wait = self._refused_until.get(caller, now) - now
        return wait if NO_WAIT < wait < HOUR else NO_WAIT


_BROWSERS = ("Edg", "OPR", "Firefox", "Chrome", "Safari")
_SYSTEMS = ("Windows", "Android", "iPhone", "iPad", "Macintosh", "Linux")
_COMMON_NAMES = {"Edg": "Edge", "OPR": "Opera", "Macintosh": "Mac"}


@router.get("/sign-in")
async def sign_in_page(request: Request, _anybody: Anybody) -> Response:
    next_path = request.query_params.get("next", "")
    if await find_signed_in(request):
        return go(_safe_path(next_path))
    form = Form()
    if not await users.has_any(context_of(request).storage.tables):
        form.mistake = _(
            "There is no account yet. Open the link that “postroom serve” printed when it started."
        )
    return _show_sign_in(request, form, next_path)


@router.post("/sign-in")
async def sign_in_now(request: Request, _anybody: Anybody) -> Response:
    """The same answer whether the address or the password is wrong."""
    context = context_of(request)
    form = await posted(request)
    next_path = _safe_path(form.value("next"))
    typed = form.value("address")
    network = network_of(client_of(request))
    try:  # other spellings of an address are not other callers
        key = address = parse_address(typed.strip()).storage_key
    except BadAddress:
        key = ""
        address = typed.strip().casefold()[:320]
    tries = one_per_app(request.app, SignInTries, context)
    wait = await tries.wait(network, address, context.clock.now())
    if wait > NO_WAIT:
        form.mistake = _too_many(wait)
        return _show_sign_in(request, form, next_path, status=429)
    user = await sign_in.check(context.storage.tables, typed, form.value("password"))
    if user is None:
        await _record_failure(request, key)
        form.mistake = _("The email address or password is incorrect.")
        return _show_sign_in(request, form, next_path, status=422)
    await tries.forgive(network, address)
    return await _start_session(request, user, next_path)


@router.post("/sign-out")
async def sign_out(request: Viewer) -> Response:
    user = request.signed_in.user
    async with request.act().audited(AuditKind.SIGN_IN, user.address, AuditAction.SIGN_OUT):
        await users.end_session(request.tables, request.signed_in.session.id)
    return _to_sign_in(request.context)


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
    if invitation is None:  # do not read the form of a stranger
        return show_bare(request, "void_link.html", 404)
    form = await posted(request)
    address = invitation.address or form.value("address").strip()
    name, action = await _audited_as(tables, address)
    try:
        async with _visitor(request).audited(
            AuditKind.USER,
            name,
            action,
            after=values_text({"role": invitation.role}),
        ):
            user = await sign_in.accept(tables, token, address, form.value("password"), now)
    except BadInput as error:
        field = "address" if isinstance(error, BadAddress) else "password"
        form.mistakes[field] = str(error)
        is_first = not invitation.address
        return show_bare(request, "welcome.html", 422, form=form, is_first=is_first)
    if user is None:
        return show_bare(request, "void_link.html", 404)
    return await _start_session(request, user, HOME)


async def _audited_as(tables: Tables, address: str) -> tuple[str, AuditAction]:
    """A new account or a new password; no name for what is no address, perhaps a password."""
    try:
        parsed = parse_address(address)
    except BadAddress:
        return "", AuditAction.CREATE
    found = await users.find(tables, parsed.storage_key)
    return parsed.typed, AuditAction.PASSWORD if found else AuditAction.CREATE


@router.get("/account")
async def account_page(request: Viewer) -> Response:
    return await _show_account(request, Form())


@router.post("/account/password")
async def change_password(request: Viewer) -> Response:
    form = await request.form()
    now = request.now()
    user = request.signed_in.user
    tries = one_per_app(request.http.app, SignInTries, request.context)
    wait = await tries.wait(request.signed_in.session.id, user.key, now)
    if wait > NO_WAIT:
        form.mistake = _too_many(wait)
        return await _show_account(request, form, status=429)
    try:
        async with request.act().audited(AuditKind.USER, user.address, AuditAction.PASSWORD):
            await sign_in.change_password(
                request.tables, user, form.value("old_password"), form.value("new_password"), now
            )
    except BadInput as error:
        field = "old_password" if isinstance(error, WrongPassword) else "new_password"
        form.mistakes[field] = str(error)
        return await _show_account(request, form, status=422)
    return await _start_session(request.http, user, "/admin/account", "password")


@router.post("/account/sessions/end")
async def end_session(request: Viewer) -> Response:
    """Sign out one of the user's browsers, or all of them."""
    session_id = (await request.form()).value("session")
    user = request.signed_in.user
    now = request.now()
    audited = request.act().audited(AuditKind.SIGN_IN, user.address, AuditAction.SIGN_OUT)
    if session_id == "all":
        async with audited:
            await sign_in.sign_out_everywhere(request.tables, user, now)
        return _to_sign_in(request.context)
    if session_id in {session.id for session in await users.sessions_of(request.tables, user, now)}:
        async with audited:
            await users.end_session(request.tables, session_id)
    return go("/admin/account", "ended")


async def _show_account(request: AdminRequest, form: Form, status: int = 200) -> Response:
    sessions = await users.sessions_of(request.tables, request.signed_in.user, request.now())
    return request.show("account.html", status, form=form, sessions=sessions)


def _show_sign_in(request: Request, form: Form, next_path: str, status: int = 200) -> Response:
    form.values["next"] = next_path
    form.values.pop("password", None)
    return show_bare(request, "sign_in.html", status, form=form)


def _to_sign_in(context: WebContext) -> Response:
    response = go("/admin/sign-in")
    clear_cookie(response, context)
    return response


async def _start_session(request: Request, user: User, path: str, notice: str = "") -> Response:
    """Start a new session, so that nobody can have planted its token."""
    context = context_of(request)
    old = request.cookies.get(cookie_name(context))
    if old:
        await users.end_session(context.storage.tables, users.token_hash(old))
    browser = Browser(client_of(request), _browser_name(request.headers.get("user-agent", "")))
    act = context.act(by_user(user.address, client_of(request)))
    async with act.audited(
        AuditKind.SIGN_IN, user.address, AuditAction.SIGN_IN, after=browser.words
    ):
        token = await sign_in.begin(context.storage.tables, user, browser, context.clock.now())
    response = go(path, notice)
    set_cookie(response, context, token)
    return response


def _visitor(request: Request) -> Act:
    """The context of what somebody does who is not signed in."""
    context = context_of(request)
    actor = AuditActor(ActorKind.VISITOR, "", client_of(request))
    return Act(context.storage, context.clock, context.clock.now(), actor=actor)


async def _record_failure(request: Request, key: str) -> None:
    """Record a failed sign-in; only with the address of a user, because people type passwords."""
    act = _visitor(request)
    user = await users.find(act.tables, key) if key else None
    name = user.value.address if user else ""
    assert act.actor
    entry = new_entry(
        act.actor,
        AuditKind.SIGN_IN,
        name,
        AuditAction.SIGN_IN,
        act.now,
        outcome=AuditOutcome.REFUSED,
    )
    await audit.begin(act.tables, entry)


def _too_many(wait: timedelta) -> Text:
    minutes = math.ceil(wait / timedelta(minutes=1))
    return ngettext(
        "Too many attempts. Try again in {minutes} minute.",
        "Too many attempts. Try again in {minutes} minutes.",
        minutes,
        minutes=minutes,
    )


def _safe_path(path: str) -> str:
    """Only our own pages: to a browser, //elsewhere and \\elsewhere are other sites."""
    return quote(path, safe="/?=&%") if re.match(r"/admin(/[^/\\]|$|\?)", path) else HOME


def _browser_name(agent: str) -> str:
    """“Firefox · Linux”, as far as it is known."""
    browser = [each for each in _BROWSERS if each in agent][:1]
    system = [each for each in _SYSTEMS if each in agent][:1]
    return " · ".join(_COMMON_NAMES.get(each, each) for each in browser + system)
