"""The quick way of writing an email is held against a plain one, byte for byte.

The plain way escapes and encodes every field where it stands, remembers nothing, and searches every
email for long lines and boundaries. Emails are made of what attackers type, and of pieces of the
boundary that the message really has.
"""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.domain.address import parse_address, parse_mailbox
from postroom.mail import mime, rendition
from postroom.mail.header import LINE_OCTETS_MAX
from postroom.mail.merge import BadTemplate, Field, escape, value_of
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.mail.quoted_printable import encode_lines, open_line
from postroom.mail.rendition import SplicedMail

DATE = "Sun, 15 Nov 2026 22:39:00 +0000"
ID = "<0123@contoso.edu>"
URL = "https://lists.contoso.edu/u/news/0123456789abcdef"
BOUNDARY = "\ue000"  # stands for the boundary of the message, which only a compiled one has

literals = st.lists(
    st.sampled_from(
        [
            *("\n", "\n--", "\n--=", "\n--=_", "=", "=_", "--", "a=b", "Grüße", "漢字", " ", "\t"),
            *("<p>x</p>", '<a href="https://x.example/?v=', '">x</a>', "x" * 60, ".", "\n.\n"),
        ]
    )
    | st.text("abc \n=-_&<>é", max_size=8),
    max_size=4,
).map("".join)
fields = st.sampled_from(
    [
        *("{{ a }}", "{{ b }}", '{{ a | default("=_x") }}', '{{ b | default("Zoë") }}'),
        *("{{ email }}", "{{ unsubscribe_url }}"),
    ]
)
templates = st.lists(literals | fields, min_size=1, max_size=7).map("".join)
values = st.none() | st.lists(
    st.sampled_from(
        [
            *("", " ", "Ada", "Grace Hopper", "José", "李雷", "O’Brien", "<b>&\"'", "\r\n", "\n--"),
            *("--", "=", "=_", BOUNDARY, f"--=_{BOUNDARY}", f"=_{BOUNDARY}", f"_{BOUNDARY}"),
            *(f"--=_{BOUNDARY}--", "https://x.example/a?b=c", "x" * 300, "é" * 300, "\x85", "\0"),
        ]
    )
    | st.text(max_size=6),
    max_size=3,
).map("".join)
recipients = st.sampled_from(["ann@contoso.edu", "a+b=c@contoso.edu", "josé@contoso.edu"])


def plain_way(compiled: CompiledMail, given: dict[str, str], to: str, *, eight_bit: bool) -> bytes:
    """The email as joined parts, without anything that makes it quick."""
    everything = {**given, "email": to, "unsubscribe_url": URL}
    head = mime._recipient_headers(parse_address(to), ID, DATE, URL, True)
    head += mime._subject_line(compiled.subject, everything)
    bodies = compiled._bodies

    def layout(encoded: list[list[bytes]], encoding: bytes) -> bytes:
        headers = compiled._mixed_headers(compiled._headers)
        parts = mime._layout(headers, bodies, encoded, encoding)
        return head + b"".join(part for part in parts if isinstance(part, bytes))

    if eight_bit and mime._room_for_values(bodies):
        filled = [
            [_escaped(part, everything).encode() for part in body.segments] for body in bodies
        ]
        source = layout(filled, b"8bit")
        delimiters = len(bodies) + 1 if len(bodies) > 1 else 0
        is_short = max(map(len, source.split(b"\r\n"))) <= LINE_OCTETS_MAX
        if is_short and source.count(b"\r\n--" + mime._boundary(bodies)) == delimiters:
            return source
    quoted = [
        [
            open_line(_escaped(part, everything).encode())
            if isinstance(part, Field)
            else encode_lines(part)
            for part in body.segments
        ]
        for body in bodies
    ]
    return layout(quoted, b"quoted-printable")


def _escaped(part: str | Field, given: dict[str, str]) -> str:
    return part if isinstance(part, str) else escape(value_of(part, given), part.context)


def splice(compiled: CompiledMail, given: dict[str, str], to: str, eight_bit: bool) -> SplicedMail:
    address = parse_address(to)
    return compiled.splice(
        address, given, message_id=ID, date=DATE, unsubscribe_url=URL, eight_bit=eight_bit
    )


def compiled_or_none(subject: str, html: str | None, text: str) -> CompiledMail | None:
    parts = MailParts(
        sender=parse_mailbox("News <news@contoso.edu>"), subject=subject, html=html, text=text
    )
    try:
        return compile_mail(parts)
    except BadTemplate:
        return None  # such as a field where no escaping helps


@pytest.mark.slow
@settings(max_examples=400)
@given(
    html=st.none() | templates,
    text=templates,
    subject=st.sampled_from(["News", "For {{ a }}", "{{ email }}, {{ b }}"]),
    people=st.lists(st.tuples(values, values, recipients), min_size=1, max_size=4),
)
@example("{{ a }}", "\n--={{ a }}", "News", [(f"_{BOUNDARY}", None, "ann@contoso.edu")])
@example("{{ a }}", "\n--{{ a }}=_", "News", [("", None, "ann@contoso.edu")])
@example("{{ a }}{{ b }}", "x", "News", [(f"--=_{BOUNDARY}", BOUNDARY, "ann@contoso.edu")])
@example("x", "\n{{ a }}", "News", [(f"--=_{BOUNDARY}--", None, "ann@contoso.edu")])
def test_the_quick_way_writes_the_same_bytes(
    html: str | None,
    text: str,
    subject: str,
    people: list[tuple[str | None, str | None, str]],
) -> None:
    compiled = compiled_or_none(subject, html, text)
    if compiled is None:
        return
    boundary = mime._boundary(compiled._bodies).decode()
    for a, b, to in people:
        given = {
            name: value.replace(BOUNDARY, boundary[2:])
            for name, value in (("a", a), ("b", b))
            if value is not None
        }
        for eight_bit in (True, False):
            spliced = splice(compiled, given, to, eight_bit)
            assert spliced.source == plain_way(compiled, given, to, eight_bit=eight_bit)
            assert spliced.size == len(spliced.source)
            assert spliced.is_ascii == spliced.source.isascii()


@pytest.mark.slow
@settings(max_examples=200)
@given(templates, templates, values, values)
def test_a_parser_that_is_not_ours_finds_two_parts_and_no_other(
    html: str, text: str, a: str | None, b: str | None
) -> None:
    compiled = compiled_or_none("News", html, text)
    if compiled is None:
        return
    boundary = mime._boundary(compiled._bodies).decode()
    given = {"a": (a or "").replace(BOUNDARY, boundary[2:]), "b": (b or "").replace(BOUNDARY, "")}
    for eight_bit in (True, False):
        source = splice(compiled, given, "ann@contoso.edu", eight_bit).source
        message = email.message_from_bytes(source, policy=email.policy.SMTP)
        assert isinstance(message, EmailMessage)
        parts = [part.get_content_type() for part in message.iter_parts()]
        assert parts == ["text/plain", "text/html"]
        assert message["To"] == "ann@contoso.edu"
        assert [*message.keys()].count("To") == 1
        assert message.get_all("Bcc") is None


def test_values_that_people_share_are_remembered_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendition, "VALUES_KNOWN_MAX", 3)
    compiled = compiled_or_none("News", None, "Dear {{ a }}, {{ email }}")
    assert compiled is not None
    for number in range(20):
        given = {"a": f"person {number % 7}" if number else "x" * 41}
        spliced = splice(compiled, given, "ann@contoso.edu", True)
        assert spliced.source == plain_way(compiled, given, "ann@contoso.edu", eight_bit=True)
        assert compiled._eight_bit is not None
        known = {name: field.known for name, _, field in compiled._eight_bit._fields}
        assert len(known["a"]) <= 3
        assert not known["email"]  # nobody else has this address
