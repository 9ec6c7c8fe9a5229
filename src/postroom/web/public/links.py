"""Subscriber pages: GET shows, POST acts; one column, one sentence, one button, no script.

The unguessable link is the only credential: no cookie, no session, no CSRF token. Mail scanners
follow every link by GET and HEAD, so those change nothing.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from postroom.domain.address import Address, mask
from postroom.domain.consent import ConsentSource, SourceKind, Trace
from postroom.domain.mailing_list import MailingList
from postroom.domain.token import is_signed
from postroom.flow import subscribe
from postroom.flow.subscribe import ConfirmationResult, UnsubscribeResult
from postroom.records import lists, subscribers
from postroom.records.rows import Unreadable
from postroom.web.context import WebContext, client_of, context_of
from postroom.web.forms import opened
from postroom.web.texts import pages

router = APIRouter(include_in_schema=False)
_pages = pages()
FORM_FIELDS_MAX = 10
FORM_PART_BYTES_MAX = 4096
ONE_CLICK_ANSWERS = {  # for programs: mailbox providers look at the status alone
    UnsubscribeResult.NOW: "Unsubscribed.",
    UnsubscribeResult.ALREADY: "Already unsubscribed.",
    UnsubscribeResult.UNKNOWN: "This link is not known: there is nothing to unsubscribe.",
}
SOMEBODY = "…"  # in a kept text: the record itself knows whose address it was


@router.api_route("/u/{list_name}/{guid}", methods=["GET", "HEAD"])
async def ask_to_leave(request: Request, list_name: str, guid: str) -> Response:
    """Whom and what it is about: any link that was ever sent to somebody who is on the list."""
    context = context_of(request)
    name, key = _keys(list_name, guid)
    linked = await subscribers.find_linked(context.storage.tables, name, key)
    if linked.there is None:
        return await _page(context, "gone.html" if linked.is_known else "unknown.html", name)
    one, _etag = linked.there
    address = mask(Address(one.address, one.key))
    stay = f"/u/{name}/{key}/kept"
    return await _page(context, "leave.html", name, address=address, stay=stay)


@router.post("/u/{list_name}/{guid}")
async def leave(request: Request, list_name: str, guid: str) -> Response:
    """One click from a mailbox provider (RFC 8058), or the button on the page."""
    context = context_of(request)
    fields = await form_fields(request)
    is_one_click = fields.get("List-Unsubscribe") == "One-Click"
    if not is_one_click and "leave" not in fields:
        return await ask_to_leave(request, list_name, guid)
    name, key = _keys(list_name, guid)
    client = client_of(request)
    trace = Trace(
        source=ConsentSource(SourceKind.LINK),
        client=client,
        shown=words("leave.html", address=SOMEBODY),
    )
    if is_one_click:
        trace = Trace(source=ConsentSource(SourceKind.ONE_CLICK), client=client)
    done = await subscribe.leave(context.act(trace), name, key)
    if is_one_click:  # no redirect: a redirected POST becomes a GET
        return PlainTextResponse(ONE_CLICK_ANSWERS[done])
    return RedirectResponse(f"/u/{name}/{key}/left", status_code=303)


@router.api_route("/u/{list_name}/{guid}/left", methods=["GET", "HEAD"])
async def left(request: Request, list_name: str, guid: str) -> Response:
    return await _after(request, list_name, guid, "left.html")


@router.api_route("/u/{list_name}/{guid}/kept", methods=["GET", "HEAD"])
async def kept(request: Request, list_name: str, guid: str) -> Response:
    """Cancel: nothing changed."""
    return await _after(request, list_name, guid, "gone.html")


async def _after(request: Request, list_name: str, guid: str, if_gone: str) -> Response:
    """What is true now, whoever opens the link again and when."""
    context = context_of(request)
    name, key = _keys(list_name, guid)
    linked = await subscribers.find_linked(context.storage.tables, name, key)
    if not linked.is_known:
        return await _page(context, "unknown.html", name)
    return await _page(context, "kept.html" if linked.there else if_gone, name)


@router.api_route("/c/{list_name}/{guid}/{token}", methods=["GET", "HEAD"])
async def ask_to_confirm(request: Request, list_name: str, guid: str, token: str) -> Response:
    context = context_of(request)
    name, key = _keys(list_name, guid)
    found = await subscribers.find_by_guid(context.storage.tables, name, key)
    if found is None or not is_signed(token, context.site.secret, "confirm", name, key):
        return await _page(context, "stale.html", name)
    if found.value.verified:
        return await _page(context, "welcome.html", name)
    address = mask(Address(found.value.address, found.value.key))
    return await _page(context, "confirm.html", name, address=address)


@router.post("/c/{list_name}/{guid}/{token}")
async def confirm(request: Request, list_name: str, guid: str, token: str) -> Response:
    context = context_of(request)
    name, key = _keys(list_name, guid)
    shown = words("confirm.html", address=SOMEBODY)
    trace = Trace(source=ConsentSource(SourceKind.LINK), client=client_of(request), shown=shown)
    done = await subscribe.confirm(context.act(trace), context.site.secret, name, key, token)
    if done is ConfirmationResult.UNKNOWN:
        return await _page(context, "stale.html", name)
    return RedirectResponse(f"/c/{name}/{key}/{token}", status_code=303)


@router.api_route("/", methods=["GET", "HEAD"])
async def door(request: Request) -> Response:
    return await _page(context_of(request), "door.html", "")


def _keys(list_name: str, guid: str) -> tuple[str, str]:
    """Only what can be a key: anything else is nobody's link, whatever it holds."""
    is_list = list_name.isascii() and list_name.replace("_", "").isalnum() and len(list_name) <= 50
    is_guid = guid.isascii() and guid.isalnum() and len(guid) <= 40
    return (list_name, guid) if is_list and is_guid else ("none", "none")


async def form_fields(request: Request) -> dict[str, str]:
    """Those of a form that anybody may send: few and short."""
    async with opened(
        request, fields_max=FORM_FIELDS_MAX, field_bytes_max=FORM_PART_BYTES_MAX
    ) as sent:
        return sent.fields


async def _page(context: WebContext, template: str, list_name: str, **values: str) -> HTMLResponse:
    mailing_list = await _list_to_name(context, list_name) if list_name else None
    return HTMLResponse(render(template, list_title=title_of(mailing_list), **values))


async def _list_to_name(context: WebContext, list_name: str) -> MailingList | None:
    """None also for a row of a newer program: to leave, nobody needs the title."""
    try:
        return await lists.find(context.storage.tables, list_name)
    except Unreadable:
        return None


def render(template: str, **values: str) -> str:
    return _pages.get_template(f"public/{template}").render(**values)


def words(template: str, **values: str) -> str:
    """What a page says to whoever decides on it, as text: for the consent record.

    Taken from the page itself, so that what is kept is what was shown.
    """
    page = _pages.get_template(f"public/{template}")
    context = page.new_context(values)
    parts = [Markup("".join(page.blocks[name](context))) for name in ("title", "words")]
    return "\n".join(part.striptags() for part in parts)


def title_of(mailing_list: MailingList | None) -> str:
    """Empty for a list that is gone or cannot be read: its links still work, without a name."""
    return (mailing_list.description or mailing_list.name) if mailing_list else ""
