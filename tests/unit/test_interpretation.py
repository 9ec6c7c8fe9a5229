"""What a mail in the bounce mailbox means: only a report with a valid token is an event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.bounce_mailbox.interpretation import Interpretation, interpret
from postroom.bounce_mailbox.port import Filing, ReturnedMail
from postroom.domain.delivery_token import delivery_tokens, single_mail_token
from postroom.domain.feedback import BounceClass, FeedbackKind
from tests import returned_mails as mails
from tests.clock import START

SECRET = "secret"
TOKEN, OTHER = delivery_tokens(SECRET.encode(), "000637000000000000", 3, [0, 1]).values()
EARLIER = START - timedelta(days=2)


def read(content: bytes) -> Interpretation:
    return interpret(ReturnedMail(content, EARLIER), SECRET, START)


def test_a_bounce_becomes_an_event() -> None:
    found = read(mails.report(TOKEN, "ada@contoso.edu"))
    assert found.filing is Filing.RECORDED
    assert found.event
    assert found.event.kind is FeedbackKind.BOUNCED
    assert found.event.source == "mailbox"
    assert found.event.delivery == TOKEN
    assert found.event.address == "ada@contoso.edu"
    assert found.event.at == EARLIER
    assert found.event.classification
    assert found.event.classification.bounce_class is BounceClass.DEAD


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (mails.report(TOKEN, action="delayed", status="4.4.1"), FeedbackKind.DEFERRED),
        (mails.report(TOKEN, action="delivered", status="2.0.0"), FeedbackKind.DELIVERED),
        (mails.complaint(TOKEN), FeedbackKind.COMPLAINED),
        (mails.unsubscription(TOKEN), FeedbackKind.UNSUBSCRIBED),
        (mails.report(single_mail_token(SECRET.encode(), "ab" * 16)), FeedbackKind.BOUNCED),
        (mails.report(TOKEN.upper()), FeedbackKind.BOUNCED),  # a server folded the case
    ],
)
def test_the_kinds_that_are_heard(content: bytes, kind: FeedbackKind) -> None:
    found = read(content)
    assert found.filing is Filing.RECORDED
    assert found.event
    assert found.event.kind is kind


@pytest.mark.parametrize("token", [mails.forged(TOKEN), "", TOKEN[:-2], "a" * 32])
@pytest.mark.parametrize("build", [mails.report, mails.complaint, mails.unsubscription])
def test_without_a_valid_token_nothing_is_recorded(build: object, token: str) -> None:
    assert callable(build)
    assert read(build(token)) == Interpretation(Filing.UNKNOWN)


def test_an_automatic_reply_is_ignored_and_an_answer_kept_for_people() -> None:
    assert read(mails.automatic_reply(TOKEN)) == Interpretation(Filing.IGNORED)
    assert read(mails.answer(TOKEN)) == Interpretation(Filing.UNKNOWN)


@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"\xff\xfe" * 500, b"Subject:" * 10_000])
def test_whatever_the_bytes_are_they_are_kept(content: bytes) -> None:
    assert read(content) == Interpretation(Filing.UNKNOWN)


def test_the_id_follows_from_the_content() -> None:
    def id_of(content: bytes) -> str:
        event = read(content).event
        assert event
        return event.id

    one = mails.report(TOKEN)
    assert id_of(one) == id_of(one)
    assert id_of(one) != id_of(mails.report(OTHER, id_=f"report-{TOKEN}-failed"))
    assert id_of(one) != id_of(mails.report(TOKEN, action="delayed", id_=f"report-{TOKEN}-failed"))
    nameless = one.replace(b"Message-ID:", b"X-Other:")
    assert id_of(nameless) == id_of(nameless)
    assert id_of(nameless) != id_of(one)


def test_a_report_from_the_future_is_of_now() -> None:
    mail = ReturnedMail(mails.report(TOKEN), START + timedelta(days=9))
    event = interpret(mail, SECRET, START).event
    assert event
    assert event.at == START
