"""What people type on one line: any language and emoji, but nothing that ends or turns the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_description, check_postal_address
from postroom.domain.message import check_subject
from postroom.domain.message_template import check_template_title
from postroom.domain.picture import check_alt
from postroom.domain.subscriber import clean_attributes
from postroom.mail.preview_text import check_preview_text

CHECKS: list[Callable[[str], str]] = [
    check_subject,
    check_preview_text,
    check_alt,
    check_template_title,
    check_description,
    check_postal_address,
    lambda text: clean_attributes({"name": text})["name"],
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # a Persian word
        "क्\u200dष",  # a half letter of Hindi
        "👩\u200d💻 News",
        "❤\ufe0f 🇳🇴 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "Hoch\u00adschule",
    ],
)
def test_words_of_all_languages_and_emoji_are_allowed(
    check: Callable[[str], str], text: str
) -> None:
    assert check(text) == text


def test_a_french_subject_may_have_no_break_spaces() -> None:
    assert check_subject("Bonjour\u00a0! 10\u202f000 places") == "Bonjour\u00a0! 10\u202f000 places"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("sign", ["\0", "\x1b", "\x7f", "\x9f", "\u202e", "\u2066", "\ud800"])
def test_what_ends_or_turns_the_line_is_refused(check: Callable[[str], str], sign: str) -> None:
    with pytest.raises(BadInput):
        check(f"a{sign}b")
