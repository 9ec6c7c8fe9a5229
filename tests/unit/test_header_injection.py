"""Whatever is typed anywhere, an email has only our headers and shows what was typed.

Mails are read by a parser that is not ours, and their raw lines by a strict reader of ten lines.
"""

from __future__ import annotations

import email
import email.policy
import re
from email.header import decode_header, make_header
from email.message import Message

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.address import Address, BadAddress, Mailbox, parse_address, parse_mailbox
from postroom.domain.errors import BadInput
from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.domain.subscriber import clean_attributes
from postroom.mail.header import BadHeader
from postroom.mail.merge import Field, escape_braces, parse
from postroom.mail.mime import MailParts, compile_mail

HEADERS = sorted(
    [
        *("Date", "To", "Message-ID", "Subject", "From", "List-Id", "List-Unsubscribe"),
        *("List-Unsubscribe-Post", "Precedence", "X-Auto-Response-Suppress", "X-Note"),
        *("MIME-Version", "Content-Type"),
    ]
)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
ANN = parse_address("ann@contoso.edu")
NEWS = parse_address("news@contoso.edu")
URL = "https://lists.contoso.edu/u/" + "t0ken_-" * 40

# What attackers type, glued together with anything else.
_sharp = st.sampled_from(
    [
        *("\r\nBcc: evil@x.example", "\nBcc: evil@x.example", "\r\n\r\n<b>", "\r", "\n", "\0"),
        *("=?utf-8?q?a=0ABcc:_evil@x.example?=", "=?utf-8?b?YQpCY2M6IGV2aWw=?=", "=?", "?="),
        *("\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\ud800", "\t", "  ", " ", '"', "\\"),
        *("<", ">", ",", ";", ":", "@", "(", ")", "--=_", "=\r\n", "=3D", ".", "\r\n.\r\n", "%0A"),
        *("ü", "漢字", "🎓", "e\u0301", "x" * 80, "word " * 20),
    ]
)
hostile = st.lists(_sharp | st.text(max_size=12), max_size=6).map("".join)
# Braces are spelt out in a template, which makes them longer.
subjects = hostile.filter(lambda typed: len(escape_braces(typed)) <= SUBJECT_CHARS_MAX)
examples = settings(max_examples=250)


def spliced(parts: MailParts, values: dict[str, str] | None = None) -> list[bytes]:
    """Both renditions."""
    compiled = compile_mail(parts)
    return [
        compiled.splice(
            ANN,
            values or {},
            message_id="<0123@contoso.edu>",
            date="Sun, 15 Nov 2026 22:39:00 +0000",
            unsubscribe_url=URL,
            eight_bit=eight_bit,
        ).source
        for eight_bit in (False, True)
    ]


def parts(
    *,
    subject: str = "News",
    name: str = "History",
    list_name: str = "List",
    note: str = "x",
    html: str | None = None,
    text: str | None = "Hello",
) -> MailParts:
    return MailParts(
        sender=Mailbox(name, NEWS),
        subject=subject,
        html=html,
        text=text,
        list_id=(list_name, "list.contoso.edu"),
        headers=(("X-Note", note),),
    )


def read(source: bytes) -> Message:
    """The email as another parser reads it, after a strict check of its raw lines."""
    assert re.search(rb"\r(?!\n)|(?<!\r)\n|\0", source) is None
    assert max(map(len, source.split(b"\r\n"))) <= 998
    head = source.partition(b"\r\n\r\n")[0].decode("ascii")
    lines = [line for line in head.split("\r\n") if not line.startswith(" ")]
    names = sorted(line.partition(":")[0] for line in lines)
    message = email.message_from_bytes(source, policy=email.policy.compat32)
    wanted = HEADERS if message.is_multipart() else sorted([*HEADERS, "Content-Transfer-Encoding"])
    assert names == sorted(message.keys()) == wanted
    assert not message.defects
    assert message["List-Unsubscribe"] == f"<{URL}>"
    return message


def decoded(message: Message, name: str) -> str:
    return str(make_header(decode_header(message[name].replace("\r\n", ""))))


def text_of(message: Message, subtype: str = "plain") -> str:
    for part in message.walk():
        if part.get_content_type() == f"text/{subtype}":
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            return content.decode()
    raise AssertionError(f"there is no text/{subtype}")


def refused(typed: str) -> bool:
    return CONTROL.search(typed) is not None


@examples
@given(subjects)
def test_a_subject_is_refused_or_read_as_typed(subject: str) -> None:
    try:
        sources = spliced(parts(subject=escape_braces(subject)))
    except BadHeader:
        assert refused(subject)
        return
    assert not refused(subject)
    for source in sources:
        assert decoded(read(source), "Subject") == subject


@pytest.mark.slow
@examples
@given(subjects)
def test_a_subject_is_safe_for_a_parser_that_decodes_it_itself(subject: str) -> None:
    if refused(subject):
        return
    source = spliced(parts(subject=escape_braces(subject)))[0]
    message = email.message_from_bytes(source, policy=email.policy.default)
    assert len(message.keys()) == len(HEADERS) + 1
    assert message["Bcc"] is None
    # This parser takes the spaces at a value's ends for folding.
    assert message["Subject"].strip() == subject.strip()


@pytest.mark.slow
@examples
@given(hostile)
def test_a_display_name_is_refused_or_read_as_typed(name: str) -> None:
    try:
        sources = spliced(parts(name=name))
    except BadHeader:
        assert refused(name)
        return
    assert not refused(name)
    for source in sources:
        line = read(source)["From"].replace("\r\n", "")
        assert line.endswith("news@contoso.edu" if not name else " <news@contoso.edu>")
        phrase = line.removesuffix("<news@contoso.edu>").removesuffix(" ") if name else ""
        if phrase.startswith('"'):
            assert "=?" not in phrase
            assert re.sub(r"\\(.)", r"\1", phrase[1:-1]) == name
        else:
            assert str(make_header(decode_header(phrase))) == name


@pytest.mark.slow
@examples
@given(hostile, hostile)
def test_list_names_and_custom_headers_inject_no_header(list_name: str, note: str) -> None:
    try:
        sources = spliced(parts(list_name=list_name, note=note))
    except BadHeader:
        assert refused(list_name) or refused(note)
        return
    assert not refused(list_name)
    assert not refused(note)
    for source in sources:
        message = read(source)
        assert message["List-Id"].endswith("<list.contoso.edu>")
        assert decoded(message, "X-Note") == note


@examples
@given(hostile)
def test_an_address_is_refused_or_is_alone_in_its_header(typed: str) -> None:
    for text in (typed, f"{typed}@contoso.edu", f"ann@{typed}contoso.edu", f"x <{typed}>"):
        try:
            address = parse_mailbox(text).address
        except BadAddress:
            continue
        assert not CONTROL.search(address.typed)
        source = (
            compile_mail(parts())
            .splice(
                address, {}, message_id="<0123@contoso.edu>", date="Sun, 15 Nov 2026 22:39:00 +0000"
            )
            .source
        )
        assert f"\r\nTo: {address.typed}\r\n".encode() in source
        assert source.count(b"\r\nTo:") == 1


@examples
@given(hostile)
def test_an_address_that_was_never_parsed_injects_no_header(typed: str) -> None:
    forged = Address(typed, typed)
    try:
        source = (
            compile_mail(parts())
            .splice(
                forged, {}, message_id="<0123@contoso.edu>", date="Sun, 15 Nov 2026 22:39:00 +0000"
            )
            .source
        )
    except BadHeader:
        return
    head = source.partition(b"\r\n\r\n")[0]
    assert len(re.split(rb"\r\n(?! )", head)) == len(HEADERS) - 1  # no URL, but an encoding


HTML = '<p title="{{ v }}">{{ v }}</p>\n<a href="https://x.example/?v={{ v }}">x</a>\n{{ v }}'
TEXT = "Dear {{ v }},\n{{ v }}{{ v }}\nhttps://x.example/?v={{ v }}\n{{ v }}"


@pytest.mark.slow
@examples
@given(hostile)
def test_a_value_changes_no_header_and_reads_the_same_in_both_renditions(value: str) -> None:
    cleaned = CONTROL.sub(" ", value)
    shown = cleaned if value and not value.isspace() else ""
    messages = [
        read(s) for s in spliced(parts(subject="For {{ v }}", html=HTML, text=TEXT), {"v": value})
    ]
    for message in messages:
        assert decoded(message, "Subject") == f"For {shown}"[:SUBJECT_CHARS_MAX]
        lines = text_of(message).split("\r\n")
        assert lines[0] == f"Dear {shown},"
        assert lines[1] == shown + shown
        assert lines[3:] == [shown, ""]
        assert len(text_of(message, "html").split("\r\n")) == 4
    assert text_of(messages[0]) == text_of(messages[1])
    assert text_of(messages[0], "html") == text_of(messages[1], "html")


@pytest.mark.slow
@examples
@given(hostile)
def test_a_body_is_read_as_typed(body: str) -> None:
    typed = re.sub("[\0\ud800-\udfff]", "", body)
    for source in spliced(parts(text=escape_braces(typed))):
        expected = re.sub("\r\n|\r|\n", "\r\n", typed)
        expected += "" if expected.endswith("\r\n") else "\r\n"
        assert text_of(read(source)) == expected


@pytest.mark.slow
@examples
@given(hostile, hostile)
def test_an_accepted_attribute_can_be_merged_by_its_name(name: str, value: str) -> None:
    try:
        kept = clean_attributes({name: value})
    except BadInput:
        return
    if not kept:  # nothing but white space: nothing is stored
        return
    template = f"{{{{ {name} }}}}"
    assert parse(template) == [Field(name)]
    shown = kept.get(name, "")
    for source in spliced(parts(subject=f"a {template} b", text=template), kept):
        assert decoded(read(source), "Subject") == f"a {shown} b"
        assert text_of(read(source)) == f"{shown}\r\n"
