"""Files of others are the ones that were checked in, with their licences, and no more."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from postroom.web.templating import template_environment

ROOT = Path(__file__).parents[2]
FOLDERS = [
    ROOT / "src" / "postroom" / "web" / "static" / "vendor",
    ROOT / "tests" / "browser" / "vendor",
]
LIST = "vendor.toml"


def untrue(folder: Path) -> Iterator[str]:
    """One sentence for every file that is not what the folder's list says."""
    packages = tomllib.loads((folder / LIST).read_text(encoding="utf-8"))["package"]
    listed = {name: sha256 for package in packages for name, sha256 in package["sha256"].items()}
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    yield from (f"{name} is not listed" for name in sorted(found - {LIST} - set(listed)))
    for name, sha256 in listed.items():
        if name not in found:
            yield f"{name} is missing"
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
            yield f"{name} is another one"
    for package in packages:
        if not any(name.startswith("LICENSE") for name in package["sha256"]):
            yield f"{package['name']} has no licence"


@pytest.mark.parametrize("folder", FOLDERS, ids=["pages", "tests"])
def test_every_file_of_others_is_the_one_that_was_checked_in(folder: Path) -> None:
    assert list(untrue(folder)) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=["pages", "tests"])
def test_no_file_of_others_asks_for_a_source_map(folder: Path) -> None:
    asking = [p.name for p in folder.glob("*.min.*") if b"sourceMappingURL" in p.read_bytes()]
    assert asking == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder of others' files to spoil."""
    return Path(shutil.copytree(FOLDERS[1], tmp_path / "vendor"))


def test_a_changed_file_is_found(copy: Path) -> None:
    with (copy / "axe.min.js").open("ab") as file:
        file.write(b"\n")
    assert list(untrue(copy)) == ["axe.min.js is another one"]


def test_a_file_that_is_not_listed_is_found(copy: Path) -> None:
    (copy / "deep").mkdir()
    (copy / "deep" / "more.js").touch()
    assert list(untrue(copy)) == ["deep/more.js is not listed"]


def test_a_file_that_is_missing_is_found(copy: Path) -> None:
    (copy / "axe.min.js").unlink()
    assert list(untrue(copy)) == ["axe.min.js is missing"]


def test_a_package_without_a_licence_is_found(copy: Path) -> None:
    text = (copy / LIST).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith('"LICENSE')]
    (copy / LIST).write_text("\n".join(lines), encoding="utf-8")
    assert "axe-core has no licence" in list(untrue(copy))


# --- Icons ------------------------------------------------------------------------------------

ICON = '{% from "admin/icons.html" import icon %}{{ icon(name) }}'


def test_an_icon_is_an_outline_that_screen_readers_pass_over() -> None:
    drawn = template_environment().from_string(ICON).render(name="check")
    assert drawn.startswith("<svg ")
    assert 'stroke="currentColor"' in drawn
    assert 'aria-hidden="true"' in drawn
    assert '<path d="M5 12l5 5l10 -10"/>' in drawn


def test_an_icon_that_does_not_exist_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(UndefinedError, match="unicorn"):
        template_environment().from_string(ICON).render(name="unicorn")
