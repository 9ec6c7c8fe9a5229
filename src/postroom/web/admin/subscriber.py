"""One subscriber: show, edit, move to another address or list, remove; the consent record."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.actions import ask_to_confirm, move_subscriber
from postroom.actions.move_subscriber import Destination
from postroom.domain.address import parse_address
from postroom.domain.asking import CANNOT_ASK_TEXTS, cannot_ask
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.subscriber import AlreadySubscribed, InactiveReason, Subscriber
from postroom.domain.texts import _
from postroom.flow import subscribe
from postroom.records import consents, lists
from postroom.records.stored import Stored
from postroom.storage.port import Conflict
from postroom.web.admin.subscriber_form import (
    attributes_typed,
    find_person,
    is_own,
    person_path,
    values_of,
)
from postroom.web.admin.subscribers import list_choices
from postroom.web.context import context_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Editor, SignedIn, Viewer, act_of
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/subscribers/{list_name}/{who}")


@router.get("")
async def details(request: Request, signed_in: Viewer, list_name: str, who: str) -> Response:
    context = context_of(request)
    one, _etag = await find_person(context, list_name, who)
    why = cannot_ask(one, context.clock.now())
    return show(
        request,
        signed_in,
        "subscribers/person.html",
        one=one,
        person=person_path(context, list_name, one.key),
        history=await consents.history(context.storage.tables, list_name, one.key),
        cannot_ask=CANNOT_ASK_TEXTS[why] if why else "",
    )


@router.post("/ask")
async def ask(request: Request, signed_in: Editor, list_name: str, who: str) -> Response:
    """Ask to confirm; after a second click the page says that they were just asked."""
    context = context_of(request)
    one, _etag = await find_person(context, list_name, who)
    why = await ask_to_confirm.ask_one(act_of(request, signed_in), list_name, one.key)
    return go(person_path(context, list_name, one.key), "" if why else "asked")


@router.get("/edit")
async def edit_page(request: Request, signed_in: Editor, list_name: str, who: str) -> Response:
    one, etag = await _there(request, list_name, who)
    return await _form(request, signed_in, one, Form(values_of(one) | {"etag": etag}))


@router.post("/edit")
async def edit(request: Request, signed_in: Editor, list_name: str, who: str) -> Response:
    """Save; another address or list is a move, the rest changes one row."""
    context = context_of(request)
    form = await posted(request)
    one, _etag = await find_person(context, list_name, who)
    to = await _destination(request, form)
    if to is None:
        return await _form(request, signed_in, one, form, 422)
    try:
        where = await _saved(request, signed_in, one, to, form)
    except AlreadySubscribed as error:
        if error.subscriber.gone:
            form.mistakes["bring_back"] = _(
                "This address is no longer on {name}. Select this if they asked to be re-added.",
                name=to.list_name,
            )
        else:
            form.mistakes["address"] = str(error)
    except AlreadyThere as error:
        form.mistakes["address"] = str(error)
    except NotFound:
        form.mistake = _("They unsubscribed in the meantime. Nothing was changed.")
    except Conflict:
        one, etag = await find_person(context, list_name, who)
        if not form.show_others(values_of(one), etag):  # a second click on the button
            return go(person_path(context, one.list_name, one.key), "saved")
    else:
        return go(where, "saved")
    return await _form(request, signed_in, one, form, 409)


@router.get("/remove")
async def remove_page(request: Request, signed_in: Editor, list_name: str, who: str) -> Response:
    one, _etag = await _there(request, list_name, who)
    person = person_path(context_of(request), list_name, one.key)
    return show(request, signed_in, "subscribers/remove.html", one=one, person=person)


@router.post("/remove")
async def remove(request: Request, signed_in: Editor, list_name: str, who: str) -> Response:
    """Remove them; somebody who has just unsubscribed stays unsubscribed."""
    context = context_of(request)
    one, _etag = await find_person(context, list_name, who)
    if not one.gone:
        await subscribe.leave(
            act_of(request, signed_in), list_name, one.guid, InactiveReason.REMOVED
        )
    return go(person_path(context, list_name, one.key), "removed")


async def _saved(
    request: Request, signed_in: SignedIn, one: Subscriber, to: Destination, form: Form
) -> str:
    """Where they are now. A move acts once; a repeated edit fails on its etag."""
    context = context_of(request)

    async def save(turn: Submission) -> SubmitResult:
        act = act_of(request, signed_in, turn.at)
        try:
            await move_subscriber.change(act, one, to, etag=form.value("etag"))
        except NotFound:
            if not await is_own(act.tables, turn, to.list_name, to.address):
                raise
        return SubmitResult(person_path(context, to.list_name, to.address.storage_key))

    if to.is_elsewhere(one):
        return (await act_once(request, signed_in, form, save)).what
    return (await save(Submission(context.clock.now()))).what


async def _destination(request: Request, form: Form) -> Destination | None:
    """The destination that the form names; None, with errors in the form, if it is not valid."""
    address = form.take("address", parse_address)
    name = form.take("list", check_list_name)
    attributes = form.take("attributes", attributes_typed)
    if name and await lists.find(context_of(request).storage.tables, name) is None:
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


async def _form(
    request: Request, signed_in: SignedIn, one: Subscriber, form: Form, status: int = 200
) -> Response:
    context = context_of(request)
    return show(
        request,
        signed_in,
        "subscribers/edit.html",
        status,
        one=one,
        form=form,
        person=person_path(context, one.list_name, one.key),
        choices=await list_choices(context.storage.tables, form.value("list")),
    )


async def _there(request: Request, list_name: str, who: str) -> Stored[Subscriber]:
    found = await find_person(context_of(request), list_name, who)
    if found.value.gone:
        raise NotFound(_("They are no longer on {name}.", name=list_name))
    return found
