"""A bare reply of a server, as SMTP and webhooks report it, is classified like a bounce."""

from __future__ import annotations

import pytest

from postroom.domain.feedback import BounceClass, BounceReason
from postroom.domain.outcome import WORDS_CHARS_MAX
from postroom.feedback.classify import classify_words
from postroom.feedback.enhanced_codes import PERMANENT, TEMPORARY_CODES, meaning_of
from postroom.feedback.phrases import GROUPS
from postroom.feedback.wording import first_match, plain

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

REPLIES = [
    ("550 5.1.1 <x@y.example>: Recipient address rejected: User unknown", DEAD, "no_such_user"),
    ("550 Requested action not taken: mailbox unavailable", DEAD, "no_such_user"),
    ("450 Requested action not taken: mailbox unavailable", TEMPORARY, "no_such_user"),
    ("550 5.1.2 Bad destination system address", DEAD, "no_such_host"),
    ("551 5.1.6 Recipient no longer on this server", DEAD, "moved"),
    ("550 5.1.0 <x@y.example> address rejected: sender denied", OURS, "bad_sender"),
    ("552 5.2.2 Over quota", TEMPORARY, "mailbox_full"),
    ("550 5.1.1 The mailbox is full", TEMPORARY, "mailbox_full"),
    ("452 4.3.1 Insufficient system storage", TEMPORARY, "system"),
    ("552 5.3.4 Message size exceeds fixed limit", OURS, "too_large"),
    ("550 5.2.1 The email account that you tried to reach is disabled", TEMPORARY, "suspended"),
    ("550 5.7.1 Service unavailable; client host [192.0.2.1] blocked using x", OURS, "blocked"),
    ("550 5.7.606 Access denied, banned sending IP [192.0.2.1]", OURS, "blocked"),
    ("554 5.7.1 [HM08] Message rejected due to local policy", OURS, "policy"),
    ("550 5.7.25 The IP address does not have a PTR record", OURS, "authentication"),
    ("421 4.7.28 Gmail has detected an unusual rate of mail", OURS, "busy"),
    ("450 4.2.0 Greylisted, see the documentation", TEMPORARY, "busy"),
    ("451 4.7.1 Please try again later", TEMPORARY, "busy"),
    ("554 5.6.0 Message contains malformed MIME", OURS, "bad_message"),
    ("554 5.7.1 Relay access denied", OURS, "policy"),
    ("554 5.4.6 Too many hops", TEMPORARY, "network"),
    ("550 5.7.1 Message contains spam", OURS, "spam"),
    ("556 5.1.10 Domain does not accept mail (nullMX)", DEAD, "no_mail_accepted"),
    ("530 5.7.0 Must issue a STARTTLS command first", OURS, "authentication"),
    ("550 5.0.0 x", TEMPORARY, "unknown"),
    ("550", TEMPORARY, "unknown"),
    ("", TEMPORARY, "unknown"),
]


@pytest.mark.parametrize(("reply", "bounce_class", "reason"), REPLIES)
def test_a_reply_is_classified(reply: str, bounce_class: BounceClass, reason: str) -> None:
    found = classify_words("", reply)
    assert (found.bounce_class, found.reason) == (bounce_class, reason)


def test_status_and_code_may_come_apart_from_the_words() -> None:
    found = classify_words("5.1.1", "the provider gives no words", 550)
    assert (found.bounce_class, found.reason) == (DEAD, BounceReason.NO_SUCH_USER)
    assert classify_words("", "come back", 421).bounce_class is TEMPORARY
    assert classify_words("5.1.1", "", 450).bounce_class is TEMPORARY  # where they disagree


def test_words_are_one_printable_line_of_limited_length() -> None:
    words = classify_words("", "550 5.1.1\r\n no\x00such user " + "x" * 10_000).words
    assert words.isprintable()
    assert len(words) == WORDS_CHARS_MAX


def test_an_ip_address_or_a_version_is_no_code() -> None:
    for words in ("550 host 5.1.1.7 said no", "550 from v5.1.1234", "550 at 45.1.1"):
        assert classify_words("", words).bounce_class is TEMPORARY


def test_without_evidence_nobody_is_dead() -> None:
    for code in range(400, 600):
        found = classify_words("", f"{code} no comment")
        assert found.bounce_class is not DEAD or code == 556


def test_no_temporary_code_means_dead() -> None:
    assert all(meaning.bounce_class is not DEAD for meaning in TEMPORARY_CODES.values())
    assert all(meaning_of(f"4.{code}.0") != PERMANENT["1.1"] for code in range(8))


def test_every_phrase_can_match() -> None:
    """A phrase that `plain` would never leave in a text can never match."""
    for group in GROUPS:
        for pieces in group.phrases:
            text = plain(" - ".join(pieces).replace("@@", "somebody@contoso.edu"))
            if "(p=" not in text:
                assert first_match(GROUPS[: GROUPS.index(group) + 1], text), pieces
