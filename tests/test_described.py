"""docs/described-system.md: every statement is there, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from starlette.routing import Route

from postroom.cli.app import app
from postroom.settings import Settings
from postroom.web import admin
from postroom.web.signed_in import ADMIN

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "described-system.md"
# How many statements each section of the audit has; H9 and J10 are not counted.
STATEMENTS = dict(zip("ABCDEFGHIJKLM", (11, 7, 13, 7, 6, 13, 12, 9, 9, 10, 11, 6, 4), strict=True))
NOT_COUNTED = {"H9", "J10"}
MARKS = {"✔", "◐"}
# What another change builds; its author takes the mark away once it is there.
LATER = "<!-- check after merge -->"
STATEMENT = re.compile(r"^\| ([A-M]\d+) \| (.+?) \| (.+) \| (\S+) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


class Statement(NamedTuple):
    number: str
    said: str
    here: str
    mark: str


def statements(text: str) -> list[Statement]:
    return [Statement(*found) for found in STATEMENT.findall(text)]


ALL = statements(PAGE.read_text(encoding="utf-8"))


def strangers(here: str) -> list[str]:
    """Commands, pages and settings that it names and that do not exist."""
    found: list[str] = []
    for code in CODE.findall(here):
        words = code.split()
        if words[0] == "postroom" and not is_command(words[1:]):
            found.append(code)
        if code.startswith("/") and not is_page(code):
            found.append(code)
        for name in re.findall(r"POSTROOM_[A-Z_]+[A-Z]", code):
            fields = Settings.model_fields
            if not any(
                field.startswith(name.removeprefix("POSTROOM_").lower()) for field in fields
            ):
                found.append(name)
    return found


def is_command(words: list[str]) -> bool:
    """Whether they begin with a command, and its options exist."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        words = words[1:]
    options = {option for each in command.params for option in each.opts}
    return (
        not hasattr(command, "commands")
        and {word for word in words if word.startswith("--")} <= options
    )


def is_page(path: str) -> bool:
    if path in {"/healthz", "/readyz"}:
        return True
    routes = [route for module in admin.MODULES for route in module.router.routes]
    pages = [each for each in routes if isinstance(each, Route) and "GET" in (each.methods or ())]
    return any(each.path_regex.match(path.removeprefix(ADMIN)) for each in pages)


def test_every_statement_is_there_once() -> None:
    wanted = [f"{letter}{n}" for letter, count in STATEMENTS.items() for n in range(1, count + 1)]
    assert [each.number for each in ALL] == wanted
    assert len(set(wanted) - NOT_COUNTED) == 116


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.number)
def test_a_statement_names_what_exists(each: Statement) -> None:
    assert each.mark in MARKS or (each.mark == "–" and each.number in NOT_COUNTED)
    if LATER not in each.here:
        assert strangers(each.here) == []


def test_what_does_not_exist_is_found() -> None:
    here = "`postroom storrage rows`, `/admin/nothing`, `POSTROOM_NOTHING`, `postroom list all --x`"
    assert len(strangers(here)) == 4
    assert strangers("`postroom list all --json`, `/admin/lists/contoso1/edit`, `/readyz`") == []
