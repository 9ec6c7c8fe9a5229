"""What is stored as a word has a text for people, every one of them."""

from __future__ import annotations

from enum import StrEnum

import pytest

from postroom.domain import access_key, consent, job_status, message, subscriber, user
from postroom.domain.consent import by_key, by_user, source_text
from postroom.domain.message import Books
from postroom.domain.texts import Text, speaking
from postroom.web.admin.account import _browser
from postroom.web.labels import STATES, size, word
from tests.web.pseudo import CLOSE, OPEN, PSEUDO

SHOWN = [
    *(access_key.Right, consent.Event, job_status.JobStatus, message.Status),
    *(subscriber.InactiveReason, subscriber.SubscriberFilter, user.Role),
]
SOURCES = [
    *("command line", "confirmation mail", "form", "import", "link", "not confirmed in time"),
    *("one-click", by_key("0123abcd", "").source, by_user("ada@contoso.edu", "").source),
    "user ada@contoso.edu, changed to eve@contoso.edu",
    "key 0123abcd, changed from eve@contoso.edu",
    "command line, to the list contoso2",
    "user ada@contoso.edu, from the list contoso1",
    "import of people.csv: they asked, in 2026: by letter",
]


@pytest.mark.parametrize("kind", SHOWN)
def test_every_word_that_pages_show_has_a_text(kind: type[StrEnum]) -> None:
    assert all(str(word(each)) for each in kind)


def test_words_that_are_stored_alike_keep_their_own_texts() -> None:
    assert word(job_status.JobStatus.FAILED) is job_status.STATUS_TEXTS[job_status.JobStatus.FAILED]
    assert word(consent.Event.LEFT) is not word(subscriber.InactiveReason.LEFT)


def test_the_bar_names_every_part_of_the_books() -> None:
    assert {name for name, _text in STATES} == {*Books.__struct_fields__} - {"doubts"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_ours_is_a_text_that_says_in_english_what_is_stored(source: str) -> None:
    text = source_text(source)
    assert isinstance(text, Text)
    assert str(text) == source
    with speaking(PSEUDO):
        assert str(text).startswith(OPEN)
        assert str(text).endswith(CLOSE)


def test_any_other_source_stands_as_it_is() -> None:
    assert source_text("a letter of 1998") == "a letter of 1998"


@pytest.mark.parametrize(
    ("in_bytes", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
     (5 * 1024**2, "5.0 MiB"), (1024**3, "1.0 GiB")],
)  # fmt: skip
def test_a_size_is_told_in_the_unit_that_fits(in_bytes: int, words: str) -> None:
    assert str(size(in_bytes)) == words


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko Firefox/130.0", "Firefox · Linux"),
        ("Mozilla/5.0 (Macintosh) Chrome/130 Safari/537 Edg/130", "Edge · Mac"),
        ("Opera on something", ""),
        ("curl/8 (Windows)", "Windows"),
    ],
)
def test_a_browser_is_named_as_far_as_it_says(agent: str, words: str) -> None:
    assert _browser(agent) == words
