"""Running instances: which processes run where, and why the number of senders changed."""

from __future__ import annotations

import functools
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from postroom.actions import change_settings
from postroom.domain.errors import BadInput
from postroom.domain.instance import RunningInstance
from postroom.domain.scaling import ScalingChange
from postroom.domain.texts import Text, pgettext
from postroom.records import instances, setting_changes
from postroom.storage.port import Conflict
from postroom.web.admin.admin_request import AdminRequest, Owner, Viewer
from postroom.web.forms import Form
from postroom.web.pages import go

router = APIRouter(prefix="/instances")
PATH = "/admin/instances"
LIMITS = ("senders_min", "senders_max")
CHANGES_SHOWN = 20
ROLE_NAMES = {
    "supervisor": pgettext("a process is the", "supervisor"),
    "web": pgettext("a process is the", "web role"),
    "scheduler": pgettext("a process is the", "scheduler"),
    "sender": pgettext("a process is the", "sender"),
}


class SeenInstance(NamedTuple):
    instance: RunningInstance
    role: Text | str


class SeenChange(NamedTuple):
    host: str
    change: ScalingChange


@router.get("")
async def index(request: Viewer) -> Response:
    return await _index(request, await _form_as_stored(request))


@router.post("/senders")
async def set_limits(request: Owner) -> Response:
    """Change the smallest and the largest number of senders of a machine."""
    form = await request.form()
    for name in LIMITS:
        form.take(name, functools.partial(change_settings.checked_value, name))
    if not form.is_good:
        return await _index(request, form, status=422)
    values = {name: form.value(name) for name in LIMITS}
    settings = request.context.settings
    try:
        await change_settings.change(request.act(), settings, values, form.value("etag"))
    except BadInput as error:
        form.mistakes["senders_max"] = str(error)
        return await _index(request, form, status=422)
    except Conflict:
        stored = await _form_as_stored(request)
        if form.show_others({name: stored.value(name) for name in LIMITS}, stored.value("etag")):
            return await _index(request, form, status=409)
    return go(PATH, "senders-set")


async def _form_as_stored(request: AdminRequest) -> Form:
    changes, etag = await setting_changes.read(request.tables)
    now = change_settings.merged(request.context.settings, changes)
    return Form({name: str(getattr(now, name)) for name in LIMITS} | {"etag": etag})


async def _index(request: AdminRequest, form: Form, status: int = 200) -> Response:
    found = await instances.running(request.tables, request.now())
    changes = [SeenChange(each.host, change) for each in found for change in each.changes]
    changes.sort(key=lambda seen: seen.change.at, reverse=True)
    return request.show(
        "instances/index.html",
        status,
        instances=[SeenInstance(each, ROLE_NAMES.get(each.role, each.role)) for each in found],
        supervisors=[each for each in found if each.limits],
        senders=sum(each.role == "sender" for each in found),
        changes=changes[:CHANGES_SHOWN],
        form=form,
    )
