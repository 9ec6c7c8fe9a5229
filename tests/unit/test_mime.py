"""Emails as bytes: each header once, the same text in both renditions, no line too long."""

from __future__ import annotations

import email
import email.policy
import email.utils
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from email.message import EmailMessage

import msgspec
import pytest

from postroom.domain.address import Address, parse_address, parse_mailbox
from postroom.domain.message import SUBJECT_CHARS_MAX
from postroom.mail.header import BadHeader
from postroom.mail.merge import BadTemplate, fill
from postroom.mail.mime import BODY_BYTES_MAX, MailParts, compile_mail, format_date, message_id_end

ANN = parse_address("ann@contoso.edu")
DATE = "Sun, 15 Nov 2026 22:39:00 +0000"
ID = "<0123456789abcdef@contoso.edu>"
URL = "https://lists.contoso.edu/u/" + "aB3-_" * 60
PARTS = MailParts(
    sender=parse_mailbox("History Department <news@contoso.edu>"),
    subject="New lecture series",
    html='<p>Dear {{ name | default("friend") }},</p><a href="{{ unsubscribe_url }}">Leave</a>',
    text="Dear {{ name }},\nGrüße\n\n{{ unsubscribe_url }}",
    list_id=("History", "history.contoso.edu"),
)
BOTH = pytest.mark.parametrize("eight_bit", [False, True])


def mail(
    parts: MailParts = PARTS,
    values: Mapping[str, str] | None = None,
    *,
    recipient: Address = ANN,
    url: str | None = URL,
    eight_bit: bool = False,
    one_click: bool = True,
) -> bytes:
    return (
        compile_mail(parts)
        .splice(
            recipient,
            values or {},
            message_id=ID,
            date=DATE,
            unsubscribe_url=url,
            one_click=one_click,
            eight_bit=eight_bit,
        )
        .source
    )


def but(**changes: object) -> MailParts:
    return msgspec.structs.replace(PARTS, **changes)


def parsed(source: bytes) -> EmailMessage:
    message = email.message_from_bytes(source, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def bodies(source: bytes) -> dict[str, str]:
    """The decoded text of every part, by its type."""
    found = {}
    for part in parsed(source).walk():
        if not part.is_multipart():
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            found[part.get_content_type()] = content.decode()
    return found


def header_names(source: bytes) -> list[str]:
    """The names of the headers by their raw lines, without a lenient parser."""
    head = source.partition(b"\r\n\r\n")[0]
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b" ")]
    return [line.partition(b":")[0].decode("ascii") for line in lines]


def check_lines(source: bytes) -> None:
    assert re.search(rb"\r(?!\n)|(?<!\r)\n|\0", source) is None
    assert source.endswith(b"\r\n")
    assert max(map(len, source.split(b"\r\n"))) <= 998


@BOTH
def test_a_mail_has_each_of_its_headers_exactly_once(eight_bit: bool) -> None:
    source = mail(eight_bit=eight_bit)
    check_lines(source)
    assert sorted(header_names(source)) == sorted(
        [
            *("Date", "To", "Message-ID", "Subject", "From", "List-Id", "List-Unsubscribe"),
            *("List-Unsubscribe-Post", "Precedence", "X-Auto-Response-Suppress"),
            *("MIME-Version", "Content-Type"),
        ]
    )
    message = parsed(source)
    assert not message.defects
    assert message["From"] == "History Department <news@contoso.edu>"
    assert (message["To"], message["Date"]) == ("ann@contoso.edu", DATE)
    assert (message["Message-ID"], message["Subject"]) == (ID, "New lecture series")


@BOTH
def test_text_comes_first_and_html_last(eight_bit: bool) -> None:
    source = mail(values={"name": "Ada"}, eight_bit=eight_bit)
    assert parsed(source).get_content_type() == "multipart/alternative"
    assert list(bodies(source).items()) == [
        ("text/plain", f"Dear Ada,\r\nGrüße\r\n\r\n{URL}\r\n"),
        ("text/html", f'<p>Dear Ada,</p><a href="{URL}">Leave</a>\r\n'),
    ]


def test_the_two_renditions_differ_in_bytes_only() -> None:
    values = {"name": "Größe & <b> = \u2603"}
    plain, raw = mail(values=values), mail(values=values, eight_bit=True)
    assert plain.isascii()
    assert not raw.isascii()
    assert bodies(plain) == bodies(raw)
    assert b"Content-Transfer-Encoding: 8bit" in raw
    assert b"Content-Transfer-Encoding: quoted-printable" in plain


def test_quoted_printable_lines_stay_short_whatever_the_values() -> None:
    parts = but(text="x" * 300 + " {{ name }} " + "é=" * 200 + "{{ name }}{{ name }} \n\t\n.\n")
    for length in range(60, 90):
        source = mail(parts, {"name": "n" * length + "= é "})
        body = source.partition(b"\r\n\r\n")[2]
        assert max(map(len, body.split(b"\r\n"))) <= 76
        name = "n" * length + "= é "
        assert bodies(source)["text/plain"] == (
            "x" * 300 + f" {name} " + "é=" * 200 + f"{name}{name} \r\n\t\r\n.\r\n"
        )
        assert re.search(rb"[ \t]\r\n", body) is None


def test_a_mail_with_text_only_has_one_part() -> None:
    source = mail(but(html=None))
    assert parsed(source).get_content_type() == "text/plain"
    assert list(bodies(source)) == ["text/plain"]
    check_lines(source)


def test_the_text_is_made_from_the_html_if_there_is_none() -> None:
    source = mail(but(text=None), {"name": "Ada"})
    assert bodies(source)["text/plain"] == f"Dear Ada,\r\n\r\nLeave <{URL}>\r\n"


@BOTH
def test_the_one_click_url_survives_exactly(eight_bit: bool) -> None:
    assert len(URL) > 300
    source = mail(eight_bit=eight_bit)
    assert f"\r\nList-Unsubscribe: <{URL}>\r\n".encode() in source
    assert b"\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" in source
    assert parsed(source)["List-Unsubscribe"] == f"<{URL}>"


@pytest.mark.parametrize(
    ("url", "one_click", "names"),
    [
        ("https://x.example/u/1", True, ["List-Unsubscribe", "List-Unsubscribe-Post"]),
        ("https://x.example/u/1", False, ["List-Unsubscribe"]),
        ("http://x.example/u/1", True, ["List-Unsubscribe"]),
        (None, True, []),
    ],
)
def test_one_click_is_promised_only_over_https(
    url: str | None, one_click: bool, names: list[str]
) -> None:
    found = header_names(mail(url=url, one_click=one_click))
    assert [name for name in found if name.startswith("List-Un")] == names


def test_a_confirmation_is_marked_as_automatic_and_not_as_bulk() -> None:
    source = mail(but(precedence_bulk=False, auto_submitted=True, list_id=None))
    names = header_names(source)
    assert "Precedence" not in names
    assert b"\r\nAuto-Submitted: auto-generated\r\n" in source
    assert b"\r\nX-Auto-Response-Suppress: OOF, AutoReply\r\n" in source


def test_reply_to_feedback_and_own_headers_are_written() -> None:
    parts = but(
        reply_to=parse_mailbox("Office <office@contoso.edu>"),
        feedback_id="ref1:history:list:postroom",
        headers=(("X-Term", "Frühling"),),
    )
    message = parsed(mail(parts))
    assert message["Reply-To"] == "Office <office@contoso.edu>"
    assert message["Feedback-ID"] == "ref1:history:list:postroom"
    assert message["X-Term"] == "Frühling"


@pytest.mark.parametrize(
    "headers", [(("Bcc", "x@y.example"),), (("X-A", "1"), ("x-a", "2")), (("X-A", "1\r\nBcc: x"),)]
)
def test_own_headers_cannot_double_or_forge_one(headers: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(BadHeader):
        compile_mail(but(headers=headers))


def test_a_subject_is_merged_encoded_and_clipped() -> None:
    parts = but(subject="Für {{ name | default('alle') }}")
    assert parsed(mail(parts, {"name": "Zoë"}))["Subject"] == "Für Zoë"
    assert parsed(mail(parts))["Subject"] == "Für alle"
    long = parsed(mail(parts, {"name": "n" * 1000}))["Subject"]
    assert len(long) == SUBJECT_CHARS_MAX


def test_email_and_unsubscribe_url_are_ours_to_fill() -> None:
    parts = but(html=None, text="{{ email }} {{ unsubscribe_url }}")
    forged = {"email": "evil@x.example", "unsubscribe_url": "https://evil.example/"}
    assert bodies(mail(parts, forged))["text/plain"] == f"ann@contoso.edu {URL}\r\n"


def test_an_address_in_another_script_is_utf8() -> None:
    source = mail(recipient=parse_address("müller@bücher.example"), eight_bit=True)
    assert "\r\nTo: müller@xn--bcher-kva.example\r\n".encode() in source


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"html": "x" * 401}, "a literal line over 400 octets"),
        ({"html": "<p>{{ name }}" + "y" * 300, "values": "n" * 700}, "a value too long for a line"),
        (
            {"html": "{{ name }}{{ name }}{{ name }}", "values": "é" * 200},
            "values that share a line",
        ),
    ],
)
def test_lines_too_long_for_8bit_are_quoted_printable(changes: dict[str, str], why: str) -> None:
    values = {"name": changes.pop("values", "Ada")}
    source = mail(but(**changes), values, eight_bit=True)
    assert source == mail(but(**changes), values), why
    assert source.isascii()
    check_lines(source)


def test_a_value_that_is_the_boundary_cannot_end_a_part() -> None:
    parts = but(html="x\n{{ name }}\ny", text="{{ a }}{{ b }}{{ c }}")
    boundary = re.findall(rb'boundary="([^"]+)"', mail(parts, eight_bit=True))[0].decode()
    for values in (
        {"name": f"--{boundary}"},
        {"name": f"--{boundary}--"},
        {"a": "-", "b": "-=", "c": boundary[1:]},
    ):
        source = mail(parts, values, eight_bit=True)
        assert source.count(f"\r\n--{boundary}".encode()) == 3
        merged = "".join(values.get(name, "") for name in "abc")
        assert bodies(source) == {
            "text/plain": f"{merged}\r\n",
            "text/html": f"x\r\n{values.get('name', '')}\r\ny\r\n",
        }


@BOTH
def test_every_kind_of_line_end_becomes_crlf(eight_bit: bool) -> None:
    source = mail(but(html=None, text="a\rb\nc\r\nd\n\r\n{{ name }}\re"), eight_bit=eight_bit)
    check_lines(source)
    assert bodies(source)["text/plain"] == "a\r\nb\r\nc\r\nd\r\n\r\n\r\ne\r\n"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"html": None, "text": None}, "no body"),
        ({"subject": "x" * 501}, "500 characters"),
        ({"subject": "{{ name"}, "never closed"),
        ({"text": "x" * (BODY_BYTES_MAX + 1)}, "2 MiB"),
        ({"text": "a\n\0"}, "Line 2 has a character that is not allowed in emails"),
        ({"html": "a\ud800"}, "not allowed in emails"),
        ({"html": "<script>{{ name }}</script>"}, "script or style"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_when_compiled(
    changes: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(BadTemplate, match=sentence):
        compile_mail(but(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "a\r\nBcc: x@y.example"},
        {"sender": parse_mailbox("müller@contoso.edu")},
        {"list_id": ("a\nb", "x.y")},
        {"feedback_id": "ä"},
    ],
)
def test_a_header_that_cannot_be_written_is_refused_when_compiled(
    changes: dict[str, object],
) -> None:
    with pytest.raises(BadHeader):
        compile_mail(but(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"message_id": "<a@b.c>\r\nBcc: x@y.example"},
        {"message_id": "a@b.c"},
        {"date": f"{DATE}\r\nBcc: x@y.example"},
        {"unsubscribe_url": "https://x.example/>\r\nBcc: x@y.example"},
        {"unsubscribe_url": "https://x.example/é"},
        {"unsubscribe_url": "javascript:x"},
        {"unsubscribe_url": "https://x.example/" + "a" * 900},
        {"recipient": Address("ann@contoso.edu\r\nBcc: x@y.example", "ann@contoso.edu")},
        {"recipient": Address("ann@contoso.edu, x@y.example", "ann@contoso.edu")},
        {"recipient": Address("ann\u2028@contoso.edu", "ann@contoso.edu")},
    ],
)
def test_values_that_are_not_ours_are_refused_in_headers(
    changes: dict[str, str | Address],
) -> None:
    told: dict[str, object] = {"message_id": ID, "date": DATE, "recipient": ANN, **changes}
    with pytest.raises(BadHeader):
        compile_mail(PARTS).splice(told.pop("recipient"), {}, **told)  # type: ignore[arg-type]


def test_a_message_lists_its_fields() -> None:
    compiled = compile_mail(but(subject="{{ term }}"))
    assert compiled.fields == {"term", "name", "unsubscribe_url"}


def test_a_message_id_ends_in_a_domain_name_and_nothing_else() -> None:
    assert message_id_end("contoso.edu") == "@contoso.edu>"
    with pytest.raises(BadHeader):
        message_id_end("contoso.edu>\r\nBcc: x")


def test_the_structure_of_a_mail_is_what_its_bytes_say() -> None:
    compiled = compile_mail(but(headers=(("X-Term", "Winter"),), feedback_id="1:2:list:contoso"))
    source = email.message_from_bytes(
        compiled.splice(ANN, {}, message_id=ID, date=DATE).source, policy=email.policy.default
    )
    for name, value in compiled.fixed_headers:
        assert source[name] == value
    assert fill(compiled.subject, {}) == source["Subject"]
    text = source.get_body(("plain",))
    assert text is not None
    assert fill(compiled.text, {}).splitlines() == text.get_content().splitlines()


def test_a_date_is_written_in_utc_and_needs_a_zone() -> None:
    moment = datetime(2026, 11, 5, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert format_date(moment) == "Wed, 04 Nov 2026 23:02:03 +0000"
    assert email.utils.parsedate_to_datetime(format_date(moment)).astimezone(UTC) == moment
    with pytest.raises(ValueError, match="zone"):
        format_date(moment.replace(tzinfo=None))
