"""The beginning of a file, and columns that a person chose."""

from __future__ import annotations

import io

import pytest

from postroom.domain.csv_rows import csv_text
from postroom.domain.errors import BadInput
from postroom.importing.csv_people import (
    Columns,
    People,
    Person,
    check_column_name,
    csv_sample,
)


def lines(text: str) -> io.StringIO:
    return io.StringIO(text, newline="")


@pytest.mark.parametrize(
    ("text", "email", "has_header", "names"),
    [
        ("email,name\na@b.example,Ada\n", 0, True, ["email", "name"]),
        ("Name;Kontakt\nAda;a@b.example\n", 1, True, ["name", "kontakt"]),
        ("Name;E-Mail;Mail 2\nAda;;x@y.example\n", 1, True, ["name", "e_mail", "mail_2"]),
        ("a@b.example,Ada\nc@d.example,Bob\n", 0, False, ["column_1", "column_2"]),
        ("\n \nemail\n", 0, True, ["email"]),
        ("email\na@b.example,more,\n", 0, True, ["email", "column_2", "column_3"]),
        ("sep=|\nname|mail\nAda|x\n", 1, True, ["name", "mail"]),
    ],
)
def test_what_a_file_seems_to_be(text: str, email: int, has_header: bool, names: list[str]) -> None:
    found = csv_sample(iter(lines(text)), 6)
    assert (found.email, found.has_header, found.names) == (email, has_header, names)


def test_no_more_is_read_than_needed() -> None:
    endless = iter(lambda: "a@b.example\n", "")
    assert len(csv_sample(endless, 6).rows) == 6


@pytest.mark.parametrize("text", ["", "\n\n", " , ,\n"])
def test_a_file_with_nothing_in_it_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="The file is empty"):
        csv_sample(iter(lines(text)), 6)


def test_chosen_columns_need_no_headings() -> None:
    chosen = Columns(1, ((0, "first_name"),), None, 2, has_header=False)
    found = list(People(iter(lines("Ada,ada@b.example\nBob,bob@b.example\n")), {}, chosen))
    assert [(one.address.typed, one.attributes) for one in found if isinstance(one, Person)] == [
        ("ada@b.example", {"first_name": "Ada"}),
        ("bob@b.example", {"first_name": "Bob"}),
    ]


def test_chosen_columns_pass_over_the_headings() -> None:
    chosen = Columns(0, (), None, 2)
    [ada] = People(iter(lines("Wer,Was\nada@b.example,x\n")), {}, chosen)
    assert isinstance(ada, Person)
    assert ada.attributes == {}


@pytest.mark.parametrize("name", ["", "Name", "email", "unsubscribe_url", "since", "subscription"])
def test_names_that_no_column_can_have(name: str) -> None:
    if not name:
        assert check_column_name(" x ") == "x"
        return
    with pytest.raises(BadInput):
        check_column_name(name)


def test_every_cell_of_a_csv_text_is_safe_in_a_spreadsheet() -> None:
    text = csv_text([["=1+1", None, 7], ["a,b", "-x", 'say "hi"']])
    assert text == '\'=1+1,,7\n"a,b",\'-x,"say ""hi"""\n'
