"""Nobody is confirmed without a reason why they may be mailed; it stands in their record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom.domain.errors import BadInput
from postroom.importing.job import BASIS_CHARS_MAX, Purpose, check_basis
from tests.component.typed import Postroom

FAIR = "signed up at the fair"
FILE = {"kind": "import", "name": "people.csv"}


def imported(postroom: Postroom, *options: str) -> dict[str, Any]:
    """The source in the record of the one person in the file."""
    Path("people.csv").write_text("email\nada@contoso.edu\n", encoding="utf-8")
    done = postroom("subscriber", "import", "contoso1", "people.csv", *options, "--json")
    assert done.json["added"] == 1
    where = ("mailinglist", "contoso1", "email:ada@contoso.edu")
    row = postroom("storage", "row", *where, "--json").json["properties"]
    source: dict[str, Any] = json.loads(row["ImportSource"])
    return source


def test_the_declared_basis_is_in_the_record_with_the_name_of_the_file(
    contoso1: Postroom,
) -> None:
    assert imported(contoso1, "--basis", f"  {FAIR}\n") == FILE | {"basis": FAIR}


def test_that_all_have_confirmed_is_a_basis_unless_another_is_declared(contoso1: Postroom) -> None:
    assert imported(contoso1, "--verified") == FILE | {"all_confirmed": True}
    contoso1("list", "delete", "contoso1", "--yes")
    contoso1("list", "create", "contoso1", "--from", "news@contoso.edu")
    assert imported(contoso1, "--verified", "--basis", FAIR) == FILE | {"basis": FAIR}


def test_who_is_not_mailed_needs_no_basis_and_one_that_is_too_long_is_refused(
    contoso1: Postroom,
) -> None:
    assert imported(contoso1) == FILE
    too_long = ("--basis", "x" * (BASIS_CHARS_MAX + 1))
    ran = contoso1("subscriber", "import", "contoso1", "people.csv", *too_long)
    assert "--basis: Use at most 220 characters" in ran.err


@pytest.mark.parametrize("purpose", [Purpose.SUPPRESS, Purpose.KEEP, Purpose.ASK, None])
def test_people_not_imported_as_confirmed_need_no_basis(purpose: Purpose | None) -> None:
    assert check_basis(" ", purpose) == ""


@pytest.mark.parametrize(
    ("text", "complaint"), [(" \n", "Say why"), ("x" * (BASIS_CHARS_MAX + 1), "Use at most")]
)
def test_people_imported_as_confirmed_need_a_basis(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        check_basis(text, Purpose.CONFIRMED)
