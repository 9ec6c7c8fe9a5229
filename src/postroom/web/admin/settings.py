"""All settings: their values, where these come from and what they mean; some change live."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from fastapi import APIRouter
from markupsafe import Markup, escape
from starlette.responses import Response

from postroom.actions import change_settings
from postroom.actions.change_settings import LIVE, ShownSetting, shown_settings
from postroom.domain.errors import BadInput
from postroom.domain.texts import Text, pgettext
from postroom.records import setting_changes
from postroom.records.setting_changes import SettingChanges
from postroom.storage.port import Conflict
from postroom.web.admin.admin_request import AdminRequest, Owner
from postroom.web.forms import Form
from postroom.web.pages import go

router = APIRouter(prefix="/settings")
PATH = "/admin/settings"
LEVELS = ["debug", "info", "warning", "error"]
SOURCES = {
    "environment": pgettext("a setting comes from", "environment"),
    "file": pgettext("a setting comes from", "file"),
    "default": pgettext("a setting comes from", "default"),
    "changed": pgettext("a setting was", "changed here"),
}
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_EMPHASIS = re.compile(r"\*([^*]+)\*")


class SettingRow(NamedTuple):
    setting: ShownSetting
    source: Text | str
    meaning: Markup


@router.get("")
async def index(request: Owner) -> Response:
    changes, etag = await setting_changes.read(request.tables)
    return _show(request, changes, Form(_values(request, changes) | {"etag": etag}))


@router.post("")
async def save(request: Owner) -> Response:
    """Change the settings whose values were changed in the form."""
    form = await request.form()
    changes, _etag = await setting_changes.read(request.tables)
    submitted = [name for name in LIVE if name in form.values]
    for name in submitted:
        form.take(name, functools.partial(change_settings.checked_value, name))
    if not form.is_good:
        return _show(request, changes, form, status=422)
    values = {name: form.value(name) for name in submitted}
    settings = request.context.settings
    try:
        await change_settings.change(request.act(), settings, values, form.value("etag"))
    except BadInput as error:
        form.mistake = str(error)
        return _show(request, changes, form, status=422)
    except Conflict:
        changes, etag = await setting_changes.read(request.tables)
        if form.show_others(_values(request, changes), etag):
            return _show(request, changes, form, status=409)
    return go(PATH, "settings-saved")


@router.post("/reset")
async def reset(request: Owner) -> Response:
    """Set one setting back; a second click changes nothing more."""
    form = await request.form()
    name = form.value("reset")
    try:
        await change_settings.reset(request.act(), request.context.settings, [name], None)
    except BadInput as error:  # what it would fall back to contradicts another change
        changes, etag = await setting_changes.read(request.tables)
        form = Form(_values(request, changes) | {"etag": etag})
        form.mistake = str(error)
        return _show(request, changes, form, status=422)
    return go(PATH, "setting-reset")


def _values(request: AdminRequest, changes: SettingChanges) -> dict[str, str]:
    now = change_settings.merged(request.context.settings, changes)
    return {name: _text(getattr(now, name)) for name in LIVE}


def _text(value: object) -> str:
    """A number as people type it: 60, not 60.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show(
    request: AdminRequest, changes: SettingChanges, form: Form, status: int = 200
) -> Response:
    context = request.context
    shown = shown_settings(context.settings, changes, context.setting_descriptions)
    rows = [
        SettingRow(each, SOURCES.get(each.source, each.source), _as_html(each.meaning))
        for each in shown
    ]
    return request.show(
        "settings/index.html",
        status,
        live=[row for row in rows if row.setting.is_live],
        fixed=[row for row in rows if not row.setting.is_live],
        variables={row.setting.name: row.setting.variable for row in rows},
        levels=LEVELS,
        text=_text,
        form=form,
    )


def _as_html(meaning: str) -> Markup:
    """The description of a setting, translated, with its code marked; links become their text."""
    text = str(escape(str(Text(meaning, {}))))
    text = _EMPHASIS.sub(r"<em>\1</em>", _LINK.sub(r"\1", text))
    return Markup(_CODE.sub(r"<code>\1</code>", text))
