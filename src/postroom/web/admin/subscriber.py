"""One subscriber: show, edit, move to another address or list, remove; the consent record.

Pages are found by the sealed address key: no path contains an email address, and the path stays the
same when somebody unsubscribes and is re-added. The GUID of an active subscriber works as well,
because messages know people by it.
"""

from __future__ import annotations

import re

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import ask_to_confirm, move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain import trace_entry
from postroom.domain.address import Address, parse_address, readable_address
from postroom.domain.asking import CANNOT_ASK_TEXTS, cannot_ask
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.seal import seal, unseal
from postroom.domain.subscriber import (
    AlreadySubscribed,
    InactiveReason,
    Subscriber,
    attributes_from,
    clean_attributes,
)
from postroom.domain.texts import _
from postroom.flow import subscribe
from postroom.records import consents, lists, subscribers, suppressions
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables
from postroom.web.admin.admin_request import AdminRequest, Editor, Viewer
from postroom.web.admin.lists import list_choices
from postroom.web.admin.suppression import entry_path
from postroom.web.context import WebContext
from postroom.web.forms import Form, list_named
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/subscribers/{list_name}/{person_id}")
_GUID = re.compile(r"[0-9a-f]{32}")


@router.get("")
async def details(request: Viewer, list_name: str, person_id: str) -> Response:
    one, _etag = await find_person(request.context, list_name, person_id)
    secret = request.context.site.secret
    reason = cannot_ask(one, request.now(), by_hand=True)
    found = await suppressions.find(request.tables, secret, one.key)
    return request.show(
        "subscribers/person.html",
        one=one,
        person=person_path(request.context, list_name, one.key),
        history=await consents.history(request.tables, list_name, one.key),
        cannot_ask=CANNOT_ASK_TEXTS[reason] if reason else "",
        suppression=found.value if found else None,
        suppression_path=entry_path(request.context, one.key),
        trace_id=trace_entry.person_id(one.guid),
    )


@router.post("/ask")
async def ask(request: Editor, list_name: str, person_id: str) -> Response:
    """Ask to confirm; after a second click the page says that they were just asked."""
    one, _etag = await find_person(request.context, list_name, person_id)
    refusal = await ask_to_confirm.ask_one(request.act(), list_name, one.key)
    return go(person_path(request.context, list_name, one.key), "" if refusal else "asked")


@router.get("/edit")
async def edit_page(request: Editor, list_name: str, person_id: str) -> Response:
    one, etag = await _find_active(request, list_name, person_id)
    return await _show_form(request, one, Form(_values_of(one) | {"etag": etag}))


@router.post("/edit")
async def edit(request: Editor, list_name: str, person_id: str) -> Response:
    """Save; another address or list is a move, the rest changes one row."""
    form = await request.form()
    one, _etag = await find_person(request.context, list_name, person_id)
    to = await _destination_in(request, form)
    if to is None:
        return await _show_form(request, one, form, 422)
    try:
        return go(await _save(request, one, to, form), "saved")
    except AlreadyThere as error:
        if isinstance(error, AlreadySubscribed) and error.subscriber.inactive_reason:
            form.mistakes["bring_back"] = _(
                "This address is no longer on {name}. Select this if they asked to be re-added.",
                name=to.list_name,
            )
        else:
            form.mistakes["address"] = str(error)
    except NotFound:
        form.mistake = _("They unsubscribed in the meantime. Nothing was changed.")
    except Conflict:
        one, etag = await find_person(request.context, list_name, person_id)
        if not form.show_others(_values_of(one), etag):  # a second click on the button
            return go(person_path(request.context, one.list_name, one.key), "saved")
    return await _show_form(request, one, form, 409)


@router.get("/remove")
async def remove_page(request: Editor, list_name: str, person_id: str) -> Response:
    one, _etag = await _find_active(request, list_name, person_id)
    person = person_path(request.context, list_name, one.key)
    return request.show("subscribers/remove.html", one=one, person=person)


@router.post("/remove")
async def remove(request: Editor, list_name: str, person_id: str) -> Response:
    """Remove them; somebody who has just unsubscribed stays unsubscribed."""
    one, _etag = await find_person(request.context, list_name, person_id)
    if not one.inactive_reason:
        act = request.act()
        name = f"{list_name} {one.address}"
        async with act.audited(AuditKind.SUBSCRIBER, name, AuditAction.DELETE):
            await subscribe.leave(act, list_name, one.guid, InactiveReason.REMOVED)
    return go(person_path(request.context, list_name, one.key), "removed")


async def _save(request: AdminRequest, one: Subscriber, to: Destination, form: Form) -> str:
    """Save and return the new path. A move acts once; a repeated edit fails on its etag."""

    async def save(submission: Submission) -> SubmitResult:
        act = request.act(submission.at)
        try:
            await move_subscriber.change(act, one, to, etag=form.value("etag"))
        except NotFound:
            if not await was_added_by(submission, act.tables, to.list_name, to.address):
                raise
        return SubmitResult(person_path(request.context, to.list_name, to.address.storage_key))

    if to.is_elsewhere(one):
        return (await request.act_once(form, save)).what
    return (await save(Submission(request.now()))).what


async def _destination_in(request: AdminRequest, form: Form) -> Destination | None:
    """The destination that the form names; None, with errors in the form, if it is not valid."""
    address = form.take("address", parse_address)
    name = form.take("list", check_list_name)
    attributes = form.take("attributes", parse_attributes)
    if name and await lists.find(request.tables, name) is None:
        form.mistakes["list"] = _("There is no such list.")
    if not form.is_good or address is None or name is None:
        return None
    return Destination(
        list_name=name,
        address=address,
        verified=form.is_ticked("verified"),
        attributes=attributes or {},
        bring_back=form.is_ticked("bring_back"),
    )


async def _show_form(
    request: AdminRequest, one: Subscriber, form: Form, status: int = 200
) -> Response:
    return request.show(
        "subscribers/edit.html",
        status,
        one=one,
        form=form,
        person=person_path(request.context, one.list_name, one.key),
        choices=await list_choices(request.tables, form.value("list")),
    )


async def _find_active(request: AdminRequest, list_name: str, person_id: str) -> Stored[Subscriber]:
    found = await find_person(request.context, list_name, person_id)
    if found.value.inactive_reason:
        raise NotFound(_("They are no longer on {name}.", name=list_name))
    return found


def person_path(context: WebContext, list_name: str, key: str) -> str:
    sealed = seal(context.site.secret, f"person of {list_name}", key)
    return f"/admin/subscribers/{list_name}/{sealed}"


def unseal_key(context: WebContext, list_name: str, sealed: str) -> str | None:
    """The address key in a path; None if it is not ours."""
    return unseal(context.site.secret, f"person of {list_name}", sealed)


async def find_person(context: WebContext, list_name: str, person_id: str) -> Stored[Subscriber]:
    """The subscriber, active or not; NotFound if the link is not valid or the row is deleted."""
    tables = context.storage.tables
    found = None
    list_named(list_name)
    if _GUID.fullmatch(person_id):
        found = await subscribers.find_by_guid(tables, list_name, person_id)
    elif key := unseal_key(context, list_name, person_id):
        found = await subscribers.find(tables, list_name, key)
    if found is None:
        raise NotFound(_("This person is not on the list."))
    return found


async def was_added_by(
    submission: Submission, tables: Tables, list_name: str, address: Address
) -> bool:
    """Whether an earlier submission of the same form added them."""
    found = await subscribers.find(tables, list_name, address.storage_key)
    one = found.value if found else None
    return bool(
        submission.is_again and one and not one.inactive_reason and one.since == submission.at
    )


def parse_attributes(text: str) -> dict[str, str]:
    """Parse name=value, one per line."""
    return clean_attributes(attributes_from(line for line in text.splitlines() if line.strip()))


def _values_of(one: Subscriber) -> dict[str, str]:
    """A subscriber as the fields of a form."""
    return {
        "address": readable_address(one.address),
        "list": one.list_name,
        "verified": "yes" if one.verified else "",
        "attributes": "\n".join(f"{name}={value}" for name, value in one.attributes.items()),
    }
