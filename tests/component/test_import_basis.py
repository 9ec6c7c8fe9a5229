"""Nobody is confirmed without a reason why they may be mailed; it stands in their record."""

from __future__ import annotations

from gettext import NullTranslations
from pathlib import Path

import pytest

from postroom.domain.consent import ALL_CONFIRMED, source_text
from postroom.domain.errors import BadInput
from postroom.domain.texts import Language, Text, speaking
from postroom.importing.job import BASIS_CHARS_MAX, Purpose, check_basis, import_source
from tests.component.typed import Postroom

FAIR = "signed up at the fair"


def imported(postroom: Postroom, *options: str) -> str:
    """What the record of the one person in the file says."""
    Path("people.csv").write_text("email\nada@contoso.edu\n", encoding="utf-8")
    done = postroom("subscriber", "import", "contoso1", "people.csv", *options, "--json")
    assert done.json["added"] == 1
    where = ("mailinglist", "contoso1", "email:ada@contoso.edu")
    return str(postroom("storage", "row", *where, "--json").json["properties"]["Basis"])


def test_the_declared_basis_stands_in_the_record_with_the_name_of_the_file(
    contoso1: Postroom,
) -> None:
    assert imported(contoso1, "--basis", f"  {FAIR}\n") == f"import of people.csv: {FAIR}"


def test_that_all_have_confirmed_is_a_basis_unless_another_is_declared(contoso1: Postroom) -> None:
    told = imported(contoso1, "--verified")
    assert told == "import of people.csv: all of them have confirmed"
    contoso1("list", "delete", "contoso1", "--yes")
    contoso1("list", "create", "contoso1", "--from", "news@contoso.edu")
    assert imported(contoso1, "--verified", "--basis", FAIR) == f"import of people.csv: {FAIR}"


def test_who_is_not_mailed_needs_no_basis_and_one_that_is_too_long_is_refused(
    contoso1: Postroom,
) -> None:
    assert imported(contoso1) == "import of people.csv"
    too_long = ("--basis", "x" * (BASIS_CHARS_MAX + 1))
    ran = contoso1("subscriber", "import", "contoso1", "people.csv", *too_long)
    assert "--basis: This is longer than" in ran.err


@pytest.mark.parametrize("purpose", [Purpose.SUPPRESS, Purpose.KEEP, Purpose.ASK, None])
def test_who_is_not_said_to_have_confirmed_needs_no_basis(purpose: Purpose | None) -> None:
    assert check_basis(" ", purpose) == ""


@pytest.mark.parametrize(
    ("text", "complaint"), [(" \n", "Say why"), ("x" * (BASIS_CHARS_MAX + 1), "longer than")]
)
def test_who_is_said_to_have_confirmed_needs_a_basis(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        check_basis(text, Purpose.CONFIRMED)


def test_the_record_of_who_is_kept_off_without_a_reason_names_the_file_alone() -> None:
    assert import_source("no.csv", "") == "import of no.csv"


@pytest.mark.parametrize("basis", ["", FAIR, ALL_CONFIRMED])
def test_what_is_stored_of_an_import_is_read_as_a_text(basis: str) -> None:
    stored = import_source("people.csv", basis)
    told = source_text(stored)
    assert isinstance(told, Text)
    assert str(told) == stored


class Shouting(NullTranslations):
    """A language like English, only louder; names of places in a text stay."""

    def gettext(self, message: str) -> str:
        return message.replace("import of", "IMPORT OF").replace("all of them", "ALL OF THEM")

    def pgettext(self, context: str, message: str) -> str:
        return message.upper()


@pytest.mark.parametrize(
    ("basis", "told"), [("link", "link"), (ALL_CONFIRMED, "ALL OF THEM have confirmed")]
)
def test_only_a_basis_that_nobody_typed_is_put_into_the_readers_language(
    basis: str, told: str
) -> None:
    with speaking(Language("en-x-loud", Shouting())):
        shown = str(source_text(import_source("people.csv", basis)))
    assert shown == f"IMPORT OF people.csv: {told}"
