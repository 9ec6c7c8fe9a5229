"""`postroom settings …`: every setting with its value and source; some can be changed live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, show
from postroom.cli.session import act_of, work
from postroom.domain.consent import source_text

if TYPE_CHECKING:
    from postroom.actions.change_settings import ShownSetting
    from postroom.wiring import Parts

app = typer.Typer(no_args_is_help=True, help="Settings: show all, change some while Postroom runs.")
Name = Annotated[
    str, typer.Argument(metavar="SETTING", help="Such as senders_max or POSTROOM_SENDERS_MAX.")
]
SOURCES = {"changed": "changed with “postroom settings” or on the settings page"}


@app.command("show")
def show_(
    name: Annotated[
        str, typer.Argument(metavar="[SETTING]", help="Only this one. Default: all.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show settings with their value, source and meaning. Secrets are never shown."""
    from postroom.actions.change_settings import setting_name

    wanted = setting_name(name) if name else ""
    found = [each for each in work(_read) if wanted in ("", each.name)]
    lines = [line for each in found for line in _lines(each, is_alone=bool(wanted))]
    show([_data(each) for each in found], as_json, *lines)


@app.command("set")
def set_(
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    as_json: AsJson = False,
) -> None:
    """Change a setting in all running processes, within seconds."""
    from postroom.actions import change_settings

    known = change_settings.setting_name(name)
    change_settings.checked_value(known, value)

    async def change(parts: Parts) -> list[ShownSetting]:
        await change_settings.change(act_of(parts), parts.settings, {known: value}, None)
        return await _read(parts)

    _show_one(work(change), known, as_json, "All processes use it within seconds.")


@app.command("reset")
def reset(name: Name, as_json: AsJson = False) -> None:
    """Reset a setting to its value in the environment, postroom.toml or the default."""
    from postroom.actions import change_settings

    known = change_settings.setting_name(name)

    async def change(parts: Parts) -> list[ShownSetting]:
        await change_settings.reset(act_of(parts), parts.settings, [known], None)
        return await _read(parts)

    _show_one(work(change), known, as_json, "All processes use it within seconds.")


async def _read(parts: Parts) -> list[ShownSetting]:
    from postroom.actions.change_settings import shown_settings
    from postroom.records import setting_changes
    from postroom.wiring.describing import describe

    changes, _etag = await setting_changes.read(parts.storage.tables)
    return shown_settings(parts.settings, changes, describe(parts.settings))


def _show_one(found: list[ShownSetting], name: str, as_json: bool, hint: str) -> None:
    [shown] = [each for each in found if each.name == name]
    show(_data(shown), as_json, f"{_first_line(shown)}. {hint}")


def _first_line(setting: ShownSetting) -> str:
    value = "(secret, set)" if setting.value is None else setting.value
    source = SOURCES.get(setting.source, setting.source)
    return f"{setting.variable} = {value} ({source})"


def _lines(setting: ShownSetting, *, is_alone: bool) -> list[str]:
    if not is_alone:
        return [_first_line(setting)]
    change = "can be changed while Postroom runs"
    if not setting.is_live:
        change = f"read at start-up; to change it, restart: {', '.join(setting.restart)}"
    lines = [_first_line(setting), f"  {setting.meaning}", f"  {change}"]
    if setting.changed:
        by = source_text(setting.changed.by)
        lines.append(f"  without the change by {by}: {setting.without_change}")
    return lines


def _data(setting: ShownSetting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "live": setting.is_live,
        "secret": setting.is_secret,
        "restart": setting.restart,
        "without_change": setting.without_change,
        "changed_at": setting.changed.at if setting.changed else None,
        "meaning": setting.meaning,
    }
