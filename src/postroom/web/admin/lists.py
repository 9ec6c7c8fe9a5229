"""Mailing lists: show, create, edit, delete; the sign-up snippets for a website."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.actions import manage_lists
from postroom.actions.manage_lists import ListChanges
from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import (
    MailingList,
    check_description,
    check_new_list_name,
    check_postal_address,
    check_sender,
)
from postroom.domain.texts import _
from postroom.importing import jobs
from postroom.records import counts, lists
from postroom.storage.port import Conflict, StorageError, Tables
from postroom.web.context import context_of
from postroom.web.forms import Form, list_named, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, SignedIn, Viewer, act_of
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/lists")
LISTS_A_PAGE = 50
GROWTH_DAYS = 30


class ListName(NamedTuple):
    """What a form needs of its list when storage does not respond."""

    name: str


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    context = context_of(request)
    tables = context.storage.tables
    after = request.query_params.get("after", "")
    if after:
        list_named(after)
    found, next_ = await lists.page(tables, limit=LISTS_A_PAGE, after=after)
    rows = [
        (
            each,
            await counts.read(tables, each.name),
            await _growth(tables, each, context.clock.now()),
        )
        for each in found
    ]
    return show(request, signed_in, "lists/index.html", rows=rows, after=after, next=next_)


@router.get("/new")
async def new_page(request: Request, signed_in: Editor) -> Response:
    return show(request, signed_in, "lists/form.html", form=Form(), mailing_list=None)


@router.post("/new")
async def create(request: Request, signed_in: Editor) -> Response:
    form = await posted(request)
    name = form.take("name", check_new_list_name)
    sender, description, postal = _checked(form)
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if name and sender and description is not None and postal is not None:
        is_open = form.is_ticked("public_form")
        wanted = manage_lists.checked(name, sender, description, postal, is_open)

        async def make(turn: Submission) -> SubmitResult:
            act = act_of(request, signed_in, turn.at)
            try:
                await manage_lists.create(act, wanted)
            except AlreadyThere:
                known = await lists.find(act.tables, wanted.name) if turn.is_again else None
                if known is None or known.created_at != turn.at:  # somebody else's
                    raise
            return SubmitResult(f"/admin/lists/{wanted.name}")

        try:
            done = await act_once(request, signed_in, form, make)
            return go(done.what, "created")
        except AlreadyThere as error:
            form.mistakes["name"] = str(error)
        except StorageError:
            form.keep_for_later()
            status = HTTPStatus.SERVICE_UNAVAILABLE
    return show(request, signed_in, "lists/form.html", status, form=form, mailing_list=None)


@router.get("/{name}")
async def details(request: Request, signed_in: Viewer, name: str) -> Response:
    context = context_of(request)
    tables = context.storage.tables
    mailing_list = await _read(tables, name)
    growth = await counts.growth(tables, name, context.clock.now(), days=GROWTH_DAYS)
    return show(
        request,
        signed_in,
        "lists/details.html",
        mailing_list=mailing_list,
        counts=await counts.read(tables, name),
        growth=growth,
        open_imports=await jobs.unfinished(tables, name),
        url=context.site.url,
    )


@router.get("/{name}/edit")
async def edit_page(request: Request, signed_in: Editor, name: str) -> Response:
    found, etag = await lists.read_with_etag(context_of(request).storage.tables, list_named(name))
    form = Form(_values(found) | {"etag": etag})
    return show(request, signed_in, "lists/form.html", form=form, mailing_list=found)


@router.post("/{name}/edit")
async def edit(request: Request, signed_in: Editor, name: str) -> Response:
    """Save; a change by somebody else is shown beside the fields."""
    tables = context_of(request).storage.tables
    form = await posted(request)
    named = ListName(list_named(name))
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    try:
        if await _save(tables, name, form):
            return go(f"/admin/lists/{name}", "saved")
    except StorageError:
        form.keep_for_later()
        status = HTTPStatus.SERVICE_UNAVAILABLE
    status = HTTPStatus.CONFLICT if form.others else status
    return show(request, signed_in, "lists/form.html", status, form=form, mailing_list=named)


async def _save(tables: Tables, name: str, form: Form) -> bool:
    """Whether it is saved as the form says; if not, the form says why."""
    sender, description, postal = _checked(form)
    if not form.is_good:
        return False
    wording = ListChanges(
        sender=sender,
        description=description,
        postal_address=postal,
        public_form=form.is_ticked("public_form"),
    )
    try:
        await manage_lists.edit(tables, name, wording, form.value("etag"))
    except Conflict:
        found, etag = await lists.read_with_etag(tables, name)
        return not form.show_others(_values(found), etag)
    return True


@router.get("/{name}/delete")
async def delete_page(request: Request, signed_in: Editor, name: str) -> Response:
    tables = context_of(request).storage.tables
    found, etag = await lists.read_with_etag(tables, list_named(name))
    return await _ask(request, signed_in, found, Form({"etag": etag}))


@router.post("/{name}/delete")
async def delete(request: Request, signed_in: Editor, name: str) -> Response:
    """Delete only with the name typed, because all subscribers are deleted too."""
    tables = context_of(request).storage.tables
    form = await posted(request)
    seen = await lists.find_with_etag(tables, list_named(name))
    if seen is None:  # a second click, or somebody else: it is gone, as was wanted
        return go("/admin/lists", "deleting")
    found, etag = seen
    if form.value("typed") != name:
        form.mistakes["typed"] = _("Type the name of the list exactly as shown above.")
        return await _ask(request, signed_in, found, form, 422)
    try:
        await manage_lists.delete(act_of(request, signed_in), name, form.value("etag"))
    except Conflict:
        form.values["etag"] = etag
        form.mistake = _("Somebody changed the list. Check it and try again.")
        return await _ask(request, signed_in, found, form, 409)
    return go("/admin/lists", "deleting")


async def _ask(
    request: Request, signed_in: SignedIn, found: MailingList, form: Form, status: int = 200
) -> Response:
    people = await counts.read(context_of(request).storage.tables, found.name)
    return show(
        request,
        signed_in,
        "lists/delete.html",
        status,
        form=form,
        mailing_list=found,
        counts=people,
    )


def _checked(form: Form) -> tuple[str | None, str | None, str | None]:
    return (
        form.take("sender", check_sender),
        form.take("description", check_description),
        form.take("postal_address", check_postal_address),
    )


def _values(mailing_list: MailingList) -> dict[str, str]:
    return {
        "sender": mailing_list.sender,
        "description": mailing_list.description,
        "postal_address": mailing_list.postal_address,
        "public_form": "yes" if mailing_list.public_form else "",
    }


async def _read(tables: Tables, name: str) -> MailingList:
    return await lists.read(tables, list_named(name))


async def _growth(tables: Tables, mailing_list: MailingList, now: datetime) -> list[int]:
    days = await counts.growth(tables, mailing_list.name, now, days=GROWTH_DAYS)
    return [joined - left for _day, joined, left in days]
