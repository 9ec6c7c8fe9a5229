"""Access keys of the API: create, show once, revoke after a confirmation."""

from __future__ import annotations

import contextlib

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.access_key import (
    LISTS_MAX,
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
    key_values,
)
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.domain.texts import _
from postroom.records import keys, lists
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form, opened
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/keys")
LISTS_OFFERED_MAX = LISTS_MAX  # as check boxes; the names of others are typed
TICK = "list-"  # starts the field name of each check box; the name of the list follows
FIELDS_MAX = LISTS_OFFERED_MAX + 20
RIGHTS = [
    (Right.SUBSCRIBE.value, _("sign people up (what a website needs)")),
    (Right.READ.value, _("read lists, subscribers, messages and outcomes")),
    (Right.WRITE.value, _("change lists, subscribers and messages")),
]


@router.get("")
async def index(request: Owner) -> Response:
    return await _index(request, Form({"right-subscribe": "yes"}))


@router.post("/new")
async def create(request: Owner) -> Response:
    """Show the new key once; it is not stored."""
    tables = request.tables
    async with opened(request.http, fields_max=FIELDS_MAX) as submitted:
        form = Form(submitted.fields)
    name = form.take("name", check_key_name) or ""
    list_names = form.take("lists", lambda typed: _list_names(typed, form)) or ()
    rights = check_key_rights(right for right in Right if form.is_ticked(f"right-{right.value}"))

    async def create_key(submission: Submission) -> SubmitResult:
        await _check_lists_exist(tables, list_names)
        if submission.is_again:  # revoke the key of a submission that died before showing it
            async for key in keys.every_key(tables):
                if (key.name, key.created_at, key.last_used_at) == (name, submission.at, None):
                    await keys.revoke(tables, key.id)
        async with request.act().audited(
            AuditKind.KEY, name, AuditAction.CREATE, after=key_values(list_names, rights)
        ):
            secret, created = await keys.create(tables, name, list_names, submission.at, rights)
        return SubmitResult(created.id, secret)

    result = None
    try:
        if form.is_good:
            result = await request.act_once(form, create_key)
        else:
            await _check_lists_exist(tables, list_names)  # show all mistakes at once
    except BadInput as error:
        form.mistakes["lists"] = str(error)
    if result is None:
        return await _index(request, form, status=422)
    if result.secret is None:
        return request.show("keys/created_before.html", name=name, id=result.what)
    key = result.secret
    url = request.context.site.url
    if not list_names:  # the example names a list that exists
        some, _more = await lists.page(tables, limit=1)
        list_names = tuple(each.name for each in some)
    return request.show("keys/created.html", key=key, name=name, lists=list_names, url=url)


async def _check_lists_exist(tables: Tables, names: tuple[str, ...]) -> None:
    for name in names:
        if await lists.find(tables, name) is None:
            raise BadInput(_("There is no list {name}.", name=name))


@router.get("/{id_}/revoke")
async def revoke_page(request: Owner, id_: str) -> Response:
    """Ask first: a revoked key cannot be restored, and its clients stop working."""
    async for key in keys.every_key(request.tables):
        if key.id == id_:
            return request.show("keys/revoke.html", key=key)
    return go("/admin/keys")


@router.post("/{id_}/revoke")
async def revoke(request: Owner, id_: str) -> Response:
    with contextlib.suppress(NotFound):  # revoked by a second click or by somebody else
        async with request.act().audited(AuditKind.KEY, id_, AuditAction.REVOKE):
            await keys.revoke(request.tables, id_)
    return go("/admin/keys", "revoked")


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    found = [key async for key in keys.every_key(request.tables)]
    found.sort(key=lambda key: (key.name, key.created_at))
    offered, more = await lists.page(request.tables, limit=LISTS_OFFERED_MAX)
    return request.show(
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
