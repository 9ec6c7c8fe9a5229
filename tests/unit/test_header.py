"""Header lines: a parser reads back what was typed, or it is refused."""

from __future__ import annotations

from email.header import decode_header, make_header

import pytest

from postroom.domain.address import Mailbox, parse_address
from postroom.mail.header import (
    BadHeader,
    check_custom_header,
    list_id,
    mailbox,
    structured,
    unstructured,
)

NEWS = parse_address("news@contoso.edu")


def value_of(line: bytes) -> str:
    """What a reader of RFC 5322 and 2047 sees of a header line."""
    assert line.endswith(b"\r\n")
    unfolded = line[:-2].replace(b"\r\n", b"").decode("ascii")
    raw = unfolded.partition(":")[2].removeprefix(" ")
    return str(make_header(decode_header(raw)))


def physical_lines(line: bytes) -> list[bytes]:
    return line[:-2].split(b"\r\n")


def test_plain_text_is_not_encoded() -> None:
    assert unstructured("Subject", "New lecture series") == b"Subject: New lecture series\r\n"


def test_an_empty_value_leaves_a_header_without_text() -> None:
    assert unstructured("Subject", "") == b"Subject:\r\n"


@pytest.mark.parametrize(
    "text",
    [
        "Größe und Maß",
        "新しい講義シリーズ" * 20,
        "🎓" * 60,
        "a" * 400 + "é",
        "word " * 60 + "end",
        "two  spaces   and    more " * 6 + "end",
        " leading",
        "trailing ",
        "   ",
        "=?utf-8?q?hello=0ABcc:_evil@x.example?=",
        "=?utf-8?b?aGVsbG8=?=",
        "before =?utf-8?q?x?= after",
        "=?",
        "a=?b",
        "under_score = question? mark",
        "x" * 1500,
    ],
)
def test_any_text_survives_encoding(text: str) -> None:
    line = unstructured("Subject", text)
    assert value_of(line) == text
    assert max(map(len, physical_lines(line))) <= 998


@pytest.mark.parametrize("text", ["Größe " * 50, "新しい講義" * 40, "🎓x" * 60])
def test_encoded_words_are_short_whole_and_one_per_line(text: str) -> None:
    lines = physical_lines(unstructured("Subject", text))
    assert len(lines) > 1
    assert all(len(line) <= 76 for line in lines)
    words = [line.removeprefix(b"Subject: ").strip() for line in lines]
    assert all(len(word) <= 75 for word in words)
    # Each word alone decodes: no character is cut in two (RFC 2047 5 (3)).
    assert "".join(str(make_header(decode_header(word.decode()))) for word in words) == text


def test_the_shorter_encoding_is_chosen() -> None:
    assert b"?q?" in unstructured("Subject", "Mostly plain text with one ü")
    assert b"?b?" in unstructured("Subject", "新しい講義シリーズ")


def test_long_plain_text_is_folded_at_its_spaces() -> None:
    lines = physical_lines(unstructured("Subject", "word " * 60 + "end"))
    assert len(lines) > 1
    assert all(len(line) <= 78 and line.strip() for line in lines)


@pytest.mark.parametrize(
    "control",
    ["\r", "\n", "\r\n", "\0", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\ud800"],
)
def test_controls_are_refused_and_never_stripped(control: str) -> None:
    text = f"Hello{control}Bcc: evil@x.example"
    for refused in (
        lambda: unstructured("Subject", text),
        lambda: structured("Feedback-ID", text),
        lambda: mailbox("From", Mailbox(text, NEWS)),
        lambda: list_id(text, "news.contoso.edu"),
        lambda: check_custom_header("X-Note", text),
    ):
        with pytest.raises(BadHeader, match=r"U\+"):
            refused()


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("", b"From: news@contoso.edu\r\n"),
        ("History News", b"From: History News <news@contoso.edu>\r\n"),
        ("Dept., History", b'From: "Dept., History" <news@contoso.edu>\r\n'),
        ('The "Dept" \\', b'From: "The \\"Dept\\" \\\\" <news@contoso.edu>\r\n'),
        ("Maria Große", b"From: =?utf-8?q?Maria_Gro=C3=9Fe?= <news@contoso.edu>\r\n"),
        ("=?a?q?b?=", b"From: =?utf-8?b?PT9hP3E/Yj89?= <news@contoso.edu>\r\n"),
        ("evil@x.example", b'From: "evil@x.example" <news@contoso.edu>\r\n'),
    ],
)
def test_a_name_is_written_as_its_characters_need(name: str, written: bytes) -> None:
    assert mailbox("From", Mailbox(name, NEWS)) == written


def test_a_long_name_is_encoded_and_the_address_stays_whole() -> None:
    line = mailbox("From", Mailbox("Department, of History " * 8, NEWS))
    assert physical_lines(line)[-1].endswith(b"<news@contoso.edu>")
    assert all(len(part) <= 78 for part in physical_lines(line))
    assert b'"' not in line


def test_a_sender_outside_ascii_is_refused() -> None:
    with pytest.raises(BadHeader, match="ASCII"):
        mailbox("From", Mailbox("", parse_address("müller@contoso.edu")))


def test_a_list_id_has_a_name_for_people_and_an_identifier() -> None:
    assert list_id("Weekly news", "weekly.contoso.edu") == (
        b"List-Id: Weekly news <weekly.contoso.edu>\r\n"
    )
    assert list_id("", "weekly.contoso.edu") == b"List-Id: <weekly.contoso.edu>\r\n"


@pytest.mark.parametrize(
    "identifier", ["", "weekly", "a b.example", "a>.example", "a\r\nb.example", "x." * 128 + "y"]
)
def test_an_identifier_that_filters_cannot_read_is_refused(identifier: str) -> None:
    with pytest.raises(BadHeader, match="List-Id"):
        list_id("Weekly", identifier)


def test_a_structured_header_keeps_a_long_url_whole() -> None:
    url = "https://lists.contoso.edu/u/" + "a" * 300
    line = structured(
        "List-Unsubscribe", f"<{url}>, <mailto:leave@contoso.edu?subject=unsubscribe>"
    )
    assert f"<{url}>,".encode() in line
    assert b"=?" not in line
    assert len(physical_lines(line)) == 2


@pytest.mark.parametrize("value", ["x" * 1000, "größe", " x", "x "])
def test_a_structured_header_takes_only_what_needs_no_encoding(value: str) -> None:
    with pytest.raises(BadHeader):
        structured("Feedback-ID", value)


@pytest.mark.parametrize("name", ["", "X Note", "X:Note", "X-Nöte", "X-Note\r\nBcc", "x" * 51])
def test_a_name_that_is_no_header_name_is_refused(name: str) -> None:
    for refused in (
        lambda: unstructured(name, "x"),
        lambda: structured(name, "x"),
        lambda: check_custom_header(name, "x"),
    ):
        with pytest.raises(BadHeader, match="name"):
            refused()


@pytest.mark.parametrize(
    "name",
    [
        *("From", "to", "CC", "Bcc", "Date", "Message-ID", "Subject", "MIME-Version", "Sender"),
        *("DKIM-Signature", "Received", "Return-Path", "Content-Type", "content-foo"),
        *("List-Unsubscribe", "List-Id", "Resent-To", "ARC-Seal", "Precedence", "Reply-To"),
    ],
)
def test_reserved_headers_cannot_be_added(name: str) -> None:
    with pytest.raises(BadHeader, match=name):
        check_custom_header(name, "x")


def test_a_custom_header_is_accepted_up_to_its_limit() -> None:
    check_custom_header("X-Campaign", "Größe, 50 %")
    with pytest.raises(BadHeader, match="over 2000"):
        check_custom_header("X-Campaign", "x" * 2001)


def test_the_longest_name_leaves_room_for_the_widest_character() -> None:
    lines = physical_lines(unstructured("X" * 50, "🎓" * 10))
    assert all(len(line) <= 76 for line in lines)
