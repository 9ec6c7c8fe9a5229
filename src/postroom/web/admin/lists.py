"""Mailing lists: show, create, edit, delete; the sign-up snippets for a website."""

from __future__ import annotations

import contextlib

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import manage_lists, manage_templates
from postroom.actions.manage_lists import ListChanges
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.domain.mailing_list import (
    MailingList,
    check_description,
    check_list_name,
    check_new_list_name,
    check_postal_address,
    check_sender,
)
from postroom.domain.message import check_language
from postroom.domain.message_template import check_template_id
from postroom.domain.texts import Text, _, ngettext
from postroom.importing import jobs
from postroom.records import counts, lists
from postroom.storage.port import Conflict, StorageError, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer
from postroom.web.forms import Form, list_named
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/lists")
LISTS_A_PAGE = 50
GROWTH_DAYS = 30
LISTS_TO_CHOOSE_MAX = 200


@router.get("")
async def index(request: Viewer) -> Response:
    tables = request.tables
    after = request.query("after")
    if after:
        list_named(after)
    found, next_ = await lists.page(tables, limit=LISTS_A_PAGE, after=after)
    rows = []
    for each in found:
        people = await counts.read(tables, each.name)
        days = await counts.growth(tables, each.name, request.now(), days=GROWTH_DAYS)
        rows.append((each, people, [joined - left for _day, joined, left in days]))
    return request.show("lists/index.html", rows=rows, after=after, next=next_)


@router.get("/new")
async def new_page(request: Editor) -> Response:
    return await _show_form(request, Form({"language": "en"}), None)


@router.post("/new")
async def create(request: Editor) -> Response:
    form = await request.form()
    name = form.take("name", check_new_list_name)
    fields = _fields_in(form)
    if name and form.is_good:
        new_list = manage_lists.checked(name, **msgspec.structs.asdict(fields))

        async def create_list(submission: Submission) -> SubmitResult:
            act = request.act(submission.at)
            try:
                await manage_lists.create(act, new_list)
            except AlreadyThere:
                found = await lists.find(act.tables, name) if submission.is_again else None
                if found is None or found.created_at != submission.at:  # somebody else's
                    raise
            return SubmitResult(f"/admin/lists/{name}")

        try:
            return go((await request.act_once(form, create_list)).what, "created")
        except AlreadyThere as error:
            form.mistakes["name"] = str(error)
        except StorageError:
            form.keep_for_later()
    return await _show_form(request, form, None, form.status)


@router.get("/{name}")
async def details(request: Viewer, name: str) -> Response:
    tables = request.tables
    return request.show(
        "lists/details.html",
        mailing_list=await lists.read(tables, list_named(name)),
        counts=await counts.read(tables, name),
        growth=await counts.growth(tables, name, request.now(), days=GROWTH_DAYS),
        open_imports=await jobs.unfinished(tables, name),
        url=request.context.site.url,
    )


@router.get("/{name}/edit")
async def edit_page(request: Editor, name: str) -> Response:
    found, etag = await lists.read_with_etag(request.tables, list_named(name))
    form = Form(_values(found) | {"etag": etag})
    return await _show_form(request, form, found)


@router.post("/{name}/edit")
async def edit(request: Editor, name: str) -> Response:
    """Save; a change by somebody else is shown beside the fields."""
    form = await request.form()
    page_list = {"name": list_named(name)}  # what the page needs if storage does not respond
    try:
        if await _save(request, name, form):
            return go(f"/admin/lists/{name}", "saved")
    except StorageError:
        form.keep_for_later()
    return await _show_form(request, form, page_list, form.status)


async def _show_form(
    request: AdminRequest,
    form: Form,
    page_list: MailingList | dict[str, str] | None,
    status: int = 200,
) -> Response:
    choices: list[tuple[str, Text | str]] = [("", _("None"))]
    with contextlib.suppress(StorageError):  # show what was typed all the same
        choices += await manage_templates.choices(request.tables)
    return request.show(
        "lists/form.html", status, form=form, mailing_list=page_list, templates=choices
    )


async def _save(request: AdminRequest, name: str, form: Form) -> bool:
    """Save what the form says; False, with the reason in the form, if that did not work."""
    changes = _fields_in(form)
    if not form.is_good:
        return False
    try:
        await manage_lists.edit(request.act(), name, changes, form.value("etag"))
    except Conflict:
        found, etag = await lists.read_with_etag(request.tables, name)
        return not form.show_others(_values(found), etag)
    return True


@router.get("/{name}/delete")
async def delete_page(request: Editor, name: str) -> Response:
    found, etag = await lists.read_with_etag(request.tables, list_named(name))
    return await _confirm_deletion(request, found, Form({"etag": etag}))


@router.post("/{name}/delete")
async def delete(request: Editor, name: str) -> Response:
    """Delete only with the name typed, because all subscribers are deleted too."""
    form = await request.form()
    found = await lists.find_with_etag(request.tables, list_named(name))
    if found is None:  # deleted by a second click or by somebody else
        return go("/admin/lists", "deleting")
    if form.value("typed") != name:
        form.mistakes["typed"] = _("Type the name of the list exactly as shown above.")
        return await _confirm_deletion(request, found.value, form, 422)
    try:
        await manage_lists.delete(request.act(), name, form.value("etag"))
    except Conflict:
        form.values["etag"] = found.etag
        form.mistake = _("Somebody changed the list. Check it and try again.")
        return await _confirm_deletion(request, found.value, form, 409)
    return go("/admin/lists", "deleting")


async def _confirm_deletion(
    request: AdminRequest, mailing_list: MailingList, form: Form, status: int = 200
) -> Response:
    people = await counts.read(request.tables, mailing_list.name)
    values = {"form": form, "mailing_list": mailing_list, "counts": people}
    return request.show("lists/delete.html", status, **values)


def _fields_in(form: Form) -> ListChanges:
    """What the form says about the list, with errors beside the fields that are not valid."""
    form.values["language"] = form.value("language").strip() or "en"
    return ListChanges(
        sender=form.take("sender", check_sender),
        description=form.take("description", check_description),
        postal_address=form.take("postal_address", check_postal_address),
        public_form=form.is_ticked("public_form"),
        language=form.take("language", check_language),
        template=form.take("template", check_template_id),
    )


def _values(mailing_list: MailingList) -> dict[str, str]:
    """A list as the fields of the form."""
    return {
        "sender": mailing_list.sender,
        "description": mailing_list.description,
        "postal_address": mailing_list.postal_address,
        "public_form": "yes" if mailing_list.public_form else "",
        "language": mailing_list.language,
        "template": mailing_list.template,
    }


async def list_choices(tables: Tables, also: str = "") -> list[tuple[str, Text | str]]:
    """Lists for a form, by title and size: the first in the alphabet, and the current one."""
    found, _next = await lists.page(tables, limit=LISTS_TO_CHOOSE_MAX)
    with contextlib.suppress(BadInput):
        if also not in [each.name for each in found]:
            other = await lists.find(tables, check_list_name(also))
            found = [other, *found] if other else found
    choices: list[tuple[str, Text | str]] = []
    for each in found:
        text: Text | str = f"{each.description} ({each.name})" if each.description else each.name
        if len(found) <= LISTS_A_PAGE:  # counting the subscribers of more would take too long
            text = ngettext(
                "{title}, {count:,} subscriber",
                "{title}, {count:,} subscribers",
                (await counts.read(tables, each.name)).verified,
                title=text,
            )
        choices.append((each.name, text))
    return choices
