"""Subscribers of a list: search, add, export. One subscriber is in subscriber.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import export_people
from postroom.domain.address import BadAddress, key_prefix, parse_address
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.csv_rows import BYTE_ORDER_MARK, csv_text
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.seal import seal, unseal
from postroom.domain.subscriber import AlreadySubscribed, Subscriber, SubscriberFilter
from postroom.domain.texts import _, clipped
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.records import counts, lists, subscribers
from postroom.storage.port import Conflict, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer, csv_download
from postroom.web.admin.subscriber import (
    parse_attributes,
    person_path,
    unseal_key,
    was_added_by,
)
from postroom.web.forms import Form, list_named
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/subscribers")
PEOPLE_A_PAGE = 50
LISTS_A_PAGE = 50
EXPORTED_AT_A_TIME = 500  # rows
ATTRIBUTES_CHARS_SHOWN = 80
_AFTER = "page of people"
FILTERS = [each for each in SubscriberFilter if each is not SubscriberFilter.ACTIVE]


@router.get("")
async def index(request: Viewer) -> Response:
    """Subscribers by the start of their address; without a list, the lists to choose from."""
    list_name = request.query("list")
    if not list_name:
        found, next_ = await lists.page(request.tables, limit=2)
        if len(found) != 1 or next_ is not None:
            return await _choose_list(request)
        list_name = found[0].name
    return await _show_people(request, list_name)


@router.get("/export")
async def export(request: Viewer) -> Response:
    """The same file as `postroom subscriber export`, as a stream."""
    name = list_named(request.query("list"))
    filter_ = _parse_filter(request, SubscriberFilter.ACTIVE)
    try:
        async with request.act().audited(AuditKind.LIST, name, AuditAction.EXPORT):
            header = await export_people.columns(request.tables, name, filter_)
    except BadInput as error:
        return await _show_people(request, name, Form(mistake=str(error)), 422)
    suffix = "" if filter_ is SubscriberFilter.ACTIVE else f"-{filter_.value}"
    file_name = f"{name}-subscribers{suffix}-{request.now():%Y-%m-%d}.csv"
    return csv_download(_csv_pieces(request.tables, name, filter_, header), file_name)


@router.get("/new")
async def new_page(request: Editor) -> Response:
    """The form to add somebody; the page of an inactive subscriber links here."""
    name = list_named(request.query("list"))
    mailing_list = await lists.read(request.tables, name)
    key = unseal_key(request.context, name, request.query("who"))
    found = await subscribers.find(request.tables, name, key) if key else None
    inactive = found.value if found and found.value.inactive_reason else None
    form = Form({"address": inactive.address} if inactive else {})
    return request.show(
        "subscribers/new.html", mailing_list=mailing_list, form=form, inactive=inactive
    )


@router.post("/new")
async def add(request: Editor) -> Response:
    """Add a subscriber; an inactive one only if the form says that they asked for it."""
    form = await request.form()
    mailing_list = await lists.read(request.tables, list_named(request.query("list")))
    name = mailing_list.name
    inactive = None
    address = form.take("address", parse_address)
    attributes = form.take("attributes", parse_attributes)
    if form.is_good and address:

        async def add_once(submission: Submission) -> SubmitResult:
            act = request.act(submission.at)
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
                if not await was_added_by(submission, act.tables, name, address):
                    raise
            return SubmitResult(person_path(request.context, name, address.storage_key))

        try:
            return go((await request.act_once(form, add_once)).what, "added")
        except AlreadySubscribed as error:
            if error.subscriber.inactive_reason:
                inactive = error.subscriber
                form.mistakes["bring_back"] = _(
                    "They are no longer on this list. Select this if they asked to be re-added."
                )
            else:
                form.mistakes["address"] = str(error)
        except (AlreadyThere, Conflict):
            form.mistake = _("Somebody changed this at the same time. Try again.")
    values = {"mailing_list": mailing_list, "form": form, "inactive": inactive}
    return request.show("subscribers/new.html", 409 if inactive else 422, **values)


async def _show_people(
    request: AdminRequest, list_name: str, form: Form | None = None, status: int = 200
) -> Response:
    mailing_list = await lists.read(request.tables, list_named(list_name))
    secret = request.context.site.secret
    text = request.query("q")  # the beginning of an address, as typed
    filter_ = _parse_filter(request, SubscriberFilter.ALL)
    after = unseal(secret, _AFTER, request.query("after")) or ""
    try:
        page = await subscribers.scan_people(
            request.tables,
            list_name,
            prefix=key_prefix(text),
            filter_=filter_,
            after=after,
            limit=PEOPLE_A_PAGE,
        )
    except BadAddress:  # no address starts like this
        page = subscribers.SubscriberPage([], 0, None)

    def path(sealed_after: str) -> str:
        values = {"list": list_name, "q": text, "status": filter_, "after": sealed_after}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/admin/subscribers?{query}"

    return request.show(
        "subscribers/index.html",
        status,
        mailing_list=mailing_list,
        counts=await counts.read(request.tables, list_name),
        open_imports=await jobs.unfinished(request.tables, list_name),
        text=text,
        filter=filter_,
        form=form or Form(),
        rows=[
            (one, person_path(request.context, list_name, one.key), _short_attributes(one))
            for one in page.people
        ],
        searched=page.looked_at,
        is_short=page.next is not None and len(page.people) < PEOPLE_A_PAGE,
        next_path=path(seal(secret, _AFTER, page.next)) if page.next else "",
        first_path=path("") if after else "",
        filters=FILTERS,
    )


async def _choose_list(request: AdminRequest) -> Response:
    after = request.query("after")
    if after:
        list_named(after)
    found, next_ = await lists.page(request.tables, limit=LISTS_A_PAGE, after=after)
    rows = [(each, await counts.read(request.tables, each.name)) for each in found]
    return request.show("subscribers/lists.html", rows=rows, after=after, next=next_)


async def _csv_pieces(
    tables: Tables, name: str, filter_: SubscriberFilter, header: list[str]
) -> AsyncIterator[str]:
    yield BYTE_ORDER_MARK + csv_text([header])
    waiting: list[list[object]] = []
    async for row in export_people.rows(tables, name, filter_, header):
        waiting.append(row)
        if len(waiting) == EXPORTED_AT_A_TIME:
            yield csv_text(waiting)
            waiting = []
    yield csv_text(waiting)


def _parse_filter(request: AdminRequest, default: SubscriberFilter) -> SubscriberFilter:
    text = request.query("status")
    return SubscriberFilter(text) if text in set(SubscriberFilter) else default


def _short_attributes(one: Subscriber) -> str:
    text = ", ".join(f"{name}={value}" for name, value in one.attributes.items())
    return clipped(text, ATTRIBUTES_CHARS_SHOWN)
