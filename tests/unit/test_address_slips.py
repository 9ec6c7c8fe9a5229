"""Slips in addresses: those whose meaning is plain are corrected, and nothing else is guessed."""

from __future__ import annotations

import io

import pytest

from postroom.domain.address import parse_address, readable_address
from postroom.domain.address_typos import domain_meant
from postroom.domain.csv_rows import BadRow
from postroom.importing.csv_people import People, Person


def read(cell: str) -> Person | BadRow:
    quoted = '"' + cell.replace('"', '""') + '"'
    [row] = [row for row in People(iter(io.StringIO(f"email\n{quoted}\n")), {}) if row]
    return row


@pytest.mark.parametrize(
    "cell",
    [
        "mailto:ada@contoso.edu",
        "MAILTO:ada@contoso.edu?subject=Hello",
        "Ada Lovelace <ada@contoso.edu>",
        '"Lovelace, Ada" <ada@contoso.edu>;',
        "<ada@contoso.edu>",
        "<mailto:ada@contoso.edu>",
        "ada@contoso.edu,",
        "ada@contoso.edu.",
        "ada@contoso.edu; ",
        "'ada@contoso.edu'",
    ],
)
def test_a_slip_whose_meaning_is_plain_is_corrected_and_told(cell: str) -> None:
    person = read(cell)
    assert isinstance(person, Person)
    assert person.address.typed == "ada@contoso.edu"
    assert person.corrected_from == cell.strip()


@pytest.mark.parametrize(
    "cell",
    [
        "ada@contoso.edu, bob@contoso.edu",
        "Ada <ada@contoso.edu>, Bob <bob@contoso.edu>",
        "ada@contoso,edu",
        "ada(at)contoso.edu",
        "mailto:",
        "<>",
        ".",
    ],
)
def test_what_may_mean_several_things_is_refused_as_it_stands(cell: str) -> None:
    row = read(cell)
    assert isinstance(row, BadRow)
    assert row.value == cell


def test_an_address_that_is_right_is_not_touched() -> None:
    person = read("o'hara@contoso.edu")
    assert isinstance(person, Person)
    assert (person.address.typed, person.corrected_from) == ("o'hara@contoso.edu", "")


def test_domains_that_look_mistyped_are_distinguished_from_others() -> None:
    assert domain_meant("gmial.com") == "gmail.com"
    for right in ("gmail.com", "gmx.at", "contoso.edu", "yahoo.co.uk"):
        assert domain_meant(right) == ""


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("käthe@müller.example", "käthe@müller.example"),
        ("ada@contoso.edu", "ada@contoso.edu"),
        ("ada@xn--mller-kva.example", "ada@müller.example"),
    ],
)
def test_a_domain_is_shown_in_its_own_script_and_read_back_the_same(typed: str, shown: str) -> None:
    stored = parse_address(typed)
    assert readable_address(stored.typed) == shown
    assert parse_address(shown) == stored


@pytest.mark.parametrize("odd", ["ada@xn--a.example", "ada@xn--zzzzzzzz.example", "no address"])
def test_a_domain_that_stands_for_nothing_is_shown_as_it_is(odd: str) -> None:
    assert readable_address(odd) == odd
