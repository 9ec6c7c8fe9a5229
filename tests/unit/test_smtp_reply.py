"""What a reply means, by the table of smtp_reply; what an address and an EHLO reply mean."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.outcome import (
    WORDS_CHARS_MAX,
    Deferred,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
)
from postroom.transport.smtp.envelope import ServerExtensions, dotted, parse_offers
from postroom.transport.smtp.reply import Stage, outcome_of
from postroom.transport.smtp.transport import SmtpConfig, Tls, parse_smtp_url

ADDRESS, DOMAIN, PROVIDER = Scope.ADDRESS, Scope.DOMAIN, Scope.PROVIDER
NOT_REACHED = Deferred(scope=PROVIDER, reached=False)


def outcome(reply: str, stage: Stage) -> Outcome:
    return outcome_of(int(reply[:3]), reply.encode(), stage)


@pytest.mark.parametrize(
    ("reply", "stage", "expected"),
    [
        ("250 2.0.0 Ok: queued as 4711", Stage.CONTENT, Sent()),
        ("251 ok", Stage.CONTENT, Sent()),
        # The enhanced code decides.
        ("550 5.1.1 no such user", Stage.RCPT, Rejected(address_fault=True)),
        ("550 5.1.10 null MX", Stage.RCPT, Rejected(address_fault=True)),
        ("550 5.2.1 mailbox disabled", Stage.RCPT, Rejected(address_fault=True)),
        ("554 5.1.1 no such user", Stage.CONTENT, Rejected(address_fault=True)),
        ("550 5.4.4 no route to host", Stage.RCPT, Rejected(address_fault=True)),
        ("550 5.7.1 blocked", Stage.RCPT, Rejected(address_fault=False)),
        ("550 5.7.515 access denied", Stage.CONTENT, Rejected(address_fault=False)),
        ("553 5.1.8 sender domain not found", Stage.RCPT, Rejected(address_fault=False)),
        ("552 5.3.4 mail too big", Stage.CONTENT, Rejected(address_fault=False)),
        ("552 5.2.3 mail too big", Stage.RCPT, Rejected(address_fault=False)),
        ("554 5.6.0 bad content", Stage.CONTENT, Rejected(address_fault=False)),
        ("552 5.2.2 mailbox full", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("452 4.2.2 mailbox full", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("450 4.2.0 greylisted", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("451 4.7.1 slow down", Stage.RCPT, Deferred(scope=DOMAIN)),
        ("421 4.7.0 slow down", Stage.RCPT, NOT_REACHED),
        ("450 4.4.1 no answer from host", Stage.RCPT, Deferred(scope=DOMAIN)),
        ("452 4.3.1 queue full", Stage.CONTENT, Deferred(scope=PROVIDER)),
        # The two codes disagree: temporary wins.
        ("550 4.2.2 mailbox full", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("450 5.1.1 no such user yet", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("550 2.0.0 what", Stage.RCPT, Rejected(address_fault=True)),
        # The basic code alone.
        ("550 no such user", Stage.RCPT, Rejected(address_fault=True)),
        ("550 refused", Stage.CONTENT, Rejected(address_fault=False)),
        ("554 client host blocked", Stage.RCPT, Rejected(address_fault=False)),
        ("552 exceeded storage", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("552 too big", Stage.CONTENT, Rejected(address_fault=False)),
        ("451 local error", Stage.RCPT, Deferred(scope=ADDRESS)),
        ("452 no space", Stage.CONTENT, Deferred(scope=PROVIDER)),
        ("556 takes no mail", Stage.RCPT, Rejected(address_fault=True)),
        # No recipient can be to blame for what MAIL is answered.
        ("550 5.1.1 sender unknown", Stage.MAIL, Rejected(address_fault=False)),
        ("451 4.7.1 slow down", Stage.MAIL, NOT_REACHED),
        ("450 4.2.0 later", Stage.MAIL, NOT_REACHED),
        # A forgotten password is no reason to fail a whole list.
        ("530 5.7.0 authentication required", Stage.MAIL, NOT_REACHED),
        ("530 5.7.0 must issue STARTTLS", Stage.RCPT, NOT_REACHED),
        ("421 closing", Stage.CONTENT, Deferred(scope=PROVIDER)),
    ],
)
def test_a_reply_means_what_the_table_says(reply: str, stage: Stage, expected: Outcome) -> None:
    found = outcome(reply, stage)
    assert found.words == reply
    assert found == msgspec.structs.replace(expected, words=reply)


def test_a_positive_reply_that_ends_nothing_is_never_taken_for_sent() -> None:
    assert isinstance(outcome("354 go on", Stage.CONTENT), Unknown)


def test_a_reply_of_several_lines_becomes_one_line_of_words() -> None:
    reply = "550-5.7.1 We do not like this\r\n550-5.7.1 mail. See\r\n550 5.7.1 https://contoso.edu"
    found = outcome_of(550, reply.encode(), Stage.CONTENT)
    assert found.words == "550-5.7.1 We do not like this mail. See https://contoso.edu"


@given(st.integers(200, 599), st.binary(max_size=400), st.sampled_from(Stage))
def test_whatever_a_server_says_has_an_outcome_with_short_printable_words(
    code: int, text: bytes, stage: Stage
) -> None:
    found = outcome_of(code, b"%d " % code + text, stage)
    assert len(found.words) <= WORDS_CHARS_MAX
    assert found.words.isprintable()
    assert isinstance(found, Sent) == (code < 300 and stage is Stage.CONTENT)


@given(st.integers(400, 599), st.integers(0, 9), st.integers(0, 20), st.sampled_from(Stage))
def test_a_temporary_code_is_never_final(
    code: int, subject: int, detail: int, stage: Stage
) -> None:
    enhanced = 4 if code >= 500 else 5
    assert isinstance(outcome(f"{code} {enhanced}.{subject}.{detail} words", stage), Deferred)


def test_offers_are_read_from_any_case_and_the_old_form_of_auth() -> None:
    lines = ["relay", "pipelining", "CHUNKING", "Size 1000", "AUTH=LOGIN", "auth plain", "8BITMIME"]
    assert parse_offers(lines) == ServerExtensions(
        pipelining=True,
        chunking=True,
        eight_bit=True,
        size=True,
        size_max=1000,
        auth=frozenset({"LOGIN", "PLAIN"}),
    )


@pytest.mark.parametrize("size", ["SIZE", "SIZE 0", "SIZE many", "SIZE ²"])
def test_a_size_that_names_no_limit_is_none(size: str) -> None:
    assert parse_offers(["relay", size]) == ServerExtensions(size=True, size_max=0)


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        (b"a\r\n", b"a\r\n.\r\n"),
        (b"a", b"a\r\n.\r\n"),
        (b"", b".\r\n"),
        (b".\r\n", b"..\r\n.\r\n"),
        (b"a\r\n.b\r\n..\r\n", b"a\r\n..b\r\n...\r\n.\r\n"),
    ],
)
def test_every_line_that_starts_with_a_dot_gets_another(source: bytes, sent: bytes) -> None:
    assert b"".join(dotted(source)) == sent


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://127.0.0.1:25", SmtpConfig("127.0.0.1", 25, Tls.NONE)),
        ("smtp://[::1]:25", SmtpConfig("::1", 25, Tls.NONE)),
        ("smtp://u:p@localhost:1025", SmtpConfig("localhost", 1025, Tls.NONE, "u", "p")),
        ("smtp://relay.contoso.edu", SmtpConfig("relay.contoso.edu", 587, Tls.REQUIRE)),
        ("smtp://relay.contoso.edu:465", SmtpConfig("relay.contoso.edu", 465, Tls.IMPLICIT)),
        ("smtp://relay:25?tls=none", SmtpConfig("relay", 25, Tls.NONE)),
        ("smtp://relay?tls=implicit", SmtpConfig("relay", 465, Tls.IMPLICIT)),
        (
            "smtp://a%40b:p%2Fw%25@relay:587/?ehlo=lists.contoso.edu&ca_file=/etc/ca.pem",
            SmtpConfig(
                "relay", 587, Tls.REQUIRE, "a@b", "p/w%", "lists.contoso.edu", "/etc/ca.pem"
            ),
        ),
    ],
)
def test_an_address_gives_the_settings(url: str, expected: SmtpConfig) -> None:
    assert parse_smtp_url(url) == expected


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://relay", "begin with smtp://"),
        ("relay:25", "begin with smtp://"),
        ("smtp://", "needs a host name"),
        ("smtp://relay:99999", "must look like"),
        ("smtp://relay:0", "from 1 to 65535"),
        ("smtp://user:hush/hush@relay:25", "must look like"),
        ("smtp://user:hush?hush@relay:25", "must look like"),
        ("smtp://user:1/hush@relay:25", "in a password"),
        ("smtp://user@relay:25", "not both"),
        ("smtp://relay:25?tls=maybe", "require, implicit or none"),
        ("smtp://relay:25?hush=1", "are tls, ehlo and ca_file"),
        ("smtp://u:hush@relay:25?tls=none", "unencrypted"),
        ("smtp://relay:25?ehlo=a%0d%0aRSET", "EHLO name"),
        ("smtp://re%0d%0alay:25", "needs a host name"),
    ],
)
def test_a_wrong_address_is_explained_without_the_password(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"\.$|\]$") as caught:
        parse_smtp_url(url)
    assert sentence in str(caught.value)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_password_does_not_show_in_the_settings() -> None:
    assert "hush" not in repr(parse_smtp_url("smtp://user:hush@localhost:25"))
