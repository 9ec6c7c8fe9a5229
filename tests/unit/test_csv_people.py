"""Rows become people: columns, attributes, and reasons why not."""

from __future__ import annotations

import io

import pytest

from postroom.domain.address import parse_address
from postroom.domain.csv_rows import BadRow
from postroom.domain.errors import BadInput
from postroom.importing.csv_people import (
    COLUMNS_MAX,
    NAME_CHARS_MAX,
    People,
    Person,
    attribute_names,
    columns_of,
    csv_sample,
)


def people(text: str, **wanted: str) -> list[Person | BadRow]:
    return [row for row in People(iter(io.StringIO(text, newline="")), wanted) if row]


def test_headings_become_attribute_names() -> None:
    header = ["First Name", "Größe", "first-name", "2024", "имя", "x" * 60, "naïve (€)"]
    assert attribute_names(header) == [
        "first_name",
        "grosse",
        "first_name_2",
        "column_2024",
        "column_5",
        "x" * 40,
        "naive",
    ]


@pytest.mark.parametrize("heading", ["email", "E-Mail", " Email Address ", "MAIL", "e_mail"])
def test_the_column_of_addresses_is_known_by_its_usual_names(heading: str) -> None:
    [ada] = people(f"name,{heading}\nAda,ada@contoso.edu\n")
    assert ada == Person(2, parse_address("ada@contoso.edu"), {"name": "Ada"})


def test_a_column_can_be_named_by_the_caller() -> None:
    [ada] = people("Contact,Given\nada@contoso.edu,Ada\n", email="Contact", name="given")
    assert isinstance(ada, Person)
    assert (ada.address.typed, ada.attributes) == ("ada@contoso.edu", {"name": "Ada"})


def test_a_column_named_by_the_caller_pushes_the_other_of_that_name_aside() -> None:
    columns = columns_of(["email", "work"], {"email": "work"})
    assert columns.email == 1
    assert columns.attributes == ((0, "email_2"),)


@pytest.mark.parametrize(
    ("text", "wanted", "complaint"),
    [
        ("", {}, "empty"),
        ("\n \n", {}, "empty"),
        ("name,city\n", {}, "no column named email. The columns are: name, city"),
        ("ada@contoso.edu,Ada\n", {}, "first row must contain the column names"),
        ("email\n", {"email": "Mail"}, "no column “Mail”"),
    ],
)
def test_a_file_without_the_right_header_is_refused(
    text: str, wanted: dict[str, str], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        people(text, **wanted)


def test_one_bad_row_does_not_stop_the_rest() -> None:
    found = people(
        "email,name\n"
        "ada@contoso.edu,Ada\n"
        "nobody,x\n"
        "\n"
        "bob@contoso.edu,Bob,left over\n"
        f"carol@contoso.edu,{'x' * 501}\n"
        "dora@contoso.edu\n"
        "erin@contoso.edu,Erin,,\n"
    )
    good = [one.address.typed for one in found if isinstance(one, Person)]
    bad = [(one.line, one.value) for one in found if isinstance(one, BadRow)]
    assert good == ["ada@contoso.edu", "dora@contoso.edu", "erin@contoso.edu"]
    assert bad == [(3, "nobody"), (5, "bob@contoso.edu"), (6, "carol@contoso.edu")]


def test_a_line_break_in_a_value_becomes_a_space() -> None:
    [ada] = people('email,address\nada@contoso.edu,"1 Main St\r\nTown"\n')
    assert isinstance(ada, Person)
    assert ada.attributes == {"address": "1 Main St Town"}


def test_our_own_export_shows_who_unsubscribed_and_who_never_confirmed() -> None:
    found = people(
        "email,subscription,since,city\n"
        "a@contoso.edu,verified,2026-11-15,Köln\n"
        "b@contoso.edu,unverified,2026-11-15,\n"
        "c@contoso.edu,bounced,2026-11-15,\n"
    )
    assert [(one.verified, one.inactive_reason) for one in found if isinstance(one, Person)] == [
        (True, ""),
        (False, ""),
        (True, "bounced"),
    ]
    assert isinstance(found[0], Person)
    assert found[0].attributes == {"city": "Köln"}


@pytest.mark.parametrize("word", ["left", "cleaned", "no"])
def test_an_unknown_subscription_is_refused_because_it_may_mean_unsubscribed(word: str) -> None:
    [bad] = people(f"email,subscription\na@contoso.edu,{word}\n")
    assert isinstance(bad, BadRow)
    assert f"“{word}” is unknown in the column “subscription”." in bad.reason


def test_a_subscription_is_understood_however_it_is_capitalized() -> None:
    [one] = people("email,subscription\na@contoso.edu, Unsubscribed \n")
    assert isinstance(one, Person)
    assert one.inactive_reason == "unsubscribed"


def test_an_address_that_an_export_had_to_guard_is_the_same_person() -> None:
    [one] = people("email\n'+ada@contoso.edu\n")
    assert isinstance(one, Person)
    assert one.address.typed == "+ada@contoso.edu"


def test_equal_headings_are_numbered_in_one_pass() -> None:
    """A hundred thousand of them: a search among those before would take hours."""
    names = attribute_names(["Name"] * 100_000)
    assert names[:3] == ["name", "name_2", "name_3"]
    assert len(set(names)) == 100_000


def test_a_numbered_name_is_taken_only_once() -> None:
    assert attribute_names(["a", "a_2", "a", "a", "", "column", "column"]) == [
        *("a", "a_2", "a_3", "a_4", "column_5", "column", "column_2"),
    ]


def test_the_names_of_as_many_equal_headings_as_fit_are_not_too_long() -> None:
    names = attribute_names(["x" * 60] * COLUMNS_MAX)
    assert max(map(len, names)) <= NAME_CHARS_MAX


def test_a_file_with_too_many_columns_is_refused() -> None:
    header = "email" + ",a" * COLUMNS_MAX
    with pytest.raises(BadInput, match="1,004 columns"):
        people(f"{header}\n")
    with pytest.raises(BadInput, match="1,004 columns"):
        csv_sample(iter(io.StringIO(f"email\n{header}\n", newline="")), 6)
