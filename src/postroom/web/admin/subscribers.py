"""Subscribers of a list: search, add, export. One subscriber is in person.py."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from postroom.actions import export_people
from postroom.domain.address import BadAddress, key_prefix, parse_address
from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.mailing_list import MailingList, check_list_name
from postroom.domain.seal import seal, unseal
from postroom.domain.subscriber import AlreadySubscribed, Subscriber, SubscriberFilter
from postroom.domain.texts import Text, _, ngettext
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.records import counts, lists, subscribers
from postroom.records.counts import ListCounts
from postroom.storage.port import Conflict, Tables
from postroom.web.admin.subscriber_form import attributes_typed, is_own, key_of, person_path
from postroom.web.context import context_of
from postroom.web.forms import Form, list_named, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, SignedIn, Viewer, act_of
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/subscribers")
PEOPLE_A_PAGE = 50
LISTS_A_PAGE = 50
LISTS_TO_CHOOSE_MAX = 200
EXPORTED_AT_A_TIME = 500  # rows
ATTRIBUTES_CHARS_SHOWN = 80
_AFTER = "page of people"
STANDINGS = [
    SubscriberFilter.ALL,
    SubscriberFilter.VERIFIED,
    SubscriberFilter.UNVERIFIED,
    SubscriberFilter.GONE,
]


class SubscriberQuery(msgspec.Struct, frozen=True):
    """A list, a standing and the start of an address."""

    list_name: str
    text: str  # the beginning of an address, as typed
    standing: SubscriberFilter
    after: str  # a key

    def path(self, page: str = "/admin/subscribers", **more: str) -> str:
        told = {"list": self.list_name, "q": self.text, "standing": self.standing.value} | more
        return f"{page}?{urlencode({name: value for name, value in told.items() if value})}"


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    """Subscribers by the start of their address; without a list, the lists to choose from."""
    context = context_of(request)
    list_name = request.query_params.get("list", "") or await _only_list(context.storage.tables)
    if not list_name:
        return await _choose_list(request, signed_in)
    mailing_list = await _read_list(context.storage.tables, list_name)
    return await _people(request, signed_in, mailing_list, _asked(request, list_name))


@router.get("/export")
async def export(request: Request, signed_in: Viewer) -> Response:
    """The same file as `postroom subscriber export`, as a stream."""
    context = context_of(request)
    tables = context.storage.tables
    name = list_named(request.query_params.get("list", ""))
    standing = _standing(request.query_params.get("standing", ""), SubscriberFilter.THERE)
    try:
        header = await export_people.columns(tables, name, standing)
    except BadInput as error:
        mailing_list = await _read_list(tables, name)
        asked = _asked(request, name)
        return await _people(request, signed_in, mailing_list, asked, Form(mistake=str(error)), 422)
    which = "" if standing is SubscriberFilter.THERE else f"-{standing.value}"
    file_name = f"{name}-subscribers{which}-{context.clock.now():%Y-%m-%d}.csv"
    return StreamingResponse(
        _lines(tables, name, standing, header),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file_name}"'},
    )


@router.get("/new")
async def new_page(request: Request, signed_in: Editor) -> Response:
    """The form to add somebody; the page of an inactive subscriber links here."""
    context = context_of(request)
    name = list_named(request.query_params.get("list", ""))
    mailing_list = await lists.read(context.storage.tables, name)
    key = key_of(context, name, request.query_params.get("who", ""))
    found = await subscribers.find(context.storage.tables, name, key) if key else None
    gone = found.value if found and found.value.gone else None
    form = Form({"address": gone.address} if gone else {})
    return _new(request, signed_in, mailing_list, form, gone)


@router.post("/new")
async def add(request: Request, signed_in: Editor) -> Response:
    """Add a subscriber; an inactive one only if the form says that they asked for it."""
    context = context_of(request)
    form = await posted(request)
    mailing_list = await _read_list(context.storage.tables, request.query_params.get("list", ""))
    name = mailing_list.name
    gone = None
    address = form.take("address", parse_address)
    attributes = form.take("attributes", attributes_typed)
    if form.is_good and address:

        async def join(turn: Submission) -> SubmitResult:
            act = act_of(request, signed_in, turn.at)
            try:
                await subscribe.add(
                    act,
                    name,
                    address,
                    attributes or {},
                    verified=form.is_ticked("verified"),
                    bring_back=form.is_ticked("bring_back"),
                )
            except AlreadyThere:
                if not await is_own(act.tables, turn, name, address):
                    raise
            return SubmitResult(person_path(context, name, address.storage_key))

        try:
            return go((await act_once(request, signed_in, form, join)).what, "added")
        except AlreadySubscribed as error:
            if error.subscriber.gone:
                gone = error.subscriber
                form.mistakes["bring_back"] = _(
                    "They are no longer on this list. Select this if they asked to be re-added."
                )
            else:
                form.mistakes["address"] = str(error)
        except (AlreadyThere, Conflict):
            form.mistake = _("Somebody changed this at the same time. Try again.")
    return _new(request, signed_in, mailing_list, form, gone, 409 if gone else 422)


def _new(
    request: Request,
    signed_in: SignedIn,
    mailing_list: MailingList,
    form: Form,
    gone: Subscriber | None,
    status: int = 200,
) -> Response:
    return show(
        request,
        signed_in,
        "subscribers/new.html",
        status,
        mailing_list=mailing_list,
        form=form,
        gone=gone,
    )


async def _people(
    request: Request,
    signed_in: SignedIn,
    mailing_list: MailingList,
    asked: SubscriberQuery,
    form: Form | None = None,
    status: int = 200,
) -> Response:
    context = context_of(request)
    shelf = await _shelf(context.storage.tables, asked)
    after = seal(context.site.secret, _AFTER, shelf.next) if shelf.next else ""
    return show(
        request,
        signed_in,
        "subscribers/index.html",
        status,
        mailing_list=mailing_list,
        counts=await counts.read(context.storage.tables, mailing_list.name),
        open_imports=await jobs.unfinished(context.storage.tables, mailing_list.name),
        asked=asked,
        form=form or Form(),
        rows=[
            (one, person_path(context, one.list_name, one.key), _short(one)) for one in shelf.people
        ],
        looked_at=shelf.looked_at,
        is_short=shelf.next is not None and len(shelf.people) < PEOPLE_A_PAGE,
        next_path=asked.path(after=after) if after else "",
        first_path=asked.path() if asked.after else "",
        standings=STANDINGS,
    )


async def _shelf(tables: Tables, asked: SubscriberQuery) -> subscribers.SubscriberPage:
    try:
        prefix = key_prefix(asked.text)
    except BadAddress:
        return subscribers.SubscriberPage([], 0, None)  # no address begins so
    return await subscribers.scan_people(
        tables,
        asked.list_name,
        prefix=prefix,
        standing=asked.standing,
        after=asked.after,
        limit=PEOPLE_A_PAGE,
    )


async def _choose_list(request: Request, signed_in: SignedIn) -> Response:
    tables = context_of(request).storage.tables
    after = request.query_params.get("after", "")
    if after:
        list_named(after)
    found, next_ = await lists.page(tables, limit=LISTS_A_PAGE, after=after)
    rows = [(each, await counts.read(tables, each.name)) for each in found]
    return show(request, signed_in, "subscribers/lists.html", rows=rows, after=after, next=next_)


async def _only_list(tables: Tables) -> str:
    found, next_ = await lists.page(tables, limit=2)
    return found[0].name if len(found) == 1 and next_ is None else ""


async def list_choices(tables: Tables, also: str = "") -> list[tuple[str, Text | str]]:
    """Lists for a form, by title and size: the first in the alphabet, and the current one."""
    found, _next = await lists.page(tables, limit=LISTS_TO_CHOOSE_MAX)
    with contextlib.suppress(BadInput):
        if also not in [each.name for each in found]:
            other = await lists.find(tables, check_list_name(also))
            found = [other, *found] if other else found
    is_short = len(found) <= LISTS_A_PAGE  # of more, nobody waits for the sizes
    people = [await counts.read(tables, each.name) if is_short else None for each in found]
    return [(each.name, _choice_text(each, size)) for each, size in zip(found, people, strict=True)]


def _choice_text(one: MailingList, people: ListCounts | None) -> Text | str:
    title = f"{one.description} ({one.name})" if one.description else one.name
    if people is None:
        return title
    return ngettext(
        "{title}, {count:,} subscriber",
        "{title}, {count:,} subscribers",
        people.verified,
        title=title,
    )


async def _lines(
    tables: Tables, name: str, standing: SubscriberFilter, header: list[str]
) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK + csv_text([header])
    waiting: list[list[object]] = []
    async for row in export_people.rows(tables, name, standing, header):
        waiting.append(row)
        if len(waiting) == EXPORTED_AT_A_TIME:
            yield csv_text(waiting)
            waiting = []
    yield csv_text(waiting)


def _asked(request: Request, list_name: str) -> SubscriberQuery:
    sent = request.query_params
    return SubscriberQuery(
        list_name,
        sent.get("q", ""),
        _standing(sent.get("standing", ""), SubscriberFilter.ALL),
        unseal(context_of(request).site.secret, _AFTER, sent.get("after", "")) or "",
    )


def _standing(text: str, otherwise: SubscriberFilter) -> SubscriberFilter:
    return SubscriberFilter(text) if text in set(SubscriberFilter) else otherwise


def _short(one: Subscriber) -> str:
    words = ", ".join(f"{name}={value}" for name, value in one.attributes.items())
    is_short = len(words) <= ATTRIBUTES_CHARS_SHOWN
    return words if is_short else words[: ATTRIBUTES_CHARS_SHOWN - 1] + "…"


async def _read_list(tables: Tables, name: str) -> MailingList:
    return await lists.read(tables, list_named(name))
