"""The requirements files are the lock: exact, hashed, in step with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNTIME, DEV = "requirements.txt", "requirements-dev.txt"
UV, NODE = "requirements-uv.txt", "requirements-node.txt"
AZURE = "deploy/requirements.txt"
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;\\]+)")


def unpinned(text: str) -> list[str]:
    """Requirements without an exact version or without a hash."""
    whole = text.replace("\\\n", " ").splitlines()
    lines = [line for line in whole if line.strip() and not line.lstrip().startswith("#")]
    return [line for line in lines if not PIN.match(line) or "--hash=sha256:" not in line]


def pins(text: str) -> dict[str, str]:
    return {found["name"]: found["version"] for found in PIN.finditer(text)}


def wanted(*groups: str, extras: tuple[str, ...] = ()) -> Iterator[str]:
    """The names pyproject.toml asks for itself, and by these dependency groups and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = list(project["project"]["dependencies"])
    for extra in extras:
        asked += project["project"]["optional-dependencies"][extra]
    for group in groups:
        asked += [item for item in project["dependency-groups"][group] if isinstance(item, str)]
    for requirement in asked:
        yield re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


def locked(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [RUNTIME, DEV, UV, NODE, AZURE])
def test_every_requirement_is_exact_and_hashed(name: str) -> None:
    assert unpinned(locked(name)) == []
    assert pins(locked(name))


def test_whatever_pyproject_asks_for_is_locked() -> None:
    assert set(wanted("build")) <= set(pins(locked(RUNTIME))), "run ./dev lock"
    asked = wanted("build", "dev", extras=("azure", "otel"))
    assert set(asked) <= set(pins(locked(DEV))), "run ./dev lock"


def test_serving_after_testing_changes_no_version() -> None:
    for name in (RUNTIME, AZURE):
        assert pins(locked(name)).items() <= pins(locked(DEV)).items()


@pytest.mark.parametrize("line", ["idna", "idna>=3", "idna==3.20", "-i https://localhost/simple"])
def test_a_loose_requirement_is_found(line: str) -> None:
    assert unpinned(f"{line}\n    # via postroom\n") == [line]
