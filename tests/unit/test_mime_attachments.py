"""Emails with attachments: what an independent parser reads is what was attached."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.attachment import clean_name, media_type_of
from postroom.domain.errors import BadInput
from postroom.mail.dkim import DkimSigner, canonical_body
from postroom.mail.mime import CompiledMail, MailParts, compile_mail
from postroom.mail.rendition import SplicedMail
from tests.attached import SMALL, attachments_in, encoded
from tests.dkim_keys import rsa_key, verifies

KEY = rsa_key()
PARTS = MailParts(
    sender=parse_mailbox("History Department <news@contoso.edu>"),
    subject="Lectures for {{ name }}",
    html="<p>Dear {{ name }}, grüße</p>",
    text="Dear {{ name }}\n.\n",
)
names = st.text(min_size=1, max_size=40)
files = st.lists(st.tuples(names, st.binary(min_size=1, max_size=300)), min_size=1, max_size=4)


def with_files(*given: tuple[str, bytes], parts: MailParts = PARTS) -> CompiledMail:
    return compile_mail(msgspec.structs.replace(parts, attachments=encoded(*given)))


def spliced(compiled: CompiledMail, name: str = "Ada") -> SplicedMail:
    return compiled.splice(
        parse_address("ada@contoso.edu"),
        {"name": name},
        message_id="<1@contoso.edu>",
        date="Wed, 18 Nov 2026 00:00:00 +0000",
        eight_bit=True,
    )


def usable(given: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    cleaned = []
    for name, content in given:
        try:
            cleaned.append((clean_name(name), content))
        except BadInput:
            continue
    return cleaned or [("a.pdf", b"x")]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(files, st.text(max_size=20), st.booleans())
def test_any_attachments_arrive_byte_for_byte(
    given: list[tuple[str, bytes]], name: str, has_html: bool
) -> None:
    attached = usable(given)
    parts = PARTS if has_html else msgspec.structs.replace(PARTS, html=None)
    mail = spliced(with_files(*attached, parts=parts), name)
    source = mail.source
    expected = tuple((each, media_type_of(each), content) for each, content in attached)
    assert attachments_in(source) == expected
    assert len(source) == mail.size
    assert source.isascii()
    assert re.search(rb"\r(?!\n)|(?<!\r)\n", source) is None
    assert max(map(len, source.split(b"\r\n"))) <= 998
    tail = mail.tail
    assert b"\r\n." not in tail
    assert canonical_body(tail) == tail
    signature = DkimSigner([KEY]).sign(source.removesuffix(tail), tail)
    assert verifies(signature + source, KEY)


def test_the_bodies_are_the_same_with_and_without_attachments() -> None:
    plain = compile_mail(PARTS).splice(
        parse_address("ada@contoso.edu"),
        {"name": "Ada"},
        message_id="<1@contoso.edu>",
        date="Wed, 18 Nov 2026 00:00:00 +0000",
    )
    source = spliced(with_files(("a.pdf", b"x"))).source
    at = plain.source.index(b"Content-Type: ")
    assert source.startswith(plain.source[:at])
    assert plain.source[at:] in source
    assert not plain.tail


def test_the_attachments_are_one_object_in_all_emails() -> None:
    compiled = with_files(("a.pdf", b"x" * 1000))
    assert spliced(compiled).tail is spliced(compiled, "Bob").tail is compiled.tail


@pytest.mark.parametrize("name", ["x" * 116 + ".pdf", "講" * 116 + ".pdf", "a'b%c*d.pdf"])
def test_long_and_strange_names_arrive(name: str) -> None:
    [(read, _, content)] = attachments_in(spliced(with_files((name, b"x"))).source)
    assert (read, content) == (clean_name(name), b"x") if "*" not in name else (name, b"x")


def test_providers_get_the_content_without_line_ends() -> None:
    attached = encoded(*((name, content) for name, _, content in SMALL))
    assert [each.name for each in attached.files] == [name for name, _, _ in SMALL]
    assert all("\n" not in attached.base64_of(each) for each in attached.files)
