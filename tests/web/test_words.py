"""What is stored as a word has a text for people, every one of them."""

from __future__ import annotations

from enum import StrEnum

import pytest
from msgspec.structs import replace

from postroom.domain import access_key, consent, job_status, message, subscriber, user
from postroom.domain.consent import (
    COMMAND_LINE,
    ConsentSource,
    SourceKind,
    by_key,
    by_user,
    source_text,
)
from postroom.domain.message import Books
from postroom.domain.texts import speaking
from postroom.web.admin.account import _browser_name
from postroom.web.labels import STATES, size, word
from tests.web.pseudo import CLOSE, OPEN, PSEUDO

SHOWN = [
    *(access_key.Right, consent.Event, job_status.JobStatus, message.Status),
    *(subscriber.InactiveReason, subscriber.SubscriberFilter, user.Role),
]
KEY = by_key("0123abcd", "").source
USER = by_user("ada@contoso.edu", "").source
FILE = ConsentSource(SourceKind.IMPORT, "people.csv")
SOURCES = {
    "key 0123abcd": KEY,
    "user ada@contoso.edu": USER,
    "user ada@contoso.edu, address changed to eve@contoso.edu": replace(
        USER, new_address="eve@contoso.edu"
    ),
    "key 0123abcd, address changed from eve@contoso.edu": replace(
        KEY, old_address="eve@contoso.edu"
    ),
    "command line, moved to the list contoso2": replace(COMMAND_LINE.source, new_list="contoso2"),
    "user ada@contoso.edu, moved from the list contoso1": replace(USER, old_list="contoso1"),
    "import of people.csv": FILE,
    "import of people.csv: they asked, in 2026: by letter": replace(
        FILE, basis="they asked, in 2026: by letter"
    ),
    "import of people.csv: all of them have confirmed": replace(FILE, all_confirmed=True),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_every_word_that_pages_show_has_a_text(kind: type[StrEnum]) -> None:
    assert all(str(word(each)) for each in kind)


def test_words_that_are_stored_alike_keep_their_own_texts() -> None:
    assert word(job_status.JobStatus.FAILED) is job_status.STATUS_TEXTS[job_status.JobStatus.FAILED]
    assert word(consent.Event.UNSUBSCRIBED) is not word(subscriber.InactiveReason.UNSUBSCRIBED)


def test_the_bar_names_every_part_of_the_books() -> None:
    assert {name for name, _text in STATES} == {*Books.__struct_fields__} - {"doubts"}


@pytest.mark.parametrize("english", SOURCES)
def test_a_source_of_a_consent_is_shown_as_a_text(english: str) -> None:
    text = source_text(SOURCES[english])
    assert str(text) == english
    with speaking(PSEUDO):
        assert str(text).startswith(OPEN)
        assert str(text).endswith(CLOSE)


@pytest.mark.parametrize("kind", SourceKind)
def test_every_kind_of_source_has_a_text(kind: SourceKind) -> None:
    assert str(source_text(ConsentSource(kind)))


@pytest.mark.parametrize(
    ("in_bytes", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
     (5 * 1024**2, "5.0 MiB"), (1024**3, "1.0 GiB")],
)  # fmt: skip
def test_a_size_is_shown_in_the_unit_that_fits(in_bytes: int, words: str) -> None:
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
    assert _browser_name(agent) == words
