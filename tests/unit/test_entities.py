"""Character references: any text can be read, also one that was made to break a parser."""

from __future__ import annotations

import pytest

from postroom.domain.message import BodyKind
from postroom.feedback.mail_parts import read_mail
from postroom.mail.entities import unescape
from postroom.mail.merge import compile_html
from postroom.writing.body_checks import check_typed

ENDLESS = "&#" + "9" * 5000 + ";"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &amp; b &#8364; &#x20ac;", "a & b € €"),
        (f"a{ENDLESS}b", "a\ufffdb"),
        ("&#0000000065;", "A"),
    ],
)
def test_references_are_read(text: str, expected: str) -> None:
    assert unescape(text) == expected


def test_bodies_with_an_endless_number_are_compiled_and_checked() -> None:
    body = f'<a href="https://x.example/{ENDLESS}{{{{ name }}}}">a</a><img src="{ENDLESS}">'
    assert compile_html(body)
    check_typed(BodyKind.HTML, body, body, ())


def test_a_bounced_mail_with_an_endless_number_is_read() -> None:
    mail = read_mail(f"Content-Type: text/html\r\n\r\n<p>no {ENDLESS} such user".encode())
    assert "such user" in mail.parts[0].text
