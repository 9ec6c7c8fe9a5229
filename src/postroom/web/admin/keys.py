"""Access keys of the API: create, show once, revoke after a confirmation."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.access_key import (
    LISTS_MAX,
    AccessKey,
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
)
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.texts import _
from postroom.records import keys, lists
from postroom.storage.port import Tables
from postroom.web.context import context_of
from postroom.web.forms import Form, opened
from postroom.web.pages import go, show
from postroom.web.signed_in import Owner, SignedIn
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/keys")
LISTS_OFFERED_MAX = LISTS_MAX  # as tick boxes; the names of others are typed
TICK = "list-"  # and the name of a list: one field for each tick box
FIELDS_MAX = LISTS_OFFERED_MAX + 20
RIGHTS = [
    (Right.SUBSCRIBE.value, _("sign people up (what a website needs)")),
    (Right.READ.value, _("read lists, subscribers, messages and outcomes")),
    (Right.WRITE.value, _("change lists, subscribers and messages")),
]


@router.get("")
async def index(request: Request, signed_in: Owner) -> Response:
    return await _index(request, signed_in, Form({"right-subscribe": "yes"}))


class KeyInput(NamedTuple):
    name: str
    lists: tuple[str, ...]
    rights: tuple[Right, ...]


@router.post("/new")
async def create(request: Request, signed_in: Owner) -> Response:
    """Show the new key once; it is not stored."""
    context = context_of(request)
    async with opened(request, fields_max=FIELDS_MAX) as sent:
        form = Form(sent.fields)
    tables = context.storage.tables
    done = None
    name = form.take("name", check_key_name)
    names = form.take("lists", lambda typed: _list_names(typed, form))
    rights = check_key_rights(right for right in Right if form.is_ticked(f"right-{right.value}"))
    wanted = KeyInput(name or "", names or (), rights)
    try:
        if form.is_good:
            done = await act_once(
                request, signed_in, form, lambda turn: _made(tables, wanted, turn)
            )
        else:
            await _check_there(tables, wanted.lists)  # all that is wrong is told at once
    except BadInput as error:
        form.mistakes["lists"] = str(error)
    if done is None:
        return await _index(request, signed_in, form, status=422)
    if done.secret is None:
        return show(request, signed_in, "keys/made_before.html", name=wanted.name, id=done.what)
    key = done.secret
    url = context.site.url
    return show(request, signed_in, "keys/made.html", key=key, made=wanted, url=url)


async def _made(tables: Tables, wanted: KeyInput, turn: Submission) -> SubmitResult:
    await _check_there(tables, wanted.lists)
    if turn.is_again:
        await _revoke_unseen(tables, wanted.name, turn.at)
    key, made = await keys.create(tables, wanted.name, wanted.lists, turn.at, wanted.rights)
    return SubmitResult(made.id, key)


async def _check_there(tables: Tables, names: tuple[str, ...]) -> None:
    for name in names:
        if await lists.find(tables, name) is None:
            raise BadInput(_("There is no list {name}.", name=name))


async def _revoke_unseen(tables: Tables, name: str, made_at: datetime) -> None:
    """Revoke the key of an earlier submission that died before showing it."""
    async for key in keys.every_key(tables):
        if (key.name, key.created_at, key.last_used_at) == (name, made_at, None):
            await keys.revoke(tables, key.id)


@router.get("/{id_}/revoke")
async def revoke_page(request: Request, signed_in: Owner, id_: str) -> Response:
    """Ask first: a revoked key cannot be restored, and its clients stop working."""
    found = [
        key async for key in keys.every_key(context_of(request).storage.tables) if key.id == id_
    ]
    if not found:
        return go("/admin/keys")
    return show(request, signed_in, "keys/revoke.html", key=found[0])


@router.post("/{id_}/revoke")
async def revoke(request: Request, signed_in: Owner, id_: str) -> Response:
    with contextlib.suppress(NotFound):  # somebody else did: it is gone, as was wanted
        await keys.revoke(context_of(request).storage.tables, id_)
    return go("/admin/keys", "revoked")


async def _index(request: Request, signed_in: SignedIn, form: Form, status: int = 200) -> Response:
    tables = context_of(request).storage.tables
    found: list[AccessKey] = [key async for key in keys.every_key(tables)]
    found.sort(key=lambda key: (key.name, key.created_at))
    offered, more = await lists.page(tables, limit=LISTS_OFFERED_MAX)
    return show(
        request,
        signed_in,
        "keys/index.html",
        status,
        keys=found,
        form=form,
        rights=RIGHTS,
        lists=[each.name for each in offered],
        has_more_lists=more is not None,
        tick_name=TICK,
    )


def _list_names(typed: str, form: Form) -> tuple[str, ...]:
    """The lists that are selected and those that are typed."""
    ticked = [name.removeprefix(TICK) for name in form.values if name.startswith(TICK)]
    return check_key_lists(map(check_list_name, [*ticked, *typed.replace(",", " ").split()]))
