"""SES: every event of a configuration set, the classic notifications, and malformed ones."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks.ses import read_report
from tests.webhook_posts import (
    ADDRESS,
    NOW,
    TOKEN,
    Event,
    classify,
    ses_bounce,
    ses_report,
    written,
)

MESSAGE_ID = "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"
OTHER = "thomas.hardy@fabrikam.example"


def read_one(report: Event) -> FeedbackEvent:
    found = read_report(json.dumps(report), MESSAGE_ID, classify)
    assert found.unknown == 0
    (event,) = found.events
    return event


AT: dict[str, object] = {"timestamp": written(NOW)}
OPTED_OUT = {"topicName": "news", "subscriptionStatus": "OptOut"}


@pytest.mark.parametrize(
    ("type_", "part", "details", "kind"),
    [
        ("Send", "send", {}, FeedbackKind.ACCEPTED),
        (
            "Delivery",
            "delivery",
            AT | {"recipients": [ADDRESS], "smtpResponse": "250 2.6.0 Message received"},
            FeedbackKind.DELIVERED,
        ),
        ("Open", "open", AT | {"ipAddress": "192.0.2.1"}, FeedbackKind.OPENED),
        ("Click", "click", AT | {"link": "https://contoso.example/"}, FeedbackKind.CLICKED),
        (
            "Subscription",
            "subscription",
            AT | {"newTopicPreferences": {"unsubscribeAll": True}},
            FeedbackKind.UNSUBSCRIBED,
        ),
        (
            "Subscription",
            "subscription",
            AT | {"newTopicPreferences": {"topicSubscriptionStatus": [OPTED_OUT]}},
            FeedbackKind.UNSUBSCRIBED,
        ),
    ],
)
def test_an_event_that_is_no_failure(
    type_: str, part: str, details: dict[str, object], kind: FeedbackKind
) -> None:
    event = read_one(ses_report(type_, part, details))
    assert (event.kind, event.classification) == (kind, None)
    assert (event.delivery, event.address, event.source) == (TOKEN, ADDRESS, "ses")
    assert event.id == f"{MESSAGE_ID}.{kind}.0"
    assert event.at == (NOW if details else NOW - timedelta(minutes=1))  # Send: when it was sent
    assert event.provider_id == "01070190aaaabbbb-00000000-0000-0000-0000-000000000000-000000"


@pytest.mark.parametrize(
    ("type_", "sub_type", "status", "words", "bounce_class", "reason"),
    [
        ("Permanent", "NoEmail", None, None, BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("Permanent", "Suppressed", None, None, BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("Permanent", "OnAccountSuppressionList", None, None, BounceClass.DEAD, "unknown"),
        ("Permanent", "General", None, None, BounceClass.DEAD, "unknown"),
        ("Permanent", "General", "5.1.1", "550 5.1.1 user unknown", "dead", "no_such_user"),
        ("Permanent", "General", "5.7.1", "550 5.7.1 refused", "ours", "policy"),
        ("Permanent", "NoEmail", "5.7.1", "550 5.7.1 refused", "dead", "no_such_user"),
        ("Permanent", "Unheard", None, None, "dead", "unknown"),
        ("Transient", "General", "4.2.2", "452 4.2.2 full", "temporary", "mailbox_full"),
        ("Transient", "General", "4.0.0", "something", "temporary", "unknown"),
        ("Transient", "MailboxFull", None, None, "temporary", "mailbox_full"),
        ("Transient", "MessageTooLarge", None, None, "ours", "too_large"),
        ("Transient", "ContentRejected", None, None, "ours", "spam"),
        ("Transient", "AttachmentRejected", None, None, "ours", "policy"),
        ("Undetermined", "Undetermined", "5.0.0", "no", "temporary", "unknown"),
    ],
)
def test_a_bounce_is_classified_by_its_subtype_and_the_words(
    type_: str, sub_type: str, status: str | None, words: str | None, bounce_class: str, reason: str
) -> None:
    event = read_one(ses_bounce(type_, sub_type, status, words))
    assert event.kind is FeedbackKind.BOUNCED
    assert event.classification
    found = event.classification
    assert (found.bounce_class, found.reason) == (bounce_class, reason)
    assert (found.status, found.words) == (status or "", words or "")


def test_an_out_of_office_reply_is_no_bounce() -> None:
    """As ooto@simulator.amazonses.com is reported: without a status."""
    report = ses_bounce("Transient", "General")
    assert read_report(json.dumps(report), MESSAGE_ID, classify) == ([], 1)


@pytest.mark.parametrize(
    ("delay", "bounce_class", "reason"),
    [
        ("MailboxFull", BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL),
        ("SpamDetected", BounceClass.OURS, BounceReason.SPAM),
        ("RecipientServerError", BounceClass.TEMPORARY, BounceReason.SYSTEM),
        ("IPFailure", BounceClass.OURS, BounceReason.BLOCKED),
        ("TransientCommunicationFailure", BounceClass.TEMPORARY, BounceReason.NETWORK),
        ("BYOIPHostNameLookupUnavailable", BounceClass.OURS, BounceReason.AUTHENTICATION),
        ("InternalFailure", BounceClass.TEMPORARY, BounceReason.DELAYED),
        ("General", BounceClass.TEMPORARY, BounceReason.DELAYED),
        ("Undetermined", BounceClass.TEMPORARY, BounceReason.DELAYED),
        ("SendingDeferral", BounceClass.TEMPORARY, BounceReason.DELAYED),
    ],
)
def test_a_delay_is_a_deferral(delay: str, bounce_class: BounceClass, reason: BounceReason) -> None:
    recipient = {"emailAddress": ADDRESS, "status": "4.4.1", "diagnosticCode": "smtp; 421 no"}
    details = AT | {"delayType": delay, "delayedRecipients": [recipient]}
    event = read_one(ses_report("DeliveryDelay", "deliveryDelay", details))
    assert event.kind is FeedbackKind.DEFERRED
    assert event.classification
    assert event.classification.bounce_class is bounce_class
    assert event.classification.reason is reason
    assert event.classification.words == "421 no"


def complaint(**details: object) -> Event:
    recipients = [{"emailAddress": ADDRESS}]
    return ses_report("Complaint", "complaint", AT | {"complainedRecipients": recipients} | details)


def test_a_complaint() -> None:
    event = read_one(complaint(complaintFeedbackType="abuse"))
    assert event.kind is FeedbackKind.COMPLAINED
    assert event.classification
    assert event.classification.bounce_class is BounceClass.COMPLAINT
    assert event.classification.words == "abuse"
    assert read_one(complaint()).kind is FeedbackKind.COMPLAINED


def test_an_email_kept_back_because_of_an_earlier_complaint_was_not_delivered() -> None:
    event = read_one(complaint(complaintSubType="OnAccountSuppressionList"))
    assert event.kind is FeedbackKind.BOUNCED
    assert event.classification
    assert event.classification.bounce_class is BounceClass.COMPLAINT


@pytest.mark.parametrize("type_", ["not-spam", "auth-failure"])
def test_a_report_that_is_no_complaint_is_not_counted_as_one(type_: str) -> None:
    report = complaint(complaintFeedbackType=type_)
    assert read_report(json.dumps(report), MESSAGE_ID, classify) == ([], 1)


@pytest.mark.parametrize(
    ("type_", "part", "details", "reason"),
    [
        ("Reject", "reject", {"reason": "Bad content"}, BounceReason.SPAM),
        ("Rendering Failure", "failure", {"errorMessage": "missing"}, BounceReason.BAD_MESSAGE),
    ],
)
def test_what_ses_itself_refuses_is_our_fault(
    type_: str, part: str, details: dict[str, object], reason: BounceReason
) -> None:
    event = read_one(ses_report(type_, part, details))
    assert event.kind is FeedbackKind.BOUNCED
    assert event.classification
    assert event.classification.bounce_class is BounceClass.OURS
    assert event.classification.reason is reason


def test_a_topic_left_before_is_not_left_again() -> None:
    chosen = {"topicSubscriptionStatus": [OPTED_OUT]}
    details = AT | {"newTopicPreferences": chosen, "oldTopicPreferences": chosen}
    report = ses_report("Subscription", "subscription", details)
    assert read_report(json.dumps(report), MESSAGE_ID, classify) == ([], 1)


def test_each_recipient_has_an_event_with_its_own_id() -> None:
    report = ses_report("Delivery", "delivery", AT | {"recipients": [ADDRESS, OTHER]})
    found = read_report(json.dumps(report), MESSAGE_ID, classify)
    assert [event.address for event in found.events] == [ADDRESS, OTHER]
    assert len({event.id for event in found.events}) == 2
    assert read_report(json.dumps(report), MESSAGE_ID, classify) == found


def test_a_classic_notification_is_read_like_an_event() -> None:
    report = ses_bounce("Permanent", "General", "5.1.1", "550 5.1.1 user unknown")
    classic = {"notificationType": report.pop("eventType")} | report
    del classic["mail"]["tags"]
    assert read_one(classic).kind is FeedbackKind.BOUNCED
    assert read_one(classic).delivery == TOKEN  # by the Message-ID
    delivered = ses_report("Delivery", "delivery", AT | {"recipients": [ADDRESS]})
    delivered["notificationType"] = delivered.pop("eventType")
    assert read_one(delivered).kind is FeedbackKind.DELIVERED


def test_the_delivery_is_named_by_tag_then_header_then_common_header() -> None:
    header = "b" * 32
    common = "c" * 32
    headers = [{"name": "message-id", "value": f"<{header}@contoso.example>"}]
    common_headers = {"messageId": f"<{common}@contoso.example>"}
    changes: list[tuple[Event, str]] = [
        ({"headers": headers}, TOKEN),
        ({"headers": headers, "tags": None}, header),
        ({"headers": [], "tags": {}, "commonHeaders": common_headers}, common),
        ({"headers": None, "tags": None, "commonHeaders": None}, ""),
        ({"tags": {"postroom_delivery": []}, "headers": headers}, header),
    ]
    for change, expected in changes:
        assert read_one(ses_report("Send", "send", {}, **change)).delivery == expected


MALFORMED = [
    "",
    "null",
    "[]",
    "{}",
    "Hello world",
    json.dumps({"eventType": "Bounce"}),
    json.dumps(ses_report("Surprise", "surprise", {})),
    json.dumps(ses_report("Bounce", "bounce", AT | {"bouncedRecipients": []})),
    json.dumps(ses_report("Bounce", "bounce", {"bouncedRecipients": "all"})),
    json.dumps(ses_report("Open", "open", {"timestamp": "yesterday"})),
    json.dumps(ses_report("Send", "send", {}, destination=[])),
    '{"mail":' * 100_000,
]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_report_that_cannot_be_read_counts_as_unknown(text: str) -> None:
    assert read_report(text, MESSAGE_ID, classify) == ([], 1)


@pytest.mark.slow
@settings(max_examples=200)
@given(cut=st.integers(0, 2000), put=st.text(max_size=10))
def test_no_report_raises(cut: int, put: str) -> None:
    text = json.dumps(ses_bounce("Permanent", "General", "5.1.1", "550 5.1.1"))
    cut %= len(text)
    found = read_report(text[:cut] + put + text[cut + len(put) :], MESSAGE_ID, classify)
    assert len(found.events) + found.unknown == 1
