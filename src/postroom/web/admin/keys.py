"""Access keys of the web service: made, shown once, revoked."""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.access_key import (
    Right,
    check_key_lists,
    check_key_name,
    check_key_rights,
)
from postroom.domain.errors import NotFound
from postroom.domain.mailing_list import check_list_name
from postroom.records import keys, lists
from postroom.web.desk import desk_of
from postroom.web.forms import Form, posted
from postroom.web.pages import go, show
from postroom.web.texts import gettext as _
from postroom.web.visitor import Owner, Visitor

router = APIRouter(prefix="/keys")
RIGHTS = [
    (Right.SUBSCRIBE.value, _("sign people up: what a web site needs")),
    (Right.READ.value, _("read lists, subscribers, messages and outcomes")),
    (Right.WRITE.value, _("change them, too")),
]


@router.get("")
async def index(request: Request, visitor: Owner) -> Response:
    return await _index(request, visitor, Form({"right-subscribe": "yes"}))


@router.post("/new")
async def create(request: Request, visitor: Owner) -> Response:
    """The answer to the form shows the key, this once: it is kept nowhere."""
    desk, form = desk_of(request), await posted(request)
    tables = desk.storage.tables
    name = form.take("name", check_key_name)
    names = form.take("lists", _list_names)
    rights = check_key_rights(right for right in Right if form.is_ticked(f"right-{right.value}"))
    for each in names or ():
        if await lists.find(tables, each) is None:
            form.mistakes["lists"] = _("There is no list %s.") % each
    if name is None or names is None or not form.is_good:
        return await _index(request, visitor, form, status=422)
    key, made = await keys.create(tables, name, names, desk.clock.now(), rights)
    return show(request, visitor, "keys/made.html", key=key, made=made, url=desk.site.url)


@router.post("/revoke")
async def revoke(request: Request, visitor: Owner) -> Response:
    form = await posted(request)
    with contextlib.suppress(NotFound):  # somebody else did: it is gone, as was wanted
        await keys.revoke(desk_of(request).storage.tables, form.value("id"))
    return go("/admin/keys", "revoked")


async def _index(request: Request, visitor: Visitor, form: Form, status: int = 200) -> Response:
    found = [key async for key in keys.every_key(desk_of(request).storage.tables)]
    found.sort(key=lambda key: (key.name, key.created_at))
    return show(request, visitor, "keys/index.html", status, keys=found, form=form, rights=RIGHTS)


def _list_names(text: str) -> tuple[str, ...]:
    return check_key_lists(map(check_list_name, text.replace(",", " ").split()))
