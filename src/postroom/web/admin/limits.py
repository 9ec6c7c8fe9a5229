"""Limits for all senders combined: everybody sees them, owners change them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.rate_limit import (
    TRANSPORT,
    RateLimit,
    check_connections,
    check_limit,
    check_mails_per_s,
    limit_name,
    limit_text,
    whom,
)
from postroom.domain.texts import _
from postroom.records import rate_limits
from postroom.storage.port import Tables
from postroom.web.admin.admin_request import AdminRequest, Owner, Viewer
from postroom.web.forms import ONCE, Form
from postroom.web.pages import go
from postroom.web.submit_once import Submission, SubmitResult

router = APIRouter(prefix="/limits")
PATH = "/admin/limits"


@router.get("")
async def index(request: Viewer) -> Response:
    """With ?change=NAME the form starts with that limit, because saving replaces all of it."""
    name = request.query("change")
    values = _values(await _read(request.tables, name)) if name else {}
    return await _index(request, Form(values))


@router.post("/set")
async def set_(request: Owner) -> Response:
    form = await request.form()
    limit = _limit_in(form)
    if limit is None:
        return await _index(request, form, status=422)
    # Somebody else's change is found by the values: the row's etag changes with every renewal of a
    # quota.
    current = await _find(request.tables, limit.name)
    if current and form.value("etag"):
        values = _values(current)
        is_changed = form.value("etag") != values["etag"]
        if is_changed and form.show_others(values, values["etag"]):
            return await _index(request, form, status=409)

    async def store(_submission: Submission) -> SubmitResult:
        before = values_text({"limit": limit_text(current)}) if current else ""
        after = values_text({"limit": limit_text(limit)})
        async with request.act().audited(
            AuditKind.LIMIT, limit.name, AuditAction.CHANGE, before=before, after=after
        ):
            await rate_limits.set_limit(request.tables, limit)
        return SubmitResult(PATH)

    try:
        await request.act_once(form, store)
    except BadInput as error:  # there are too many
        form.mistake = str(error)
        return await _index(request, form, status=422)
    if await _find(request.tables, limit.name) != limit:
        form.values.pop(ONCE, None)  # submitted before and changed since: the next submission acts
        form.mistake = _(
            "This limit has been changed or cleared since you set it. Check it, and "
            "set it again if necessary."
        )
        return await _index(request, form, status=409)
    return go(PATH, "limit-set")


@router.get("/{name}/clear")
async def clear_page(request: Owner, name: str) -> Response:
    limit = await _read(request.tables, name)
    return request.show("limits/clear.html", limit=limit, whom=whom(name))


@router.post("/{name}/clear")
async def clear(request: Owner, name: str) -> Response:
    if await _find(request.tables, name):  # else cleared by a second click or by somebody else
        async with request.act().audited(AuditKind.LIMIT, name, AuditAction.CLEAR):
            await rate_limits.clear_limit(request.tables, name)
    return go(PATH, "limit-cleared")


def _limit_in(form: Form) -> RateLimit | None:
    """The limit as typed; None, with errors beside the fields, if it is not valid."""
    name = form.take("domain", lambda text: limit_name(text.strip()))
    rate = form.take(
        "mails_per_second", lambda text: check_mails_per_s(text) if text.strip() else None
    )
    connections = form.take(
        "connections", lambda text: check_connections(text) if text.strip() else None
    )
    if name is None or not form.is_good:
        return None
    return form.take("mails_per_second", lambda _text: check_limit(name, rate, connections))


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    found = await rate_limits.all_limits(request.tables)
    rows = [(row.limit(name), whom(name), row) for name, row in found.items()]
    return request.show("limits/index.html", status, rows=rows, form=form)


async def _find(tables: Tables, name: str) -> RateLimit | None:
    row = (await rate_limits.all_limits(tables)).get(name)
    return row.limit(name) if row else None


async def _read(tables: Tables, name: str) -> RateLimit:
    found = await _find(tables, name)
    if found is None:
        raise NotFound(_("This limit no longer exists."))
    return found


def _values(limit: RateLimit) -> dict[str, str]:
    """A limit as the fields of the form."""
    return {
        "domain": "" if limit.name == TRANSPORT else limit.name,
        "mails_per_second": str(limit.mails_per_s or "").removesuffix(".0"),
        "connections": str(limit.connections or ""),
        "etag": f"{limit.mails_per_s} {limit.connections}",
    }
