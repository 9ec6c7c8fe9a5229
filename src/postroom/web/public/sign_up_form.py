"""The public sign-up form of a list: GET shows it, POST signs up, no script.

Anybody may submit it, so it does not reveal who is on the list, and it is not worth a bot's while:
it has a field that only bots fill in, a minimum time, and limits by address and by network. A
submission that looks like a bot's is answered with "press the button again": people do, bots rarely
read the answer. The thank-you page takes a fixed time, so that timing does not reveal who is
subscribed already.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from postroom.domain.address import BadAddress, parse_address
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import MailingList
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.throttle import NO_WAIT
from postroom.domain.token import is_signed, sign
from postroom.flow import subscribe
from postroom.records import lists
from postroom.web.context import WebContext, client_of, context_of
from postroom.web.forms import list_named
from postroom.web.public.links import form_fields, render, title_of, words
from postroom.web.throttles import ADDRESSES_TYPED, NETWORKS, network_of, throttles_of

router = APIRouter(include_in_schema=False)
PATH = "/s/"
TRAP = "homepage"  # a field that people do not see
QUICKEST = timedelta(seconds=2)  # nobody reads, types and submits faster
POSTMARK_LASTS = timedelta(days=1)
THANKED_AFTER_S = 0.25  # longer than a sign-up takes in storage
TYPED_CHARS_MAX = 1000  # shown again; no address is longer
_PURPOSE = "sign-up form"


@router.api_route("/s/{list_name}", methods=["GET", "HEAD"])
async def show_form(request: Request, list_name: str) -> Response:
    """Empty, or with an address that was typed into a form on another site."""
    context = context_of(request)
    mailing_list = await _open_list(context, list_name)
    typed = request.query_params.get("email", "")
    now = context.clock.now()
    shown_at = now - QUICKEST if typed else now
    return _Shown(context, mailing_list, typed, shown_at).page()


@router.post("/s/{list_name}")
async def sign_up(request: Request, list_name: str) -> Response:
    loop = asyncio.get_running_loop()
    context = context_of(request)
    thanked_at = loop.time() + THANKED_AFTER_S
    now = context.clock.now()
    mailing_list = await _open_list(context, list_name)
    fields = await form_fields(request)
    form = _Shown(
        context,
        mailing_list,
        typed=fields.get("email", ""),
        shown_at=now - QUICKEST,  # sent again at once, it is not too quick
        has_trap=not fields.get(TRAP),  # a browser would fill it in again
    )
    try:
        address = parse_address(form.typed)
    except BadAddress as error:
        return form.page(HTTPStatus.UNPROCESSABLE_ENTITY, mistake=str(error))
    doubt = _doubt(fields, _age(context, list_name, fields.get("postmark", "")))
    if doubt:
        return form.page(HTTPStatus.UNPROCESSABLE_ENTITY, again=str(doubt))
    limits = throttles_of(request)
    network = network_of(client_of(request))
    if (wait := limits.wait(NETWORKS, network, now)) > NO_WAIT:
        return form.too_many(wait, _("Too many people are signing up from your network."))
    if (wait := limits.wait(ADDRESSES_TYPED, address.key, now)) > NO_WAIT:
        return form.too_many(wait, _("This address was entered too many times."))
    shown = f"{title_of(mailing_list)}\n{words('join.html')}"
    trace = Trace(source=ConsentSource(SourceKind.FORM), client=client_of(request), shown=shown)
    await subscribe.sign_up(context.act(trace, now), list_name, address, {})
    return await _thanks(list_name, thanked_at)


def _doubt(fields: dict[str, str], age: timedelta | None) -> Text | None:
    """Why a person has to press the button once more; None if all is well."""
    if fields.get(TRAP):
        return _(
            "Please press the button again. A hidden field was filled in, perhaps by your browser."
        )
    if age is None:  # open since yesterday, or not our form at all
        return _("Please press the button again to sign up.")
    if age < QUICKEST:
        return _(
            "Please press the button again. The form was submitted faster than most people type."
        )
    return None


@router.api_route("/s/{list_name}/thanks", methods=["GET", "HEAD"])
async def thanks(request: Request, list_name: str) -> Response:
    """The same for everybody."""
    mailing_list = await _open_list(context_of(request), list_name)
    return HTMLResponse(render("thanks.html", list_title=title_of(mailing_list)))


async def _open_list(context: WebContext, list_name: str) -> MailingList:
    """NotFound also for a list without a form: nobody learns that it is there."""
    found = await lists.find(context.storage.tables, list_named(list_name))
    if found is None or not found.public_form:
        raise NotFound(_("There is no such form."))
    return found


# --- Answers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shown:
    """The form as it is shown, with what was typed into it."""

    context: WebContext
    mailing_list: MailingList
    typed: str
    shown_at: datetime
    has_trap: bool = True

    def page(
        self, status: HTTPStatus = HTTPStatus.OK, *, mistake: str = "", again: str = ""
    ) -> HTMLResponse:
        """With a sentence about the address, or about the whole."""
        page = render(
            "join.html",
            list_title=title_of(self.mailing_list),
            typed=self.typed[:TYPED_CHARS_MAX],
            mistake=mistake,
            again=again,
            trap=TRAP if self.has_trap else "",
            postmark=_postmark(self.context, self.mailing_list.name, self.shown_at),
        )
        return HTMLResponse(page, status)

    def too_many(self, wait: timedelta, why: Text) -> HTMLResponse:
        seconds = math.ceil(wait.total_seconds())
        minutes = math.ceil(seconds / 60)
        again = ngettext(
            "{why} Try again in {minutes} minute.",
            "{why} Try again in {minutes} minutes.",
            minutes,
            why=why,
            minutes=minutes,
        )
        page = self.page(HTTPStatus.TOO_MANY_REQUESTS, again=str(again))
        page.headers["Retry-After"] = str(seconds)
        return page


async def _thanks(list_name: str, at: float) -> Response:
    """At a moment of the loop's time that is the same for everybody."""
    await asyncio.sleep(at - asyncio.get_running_loop().time())
    return RedirectResponse(f"/s/{list_name}/thanks", HTTPStatus.SEE_OTHER)


# --- The time trap ------------------------------------------------------------------------------


def _postmark(context: WebContext, list_name: str, at: datetime) -> str:
    """When the form was shown, signed, so that only we can have said it."""
    milliseconds = str(int(at.timestamp() * 1000))
    return f"{milliseconds}.{sign(context.site.secret, _PURPOSE, list_name, milliseconds)}"


def _age(context: WebContext, list_name: str, postmark: str) -> timedelta | None:
    """How long ago the form was shown; None if we did not show it, or not lately.

    One from the future comes from another machine, whose clock is ahead: as good as none.
    """
    milliseconds, _dot, signature = postmark.partition(".")
    if not is_signed(signature, context.site.secret, _PURPOSE, list_name, milliseconds):
        return None
    age = context.clock.now() - datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    return age if NO_WAIT <= age <= POSTMARK_LASTS else None
