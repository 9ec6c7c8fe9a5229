"""What the signer writes, dkimpy verifies: whatever an email looks like, and only unchanged."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.domain.address import parse_address, parse_mailbox
from postroom.mail.dkim import SIGNED, DkimSigner, canonical_body
from postroom.mail.mime import MailParts, compile_mail
from tests.dkim_keys import ed25519_key, rsa_key, verifies, verifies_ed25519

KEY = rsa_key()
SIGNER = DkimSigner([KEY])
BOTH = DkimSigner([ed25519_key(), KEY])
PLAIN = b"From: News <news@contoso.edu>\r\nSubject: Lectures\r\n\r\nRoom 7.\r\n"

# Signing takes a third of a millisecond and verifying with dkimpy eight; a busy machine, longer.
thoroughly = settings(max_examples=60, deadline=None)

words = st.text('abcÄ~ \t;:<>=."', max_size=30).map(lambda text: text.encode())
folded = st.lists(words, min_size=1, max_size=4).map(
    lambda lines: b"\r\n\t ".join(line or b"x" for line in lines)
)
names = st.sampled_from([*SIGNED[1:], "X-Other", "subject", "LIST-ID", "Precedence"])
header_lines = st.builds(lambda name, value: name.encode() + b":" + value, names, folded)
body_lines = st.text("ab.\t =Ä", max_size=40).map(lambda text: text.encode() + b"\r\n")
bodies = st.lists(body_lines | st.just(b"\r\n"), max_size=12).map(b"".join)


def signed(source: bytes, signer: DkimSigner = SIGNER) -> bytes:
    return signer.sign(source) + source


@thoroughly
@given(st.lists(header_lines, max_size=12), st.lists(header_lines, max_size=4), bodies)
@example([], [], b"")
@example([b"Subject: \t"], [b"To:\r\n a@b"], b" \t\r\n\r\n \r\n")
def test_any_email_verifies(above: list[bytes], below: list[bytes], body: bytes) -> None:
    lines = [*above, b"From: News <news@contoso.edu>", *below, b""]
    assert verifies(signed(b"\r\n".join(lines) + b"\r\n" + body), KEY)


fields = st.text(max_size=30)
templates = st.lists(
    st.text(max_size=60) | st.sampled_from(["{{ name }}", "  ", "\t", "\n", " \n", ".", "\n."]),
    max_size=12,
).map(lambda parts: "x" + "".join(parts).replace("\x00", ""))


@thoroughly
@given(templates, fields, st.booleans(), st.booleans())
def test_our_own_renditions_verify(text: str, name: str, html: bool, eight_bit: bool) -> None:
    try:
        compiled = compile_mail(
            MailParts(
                sender=parse_mailbox("Fakultät für Geschichte <news@contoso.edu>"),
                subject="Vorlesungen für {{ name }}, this week and the next, in room 7 as always",
                html=f"<p>{text}</p>" if html else None,
                text=text,
                list_id=("News", "news.contoso.edu"),
                feedback_id="1:news:list:postroom",
            )
        )
    except ValueError:
        return  # not a template that can be sent
    source = compiled.splice(
        parse_address("student1@contoso.edu"),
        {"name": name},
        message_id="<1@contoso.edu>",
        date="Wed, 18 Nov 2026 00:00:00 +0000",
        unsubscribe_url="https://lists.contoso.edu/u/news/1",
        eight_bit=eight_bit,
    ).source
    assert verifies(signed(source), KEY)


@given(st.binary(max_size=60).map(lambda body: body.replace(b"\r", b"").replace(b"\n", b"\r\n")))
@example(b"a \t\tb  \r\n \r\n\r\n")
def test_the_fast_canonical_form_is_the_one_of_the_rfc(body: bytes) -> None:
    lines = [re.sub(rb"[ \t]+", b" ", line).rstrip(b" ") for line in body.split(b"\r\n")]
    while lines and not lines[-1]:
        lines.pop()
    assert canonical_body(body) == b"".join(line + b"\r\n" for line in lines)


@pytest.mark.parametrize(
    "name", ["From", "Subject", "To", "Reply-To", "List-Unsubscribe", "Content-Type", "Feedback-ID"]
)
def test_nobody_can_add_a_header_that_is_signed(name: str) -> None:
    forged = name.encode() + b": someone@fabrikam.com\r\n"
    source = signed(PLAIN)
    assert verifies(source, KEY)
    assert not verifies(forged + source, KEY)


def test_a_changed_body_or_header_does_not_verify() -> None:
    source = signed(PLAIN)
    assert not verifies(source.replace(b"Room 7", b"Room 8"), KEY)
    assert not verifies(source.replace(b"Lectures", b"Holidays"), KEY)
    assert not verifies(source + b"P.S.\r\n", KEY)


def test_two_algorithms_sign_side_by_side_rsa_first() -> None:
    source = signed(PLAIN, BOTH)
    assert source.count(b"DKIM-Signature:") == 2
    assert verifies(source, KEY, at=0)
    assert verifies_ed25519(source, ed25519_key(), at=1)
    changed = source.replace(b"Lectures", b"Holidays")
    assert not verifies_ed25519(changed, ed25519_key(), at=1)


def test_the_first_of_two_selectors_signs() -> None:
    newer = rsa_key(selector="s2")
    header = DkimSigner([newer, KEY]).sign(PLAIN)
    assert b" s=s2;" in header
    assert b" s=s1;" not in header
    assert verifies(header + PLAIN, newer)


def test_the_signing_domain_is_the_from_domain() -> None:
    signer = DkimSigner([KEY, rsa_key("fabrikam.com")])
    header = signer.sign(PLAIN.replace(b"news@contoso.edu", b"news@Fabrikam.COM"))
    assert b" d=fabrikam.com;" in header


@pytest.mark.parametrize(
    "sender",
    [
        b"News <news@fabrikam.com>",
        b"news@lists.contoso.edu",
        b'"news@contoso.edu" <news@fabrikam.com>',
        b"news@contoso.edu, other@fabrikam.com",
        b"news@contoso.edu\r\nFrom: other@contoso.edu",
        b"",
    ],
)
def test_an_email_from_elsewhere_is_not_signed(sender: bytes) -> None:
    assert SIGNER.sign(b"From: " + sender + b"\r\nSubject: x\r\n\r\ny\r\n") == b""


def test_the_header_lines_are_short_and_carry_no_length() -> None:
    header = BOTH.sign(PLAIN)
    assert max(map(len, header.split(b"\r\n"))) <= 78
    assert b"l=" not in header.replace(b"bl=", b"").split(b" h=")[0]
    assert header.endswith(b"\r\n")
    assert b"\r\n\r\n" not in header
