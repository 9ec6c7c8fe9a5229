"""A mailing list: names that fit into URLs and keys, descriptions of one line."""

from __future__ import annotations

import pytest

from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_description, check_list_name, check_sender


@pytest.mark.parametrize("name", ["contoso1", "A", "history_2026", "x" * 50])
def test_a_name_has_letters_digits_and_underscores(name: str) -> None:
    assert check_list_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 51, "a b", "a-b", "-lists", "a/b", "a#b", "../x", "ümlaut", "a\n", "１"]
)
def test_anything_else_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(BadInput, match="for example contoso1"):
        check_list_name(name)


def test_a_description_is_one_line_without_the_spaces_around_it() -> None:
    assert check_description("  History Department {{ x }} – Grüße ") == (
        "History Department {{ x }} – Grüße"
    )
    assert check_description("") == ""
    assert check_description("x" * 200) == "x" * 200


@pytest.mark.parametrize(
    ("text", "words"), [("x" * 201, "longer than 200"), ("a\nb", "one line"), ("a\x7fb", "control")]
)
def test_a_description_that_cannot_be_a_header_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_description(text)


def test_a_sender_is_a_mailbox_that_every_server_takes() -> None:
    assert check_sender(" Jürgen <j@contoso.edu> ") == "Jürgen <j@contoso.edu>"
    with pytest.raises(BadInput, match="ASCII"):
        check_sender("Jürgen <jürgen@contoso.edu>")
