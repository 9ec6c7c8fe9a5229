"""The public sign-up form of a list: GET shows it, POST signs up, no script.

Anybody may submit it, so it does not reveal who is on the list, and it is protected against bots by
a field that only bots fill in, a minimum time, and limits by address and by network. The response
to a submission that looks like a bot's is "press the button again": people do, bots rarely read it.
The thank-you page takes a fixed time, so that timing does not reveal who is already subscribed.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from postroom.domain.address import BadAddress, parse_address
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import MailingList
from postroom.domain.seal import seal, unseal
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.throttle import NO_WAIT
from postroom.flow import subscribe
from postroom.records import lists
from postroom.web.context import WebContext, client_of, context_of
from postroom.web.forms import list_named
from postroom.web.public.links import form_fields, page_text, render, title_of
from postroom.web.throttles import ADDRESSES_TYPED, NETWORKS, network_of, throttles_of

router = APIRouter(include_in_schema=False)
PATH = "/s/"
HONEYPOT = "homepage"  # a field that people do not see
FASTEST = timedelta(seconds=2)  # nobody reads, types and submits faster
TIMESTAMP_LASTS = timedelta(days=1)
RESPONSE_S = 0.25  # longer than a sign-up takes in storage
TYPED_CHARS_MAX = 1000  # shown again; no address is longer
_PURPOSE = "sign-up form"


async def open_list(request: Request, list_name: str) -> MailingList:
    """NotFound also for a list without a form, so that nobody learns that it exists."""
    found = await lists.find(context_of(request).storage.tables, list_named(list_name))
    if found is None or not found.public_form:
        raise NotFound(_("There is no such form."))
    return found


OpenList = Annotated[MailingList, Depends(open_list)]


@router.api_route("/s/{list_name}", methods=["GET", "HEAD"])
async def show_form(request: Request, mailing_list: OpenList) -> Response:
    """Empty, or with an address that was typed into a form on another site."""
    context = context_of(request)
    typed = request.query_params.get("email", "")
    now = context.clock.now()
    shown_at = now - FASTEST if typed else now
    return _FormPage(context, mailing_list, typed, shown_at).render()


@router.post("/s/{list_name}")
async def sign_up(request: Request, mailing_list: OpenList) -> Response:
    loop = asyncio.get_running_loop()
    context = context_of(request)
    respond_at = loop.time() + RESPONSE_S  # the same for everybody
    now = context.clock.now()
    fields = await form_fields(request)
    form = _FormPage(
        context,
        mailing_list,
        typed=fields.get("email", ""),
        shown_at=now - FASTEST,  # it may be submitted again at once
        has_honeypot=not fields.get(HONEYPOT),  # a browser would fill it in again
    )
    try:
        address = parse_address(form.typed)
    except BadAddress as error:
        return form.render(HTTPStatus.UNPROCESSABLE_ENTITY, mistake=str(error))
    suspicion = _suspicion(fields, _age(context, mailing_list, fields.get("postmark", "")))
    if suspicion:
        return form.render(HTTPStatus.UNPROCESSABLE_ENTITY, again=str(suspicion))
    limits = throttles_of(request)
    network = network_of(client_of(request))
    if (wait := limits.wait(NETWORKS, network, now)) > NO_WAIT:
        return form.too_many(wait, _("Too many people are signing up from your network."))
    if (wait := limits.wait(ADDRESSES_TYPED, address.key, now)) > NO_WAIT:
        return form.too_many(wait, _("This address has been entered too many times."))
    shown = f"{title_of(mailing_list)}\n{page_text('sign_up.html')}"
    trace = Trace(source=ConsentSource(SourceKind.FORM), client=client_of(request), shown=shown)
    await subscribe.sign_up(context.act(trace, now), mailing_list.name, address, {})
    await asyncio.sleep(respond_at - loop.time())
    return RedirectResponse(f"/s/{mailing_list.name}/thanks", HTTPStatus.SEE_OTHER)


def _suspicion(fields: dict[str, str], age: timedelta | None) -> Text | None:
    """Why a person has to press the button again; None if nothing is suspicious."""
    if fields.get(HONEYPOT):
        return _(
            "Please press the button again. A hidden field was filled in, perhaps by your browser."
        )
    if age is None:  # open since yesterday, or not our form at all
        return _("Please press the button again to sign up.")
    if age < FASTEST:
        return _(
            "Please press the button again. The form was submitted faster than most people type."
        )
    return None


@router.api_route("/s/{list_name}/thanks", methods=["GET", "HEAD"])
async def thanks(mailing_list: OpenList) -> Response:
    """The same for everybody."""
    return HTMLResponse(render("thanks.html", list_title=title_of(mailing_list)))


@dataclass(frozen=True)
class _FormPage:
    """The form with the address that was typed into it."""

    context: WebContext
    mailing_list: MailingList
    typed: str
    shown_at: datetime
    has_honeypot: bool = True

    def render(
        self, status: HTTPStatus = HTTPStatus.OK, *, mistake: str = "", again: str = ""
    ) -> HTMLResponse:
        """`mistake` is about the address, `again` about the whole form."""
        purpose = f"{_PURPOSE} {self.mailing_list.name}"
        page = render(
            "sign_up.html",
            list_title=title_of(self.mailing_list),
            typed=self.typed[:TYPED_CHARS_MAX],
            mistake=mistake,
            again=again,
            honeypot=HONEYPOT if self.has_honeypot else "",
            timestamp=seal(self.context.site.secret, purpose, str(self.shown_at.timestamp())),
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
        page = self.render(HTTPStatus.TOO_MANY_REQUESTS, again=str(again))
        page.headers["Retry-After"] = str(seconds)
        return page


def _age(context: WebContext, mailing_list: MailingList, timestamp: str) -> timedelta | None:
    """How long ago the form was shown; None if we did not show it, or not recently.

    A timestamp from the future, of a machine whose clock is ahead, counts as none.
    """
    shown_at_s = unseal(context.site.secret, f"{_PURPOSE} {mailing_list.name}", timestamp)
    if shown_at_s is None:
        return None
    age = context.clock.now() - datetime.fromtimestamp(float(shown_at_s), UTC)
    return age if NO_WAIT <= age <= TIMESTAMP_LASTS else None
