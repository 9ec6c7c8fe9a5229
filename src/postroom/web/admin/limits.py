"""Limits for all senders combined: everybody sees them, owners change them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.rate_limit import (
    TRANSPORT,
    RateLimit,
    check_connections,
    check_limit,
    check_mails_per_s,
    limit_name,
    whom,
)
from postroom.domain.texts import _
from postroom.records import rate_limits
from postroom.storage.port import Tables
from postroom.web.context import context_of
from postroom.web.forms import ONCE, Form, posted
from postroom.web.pages import go, show
from postroom.web.signed_in import Owner, SignedIn, Viewer
from postroom.web.submit_once import Submission, SubmitResult, act_once

router = APIRouter(prefix="/limits")
PATH = "/admin/limits"
T = TypeVar("T")


@router.get("")
async def index(request: Request, signed_in: Viewer) -> Response:
    """With ?change=NAME the form starts with that limit, because saving replaces all of it."""
    form = Form()
    name = request.query_params.get("change", "")
    if name:
        form.values = _values(await _read(context_of(request).storage.tables, name))
    return await _index(request, signed_in, form)


@router.post("/set")
async def set_(request: Request, signed_in: Owner) -> Response:
    tables = context_of(request).storage.tables
    form = await posted(request)
    limit = _checked(form)
    if limit is None:
        return await _index(request, signed_in, form, status=422)
    if await _is_changed(tables, limit, form):
        return await _index(request, signed_in, form, status=409)

    async def act(_turn: Submission) -> SubmitResult:
        await rate_limits.set_limit(tables, limit)
        return SubmitResult(PATH)

    try:
        done = await act_once(request, signed_in, form, act)
    except BadInput as error:  # there are too many
        form.mistake = str(error)
        return await _index(request, signed_in, form, status=422)
    found = await rate_limits.all_limits(tables)
    if limit.name not in found or found[limit.name].limit(limit.name) != limit:
        form.values.pop(ONCE, None)  # sent before, and changed since: the next try acts
        form.mistake = _("This limit has been changed or cleared since you set it. Set it again?")
        return await _index(request, signed_in, form, status=409)
    return go(done.what, "limit-set")


async def _is_changed(tables: Tables, limit: RateLimit, form: Form) -> bool:
    """Whether it stands otherwise than whoever changes it saw it; the form shows how.

    Told by the values: the row's etag changes with every renewal of a share.
    """
    row = (await rate_limits.all_limits(tables)).get(limit.name)
    now_there = _values(row.limit(limit.name)) if row else {}
    if not row or form.value("etag") in ("", now_there["etag"]):
        return False
    return form.show_others(now_there, now_there["etag"])


@router.get("/{name}/clear")
async def clear_page(request: Request, signed_in: Owner, name: str) -> Response:
    limit = await _read(context_of(request).storage.tables, name)
    return show(request, signed_in, "limits/clear.html", limit=limit, whom=whom(name))


@router.post("/{name}/clear")
async def clear(request: Request, signed_in: Owner, name: str) -> Response:
    tables = context_of(request).storage.tables
    with contextlib.suppress(NotFound):  # somebody else did: it is gone, as was wanted
        limit = await _read(tables, name)
        await rate_limits.clear_limit(tables, limit.name)
    return go(PATH, "limit-cleared")


def _checked(form: Form) -> RateLimit | None:
    """The limit as typed; None, with errors beside the fields, if it is not valid."""
    name = form.take("domain", lambda text: limit_name(text.strip()))
    mails_per_s = form.take("mails_per_second", _if_any(check_mails_per_s))
    connections = form.take("connections", _if_any(check_connections))
    if name is None or not form.is_good:
        return None
    return form.take("mails_per_second", lambda _text: check_limit(name, mails_per_s, connections))


def _if_any(check: Callable[[str], T]) -> Callable[[str], T | None]:
    """Check a field that may be empty."""
    return lambda text: check(text) if text.strip() else None


async def _index(request: Request, signed_in: SignedIn, form: Form, status: int = 200) -> Response:
    found = await rate_limits.all_limits(context_of(request).storage.tables)
    rows = [(row.limit(name), whom(name), row) for name, row in found.items()]
    return show(request, signed_in, "limits/index.html", status, rows=rows, form=form)


async def _read(tables: Tables, name: str) -> RateLimit:
    """Check the name of a limit from a URL."""
    found = await rate_limits.all_limits(tables)
    if name not in found:
        raise NotFound(_("This limit no longer exists."))
    return found[name].limit(name)


def _values(limit: RateLimit) -> dict[str, str]:
    return {
        "domain": "" if limit.name == TRANSPORT else limit.name,
        "mails_per_second": str(limit.mails_per_s or "").removesuffix(".0"),
        "connections": str(limit.connections or ""),
        "etag": f"{limit.mails_per_s} {limit.connections}",
    }
