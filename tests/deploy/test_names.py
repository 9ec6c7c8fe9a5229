"""Whatever is published speaks of settings and commands that exist, and makes sound settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from postroom import settings, web, wiring
from postroom.cli.app import app
from postroom.settings import Settings
from tests.deploy.reading import (
    ROLES_BICEP,
    SITE_BICEP,
    UNITS,
    compose,
    image_environment,
    named,
    objects,
    published,
    unit_environment,
    values,
)

SETTING = re.compile(r"POSTROOM_[A-Z]+(?:_[A-Z]+)*")
ROUTE = re.compile(r"/(?:healthz|readyz)\b")


def commands() -> set[str]:
    group: Any = typer.main.get_command(app)
    return set(group.commands)


def strangers(text: str) -> list[str]:
    """Names that look like settings and are none."""
    known = {f"{settings.PREFIX}{name.upper()}" for name in Settings.model_fields}
    return [name for name in SETTING.findall(text) if name.removesuffix("_FILE") not in known]


@pytest.mark.parametrize("path", published(), ids=lambda path: path.name)
def test_every_setting_exists(path: Path) -> None:
    assert strangers(path.read_text(encoding="utf-8")) == []


def test_a_setting_that_does_not_exist_is_found() -> None:
    text = "POSTROOM_URL POSTROOM_TRANSPORT_FILE POSTROOM_SENDERS $POSTROOM_STOP_GRACE"
    assert strangers(text) == ["POSTROOM_SENDERS", "POSTROOM_STOP_GRACE"]


def role_commands() -> list[str]:
    """What is run in containers and units: the first word after the program's name."""
    starts = [values(path.read_text(encoding="utf-8"), "ExecStart")[0].split()[1] for path in UNITS]
    services = compose()["services"].values()
    pods = [each["spec"]["template"]["spec"] for each in objects("Deployment")]
    pods += [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in objects("CronJob")]
    return [
        *starts,
        *(service["command"][0] for service in services if "command" in service),
        *(container["args"][0] for pod in pods for container in pod["containers"]),
        *re.findall(r"args: \['(\w+)'\]", ROLES_BICEP.read_text(encoding="utf-8")),
        *re.findall(r"appCommandLine: '(\w+)'", SITE_BICEP.read_text(encoding="utf-8")),
    ]


def test_every_role_is_a_command() -> None:
    found = role_commands()
    assert len(found) == 4 + 4 + (3 + 1) + (4 + 1)
    assert set(found) == {"serve", "web", "scheduler", "sender", "drain"}
    assert set(found) <= commands()


def environments() -> dict[str, dict[str, str]]:
    """What each role finds in its environment; in the image, on top of the image's own."""
    image = image_environment()
    found = {"image": image}
    for name, service in compose()["services"].items():
        if "environment" in service:
            found[f"compose {name}"] = image | service["environment"]
    found["kubernetes"] = image | named("ConfigMap", "postroom")["data"]
    found["units"] = unit_environment()
    return found


@pytest.mark.parametrize("where", environments())
def test_the_environment_of_a_role_makes_sound_settings(where: str, tmp_path: Path) -> None:
    contents = {"TRANSPORT": "outbox:", "STORAGE": "azure:emulator"}
    ours: dict[str, str] = {}
    for name, value in environments()[where].items():
        if name.startswith(settings.PREFIX):
            ours[name] = value.replace("ACCOUNT.table", "contoso.table")  # yours to fill in
    for kind, content in contents.items():
        if f"POSTROOM_{kind}_FILE" in ours:
            file = tmp_path / kind
            file.write_text(f"{content}\n", encoding="utf-8")
            ours[f"POSTROOM_{kind}_FILE"] = str(file)
    loaded = settings.load(ours, tmp_path / "none.toml")
    assert wiring.check(loaded) == []
    assert loaded.data.is_absolute()


def test_what_is_asked_over_http_exists() -> None:
    routes = Path(web.__file__).parent / "app.py"
    offered = set(ROUTE.findall(routes.read_text(encoding="utf-8")))
    assert offered == {"/healthz", "/readyz"}
    asked = {route for path in published() for route in ROUTE.findall(path.read_text("utf-8"))}
    assert asked == offered
