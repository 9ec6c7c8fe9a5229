"""Subscriber pages: GET shows, POST acts; one column, one sentence, one button, no script.

The unguessable link is the only credential: no cookie, no session, no CSRF token. Mail scanners
follow every link by GET and HEAD, so those change nothing.
"""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from postroom.domain.address import Address, mask
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, Subscriber
from postroom.domain.token import is_signed
from postroom.flow import subscribe
from postroom.flow.subscribe import ConfirmationResult, UnsubscribeResult
from postroom.records import lists, subscribers
from postroom.records.rows import Unreadable
from postroom.records.subscribers import LinkedSubscriber
from postroom.web.context import WebContext, client_of, context_of
from postroom.web.forms import opened
from postroom.web.templating import template_environment

router = APIRouter(include_in_schema=False)
_pages = template_environment()
FIELDS_MAX = 10
FIELD_BYTES_MAX = 4096
ONE_CLICK_ANSWERS = {  # for programs; mailbox providers only read the status
    UnsubscribeResult.NOW: "Unsubscribed.",
    UnsubscribeResult.ALREADY: "Already unsubscribed.",
    UnsubscribeResult.UNKNOWN: "This link is unknown. There is nothing to unsubscribe.",
}
ADDRESS_LEFT_OUT = "…"  # of a stored text, because the record has the address itself


@router.api_route("/u/{list_name}/{guid}", methods=["GET", "HEAD"])
async def ask_to_unsubscribe(request: Request, list_name: str, guid: str) -> Response:
    """Any link that was ever sent to a current subscriber works."""
    context = context_of(request)
    name, key = _keys(list_name, guid)
    linked = await subscribers.find_linked(context.storage.tables, name, key)
    if linked.there is None:
        template = "already_unsubscribed.html" if linked.is_known else "unknown.html"
        return await _page(context, template, name)
    subscriber = linked.there.value
    address = mask(Address(subscriber.address, subscriber.key))
    stay = f"/u/{name}/{key}/kept"
    return await _page(context, "unsubscribe.html", name, address=address, stay=stay)


@router.post("/u/{list_name}/{guid}")
async def unsubscribe(request: Request, list_name: str, guid: str) -> Response:
    """One click from a mailbox provider (RFC 8058), or the button on the page."""
    context = context_of(request)
    fields = await form_fields(request)
    is_one_click = fields.get("List-Unsubscribe") == "One-Click"
    if not is_one_click and "leave" not in fields:
        return await ask_to_unsubscribe(request, list_name, guid)
    name, key = _keys(list_name, guid)
    shown = "" if is_one_click else page_text("unsubscribe.html", address=ADDRESS_LEFT_OUT)
    source = ConsentSource(SourceKind.ONE_CLICK if is_one_click else SourceKind.LINK)
    trace = Trace(source=source, client=client_of(request), shown=shown)
    result = await subscribe.leave(context.act(trace), name, key)
    if is_one_click:  # no redirect, because a redirected POST becomes a GET
        return PlainTextResponse(ONE_CLICK_ANSWERS[result])
    return RedirectResponse(f"/u/{name}/{key}/left", status_code=303)


@router.api_route("/u/{list_name}/{guid}/left", methods=["GET", "HEAD"])
@router.api_route("/u/{list_name}/{guid}/kept", methods=["GET", "HEAD"])
async def show_result(request: Request, list_name: str, guid: str) -> Response:
    """Show the current state, whenever the page is opened again; `kept` is the cancel link."""
    context = context_of(request)
    name, key = _keys(list_name, guid)
    has_left = request.url.path.endswith("/left")
    linked = await subscribers.find_linked(context.storage.tables, name, key)
    template = "already_unsubscribed.html"
    if not linked.is_known:
        template = "unknown.html"
    elif linked.there:
        is_confirmed = linked.there.value.verified
        if has_left and not is_confirmed:  # asked to subscribe again
            return await _page(context, "thanks.html", name)
        return await _page(context, "still_subscribed.html", name, is_confirmed=is_confirmed)
    elif has_left:
        again = f"/u/{name}/{key}/again" if _who_may_return(linked, key) else ""
        return await _page(context, "unsubscribed.html", name, again=again)
    return await _page(context, template, name)


@router.post("/u/{list_name}/{guid}/again")
async def subscribe_again(request: Request, list_name: str, guid: str) -> Response:
    """Sign up somebody who unsubscribed by mistake; they confirm it as at the first time."""
    context = context_of(request)
    name, key = _keys(list_name, guid)
    linked = await subscribers.find_linked(context.storage.tables, name, key)
    person = _who_may_return(linked, key)
    if person is None:
        return RedirectResponse(f"/u/{name}/{key}/left", status_code=303)
    shown = page_text("unsubscribed.html")
    trace = Trace(source=ConsentSource(SourceKind.LINK), client=client_of(request), shown=shown)
    address = Address(person.address, person.key)
    await subscribe.sign_up(context.act(trace), person.list_name, address, {})
    return RedirectResponse(f"/u/{name}/{key}/asked", status_code=303)


def _who_may_return(linked: LinkedSubscriber, guid: str) -> Subscriber | None:
    """The person, if they ended the subscription of this link themselves.

    A new subscription has a new link. With the old one, a stranger could unsubscribe and subscribe
    somebody in turns, with a confirmation email each time. People who were removed, bounced or
    complained cannot undo that.
    """
    person = linked.inactive
    if linked.there or person is None or person.guid != guid:
        return None
    return person if person.inactive_reason is InactiveReason.UNSUBSCRIBED else None


@router.api_route("/u/{list_name}/{guid}/asked", methods=["GET", "HEAD"])
async def asked(request: Request, list_name: str, guid: str) -> Response:
    name, _key = _keys(list_name, guid)
    return await _page(context_of(request), "thanks.html", name)


@router.api_route("/c/{list_name}/{guid}/{token}", methods=["GET", "HEAD"])
async def ask_to_confirm(request: Request, list_name: str, guid: str, token: str) -> Response:
    context = context_of(request)
    name, key = _keys(list_name, guid)
    found = await subscribers.find_by_guid(context.storage.tables, name, key)
    if found is None or not is_signed(token, context.site.secret, "confirm", name, key):
        return await _page(context, "invalid_link.html", name)
    if found.value.verified:
        return await _page(context, "welcome.html", name)
    address = mask(Address(found.value.address, found.value.key))
    return await _page(context, "confirm.html", name, address=address)


@router.post("/c/{list_name}/{guid}/{token}")
async def confirm(request: Request, list_name: str, guid: str, token: str) -> Response:
    context = context_of(request)
    name, key = _keys(list_name, guid)
    shown = page_text("confirm.html", address=ADDRESS_LEFT_OUT)
    trace = Trace(source=ConsentSource(SourceKind.LINK), client=client_of(request), shown=shown)
    result = await subscribe.confirm(context.act(trace), context.site.secret, name, key, token)
    if result is ConfirmationResult.UNKNOWN:
        return await _page(context, "invalid_link.html", name)
    return RedirectResponse(f"/c/{name}/{key}/{token}", status_code=303)


@router.api_route("/", methods=["GET", "HEAD"])
async def home(request: Request) -> Response:
    return HTMLResponse(render("home.html", list_title=""))


def _keys(list_name: str, guid: str) -> tuple[str, str]:
    """Only what can be a key; anything else becomes a link that belongs to nobody."""
    is_list = list_name.isascii() and list_name.replace("_", "").isalnum() and len(list_name) <= 50
    is_guid = guid.isascii() and guid.isalnum() and len(guid) <= 40
    return (list_name, guid) if is_list and is_guid else ("none", "none")


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form that anybody may send, so few and short ones."""
    async with opened(request, fields_max=FIELDS_MAX, field_bytes_max=FIELD_BYTES_MAX) as sent:
        return sent.fields


async def _page(
    context: WebContext, template: str, list_name: str, **values: str | bool
) -> HTMLResponse:
    mailing_list = None
    with contextlib.suppress(Unreadable):  # a row of a newer version; unsubscribing works without
        mailing_list = await lists.find(context.storage.tables, list_name)
    return HTMLResponse(render(template, list_title=title_of(mailing_list), **values))


def render(template: str, **values: str | bool) -> str:
    return _pages.get_template(f"public/{template}").render(**values)


def page_text(template: str, **values: str) -> str:
    """The text of a page for the consent record, taken from the page itself."""
    page = _pages.get_template(f"public/{template}")
    context = page.new_context(values)
    parts = [Markup("".join(page.blocks[name](context))) for name in ("title", "consent_text")]
    return "\n".join(part.striptags() for part in parts)


def title_of(mailing_list: MailingList | None) -> str:
    """Empty for a list that was deleted or cannot be read; its links still work."""
    return (mailing_list.description or mailing_list.name) if mailing_list else ""
