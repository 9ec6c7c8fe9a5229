"""Every shape of report is understood: kind, class, reason, recipient and delivery."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.feedback import BounceClass
from postroom.domain.outcome import WORDS_CHARS_MAX
from postroom.feedback.report import Report, read_report
from tests.unit.bounces.mail_shapes import Shape
from tests.unit.bounces.server_shapes import SERVER_SHAPES
from tests.unit.bounces.status_shapes import STATUS_SHAPES
from tests.unit.bounces.text_shapes import TEXT_SHAPES
from tests.unit.bounces.unusual_shapes import UNUSUAL_SHAPES

SHAPES = STATUS_SHAPES + TEXT_SHAPES + SERVER_SHAPES + UNUSUAL_SHAPES
CPU_S_MAX = 20  # for ten megabytes of anything, on a slow machine; usually below one
SUBJECT_CPU_S_MAX = 1  # usually a few milliseconds


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_report_says_what_happened_to_whom(shape: Shape) -> None:
    report = read_report(shape.raw)
    found = report.classification
    assert (report.kind, found.bounce_class, found.reason) == (
        shape.kind,
        shape.bounce_class,
        shape.reason,
    ), found.words
    assert (report.recipient, report.delivery) == (shape.recipient, shape.delivery)
    assert shape.status in (None, found.status)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_line_ends_do_not_matter(shape: Shape) -> None:
    assert read_report(shape.raw.replace(b"\n", b"\r\n")) == read_report(shape.raw)


def test_there_are_enough_shapes() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 40


def is_sound(report: Report) -> bool:
    found = report.classification
    return (
        len(found.words) <= WORDS_CHARS_MAX
        and found.words.isprintable()
        and len(report.recipient) < 400
        and len(report.delivery) in (0, 32, 40)
        and (report.kind is not None or found.bounce_class is BounceClass.IGNORE)
    )


@given(st.binary(max_size=3_000))
def test_no_bytes_make_it_fail(raw: bytes) -> None:
    assert is_sound(read_report(raw))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_no_damage_to_a_report_makes_it_fail(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(SHAPES)).raw[:5_000])
    for _ in range(data.draw(st.integers(1, 6))):
        begin = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(begin, min(len(raw), begin + 200)))
        raw[begin:end] = data.draw(st.binary(max_size=40) | st.sampled_from(SNIPPETS))
    assert is_sound(read_report(bytes(raw)))


SNIPPETS = [
    b"\n\n",
    b"\nContent-Type: multipart/mixed; boundary=x\n\n--x\n",
    b"\nContent-Type: text/html\n\n<<<<<<",
    b"\nContent-Transfer-Encoding: base64\n",
    b"\nContent-Type: text/plain; charset=punycode\n",
    b"=?utf-8?Q?=ZZ?= =?nothing?B?===?=",
    b"\nFinal-Recipient: rfc822;\n",
    b"\nStatus: 5.999.999\n",
    b"\nFeedback-Type: abuse\n",
    b'{"notificationType": [[[[',
]


@pytest.mark.parametrize("charset", [b"iso-8859-12", b"iso-8859-99", b"cp1259"])
def test_a_charset_that_does_not_exist_hides_no_bounce(charset: bytes) -> None:
    report = read_report(
        b"From: MAILER-DAEMON@mx.example\nSubject: Undelivered mail\n"
        b"Content-Type: text/plain; charset=" + charset + b"\n\n"
        b"<ada@mx.example>: 550 5.1.1 user unknown\n"
    )
    assert report.classification.bounce_class is BounceClass.DEAD


HOSTILE = {
    "nested multiparts": b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level)
        for level in range(150_000)
    ),
    "many parts": b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 1_000_000,
    "one header": b"Subject: " + b"x" * 9_000_000,
    "folded header": b"Subject: x\n" + b" y\n" * 3_000_000,
    "no line ends": b"From: mailer-daemon\nSubject: failure notice\n\n" + b"a" * 9_000_000,
    "at signs": b"From: mailer-daemon\nSubject: failure notice\n\n" + b"a@" * 4_000_000,
    "tags": b"From: mailer-daemon\nContent-Type: text/html\n\n" + b"<" * 9_000_000,
    "styles": b"From: mailer-daemon\nContent-Type: text/html\n\n" + b"<style " * 1_000_000,
    "blank lines": b"From: mailer-daemon\nSubject: failure notice\n\n" + b"\n" * 9_000_000,
    "spaces": b"From: mailer-daemon\nSubject: failure notice\n\n" + b" \n" * 4_000_000,
    "groups": b"Content-Type: message/delivery-status\n\n" + b"Action: failed\n\n" * 500_000,
    "codes": b"From: mailer-daemon\nSubject: failure notice\n\n" + b"550-5.1.1 user " * 500_000,
    "references": b"From: mailer-daemon\nReferences: " + b"<abcdefgh@x> " * 700_000,
    "brackets": b'Subject: x\n\n{"notificationType":' + b"[" * 5_000_000 + b"}",
    "encoded words": b"Subject: " + b"=?utf-8?Q?x?= " * 600_000 + b"\n\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mails_take_bounded_time(name: str) -> None:
    began_at = time.process_time()
    assert is_sound(read_report(HOSTILE[name]))
    assert time.process_time() - began_at < CPU_S_MAX


@pytest.mark.parametrize("word", [b"fail", b"deliver"])
def test_a_subject_is_searched_only_up_to_the_length_of_a_real_one(word: bytes) -> None:
    """A single search of it would take seconds, in which no other thread can run."""
    raw = b"From: mailer-daemon\nSubject: " + word * (90_000 // len(word)) + b"\n\nhello\n"
    began_at = time.process_time()
    assert is_sound(read_report(raw))
    assert time.process_time() - began_at < SUBJECT_CPU_S_MAX


def test_a_mail_that_a_parser_fails_on_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raw = b"From: mailer-daemon\nX-Failed-Recipients: " + b"(" * 5_000 + b"\n\nreturned mail\n"
    assert is_sound(read_report(raw))
    assert caplog.text == ""
