"""What Amazon SES reports: events of a configuration set, and the classic notifications.

    https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html
    https://docs.aws.amazon.com/ses/latest/dg/notification-contents.html

Both have the same objects; only `eventType` is called `notificationType` in the latter. One report
may name several recipients. Our delivery token is the message tag `postroom_delivery`, or the local
part of the Message-ID that we gave the email (`mail.headers`, `mail.commonHeaders`), as far as SES
was told to include the original headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from postroom.domain.feedback import BounceReason, Classification, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import values
from postroom.feedback.webhooks.categories import (
    Classify,
    ProviderCategory,
    complaint,
    dead,
    ours,
    settle,
    temporary,
)

SOURCE = "ses"
# SNS publishes it once, when a topic becomes a destination of events.
TOPIC_WORKS = "Successfully validated SNS topic for Amazon SES event publishing."

# bounceType and bounceSubType. "Permanent" alone does not say whose fault it is.
_BOUNCES = {
    ("Permanent", "NoEmail"): dead(BounceReason.NO_SUCH_USER),
    ("Permanent", "Suppressed"): dead(BounceReason.NO_SUCH_USER),  # bounced as invalid before
    ("Permanent", "OnAccountSuppressionList"): dead(),
    ("Permanent", "General"): dead(firm=False),
    ("Transient", "MailboxFull"): temporary(BounceReason.MAILBOX_FULL),
    ("Transient", "MessageTooLarge"): ours(BounceReason.TOO_LARGE),
    ("Transient", "ContentRejected"): ours(BounceReason.SPAM),
    ("Transient", "AttachmentRejected"): ours(BounceReason.POLICY),
}
_BOUNCE = temporary(firm=False)  # Transient/General, Undetermined, and subtypes to come
_DELAYS = {
    "MailboxFull": temporary(BounceReason.MAILBOX_FULL),
    "SpamDetected": ours(BounceReason.SPAM),
    "RecipientServerError": temporary(BounceReason.SYSTEM),
    "IPFailure": ours(BounceReason.BLOCKED),
    "TransientCommunicationFailure": temporary(BounceReason.NETWORK),
    "BYOIPHostNameLookupUnavailable": ours(BounceReason.AUTHENTICATION),
}
_DELAY = temporary(BounceReason.DELAYED, firm=False)
# Feedback-Types that are not a complaint by a person (RFC 5965, RFC 6591).
_NO_COMPLAINTS = {"not-spam", "auth-failure"}
_SUPPRESSED = "OnAccountSuppressionList"


class SesRecipient(msgspec.Struct, rename="camel"):
    """One recipient of a bounce, a complaint or a delay."""

    email_address: str
    status: str | None = None
    diagnostic_code: str | None = None


class SesHeader(msgspec.Struct):
    """A header of the email as we wrote it."""

    name: str
    value: str


class SesCommonHeaders(msgspec.Struct, rename="camel"):
    """The header repeated by SES that we read."""

    message_id: str | None = None


class SesMail(msgspec.Struct, rename="camel"):
    """The email that the report is about."""

    message_id: str
    timestamp: str = ""
    destination: list[str] = []
    headers: list[SesHeader] | None = None
    common_headers: SesCommonHeaders | None = None
    tags: dict[str, list[str]] | None = None


class SesDetails(msgspec.Struct, rename="camel"):
    """What happened; SES names the object after the event, and fills in the relevant fields."""

    timestamp: str = ""
    bounce_type: str = ""
    bounce_sub_type: str = ""
    bounced_recipients: list[SesRecipient] = []
    complained_recipients: list[SesRecipient] = []
    complaint_feedback_type: str | None = None
    complaint_sub_type: str | None = None
    recipients: list[str] = []
    reason: str = ""
    error_message: str = ""
    delay_type: str = ""
    delayed_recipients: list[SesRecipient] = []


class SesTopicStatus(msgspec.Struct, rename="camel"):
    """What somebody chose for one topic of a contact list."""

    topic_name: str = ""
    subscription_status: str = ""


class SesPreferences(msgspec.Struct, rename="camel"):
    """What somebody chose on the page of a contact list."""

    unsubscribe_all: bool = False
    topic_subscription_status: list[SesTopicStatus] = []


class SesSubscription(msgspec.Struct, rename="camel"):
    """A change of somebody's preferences."""

    timestamp: str = ""
    new_topic_preferences: SesPreferences | None = None
    old_topic_preferences: SesPreferences | None = None


class SesReport(msgspec.Struct, rename="camel"):
    """The whole report."""

    mail: SesMail
    event_type: str = ""
    notification_type: str = ""
    bounce: SesDetails | None = None
    complaint: SesDetails | None = None
    delivery: SesDetails | None = None
    send: SesDetails | None = None
    reject: SesDetails | None = None
    open: SesDetails | None = None
    click: SesDetails | None = None
    failure: SesDetails | None = None
    delivery_delay: SesDetails | None = None
    subscription: SesSubscription | None = None


_report = msgspec.json.Decoder(SesReport)
_KINDS = {
    "Send": FeedbackKind.ACCEPTED,
    "Delivery": FeedbackKind.DELIVERED,
    "Open": FeedbackKind.OPENED,
    "Click": FeedbackKind.CLICKED,
}


class ReadReport(NamedTuple):
    """The events of one report; one for each recipient."""

    events: list[FeedbackEvent]
    unknown: int


class SesFinding(NamedTuple):
    """What the report says about one recipient."""

    kind: FeedbackKind
    address: str
    classification: Classification | None = None


def read_report(text: str, message_id: str, classify: Classify) -> ReadReport:
    """Read the text of an SNS message; `message_id` is the one of SNS, the same at every retry."""
    if text.strip() == TOPIC_WORKS:
        return ReadReport([], 0)
    report = values.decoded(_report, text)
    if report is None:
        return ReadReport([], 1)
    at = values.moment(_happened_at(report) or report.mail.timestamp)
    findings = list(_findings(report, classify))
    if at is None or not findings:
        return ReadReport([], 1)
    delivery = _delivery(report.mail)
    events = [
        FeedbackEvent(
            id=values.event_id(message_id, finding.kind, str(index)),
            kind=finding.kind,
            at=at,
            source=SOURCE,
            delivery=delivery,
            address=values.address(finding.address),
            classification=finding.classification,
            provider_id=values.name(report.mail.message_id),
        )
        for index, finding in enumerate(findings)
    ]
    return ReadReport(events, 0)


def _happened_at(report: SesReport) -> str:
    parts = (
        *(report.bounce, report.complaint, report.delivery, report.open, report.click),
        *(report.delivery_delay, report.subscription),
    )
    return next((part.timestamp for part in parts if part and part.timestamp), "")


def _delivery(mail: SesMail) -> str:
    for tag in (mail.tags or {}).get(values.DELIVERY_ARGUMENT, [])[:1]:
        return values.delivery(tag)
    for header in mail.headers or []:
        if header.name.lower() == "message-id":
            return values.delivery_of_message_id(header.value)
    common = mail.common_headers
    return values.delivery_of_message_id(common.message_id or "") if common else ""


def _findings(report: SesReport, classify: Classify) -> Iterator[SesFinding]:
    match report:
        case SesReport(bounce=SesDetails() as bounce):
            yield from _bounces(bounce, classify)
        case SesReport(complaint=SesDetails() as details):
            yield from _complaints(details)
        case SesReport(delivery_delay=SesDetails() as delay):
            yield from _delays(delay, classify)
        case SesReport(reject=SesDetails(reason=words)):  # "Bad content": a virus
            yield from _refusals(report.mail, ours(BounceReason.SPAM), words, classify)
        case SesReport(failure=SesDetails(error_message=words)):
            yield from _refusals(report.mail, ours(BounceReason.BAD_MESSAGE), words, classify)
        case SesReport(subscription=SesSubscription() as change):
            yield from _departures(report.mail, change)
        case _:
            yield from _successes(report)


def _successes(report: SesReport) -> Iterator[SesFinding]:
    kind = _KINDS.get(report.event_type or report.notification_type)
    reached = report.delivery.recipients if report.delivery else []
    if kind:
        for address in reached or report.mail.destination:
            yield SesFinding(kind, address)


def _bounces(bounce: SesDetails, classify: Classify) -> Iterator[SesFinding]:
    category = _BOUNCES.get((bounce.bounce_type, bounce.bounce_sub_type), _BOUNCE)
    if category is _BOUNCE and bounce.bounce_type == "Permanent":
        category = _BOUNCES["Permanent", "General"]
    for one in bounce.bounced_recipients:
        if category is _BOUNCE and not one.status and not one.diagnostic_code:
            continue  # no DSN came with it: an out-of-office reply, which SES calls a bounce
        yield _failure(FeedbackKind.BOUNCED, one, category, classify)


def _delays(delay: SesDetails, classify: Classify) -> Iterator[SesFinding]:
    category = _DELAYS.get(delay.delay_type, _DELAY)
    for one in delay.delayed_recipients:
        yield _failure(FeedbackKind.DEFERRED, one, category, classify)


def _failure(
    kind: FeedbackKind, one: SesRecipient, category: ProviderCategory, classify: Classify
) -> SesFinding:
    words = (one.diagnostic_code or "").removeprefix("smtp;").strip()
    classification = settle(category, one.status or "", words, classify)
    return SesFinding(kind, one.email_address, classification)


def _complaints(details: SesDetails) -> Iterator[SesFinding]:
    if details.complaint_feedback_type in _NO_COMPLAINTS:
        return
    is_suppressed = details.complaint_sub_type == _SUPPRESSED  # of an earlier email: not sent
    kind = FeedbackKind.BOUNCED if is_suppressed else FeedbackKind.COMPLAINED
    words = details.complaint_sub_type or details.complaint_feedback_type or ""
    for one in details.complained_recipients:
        yield SesFinding(kind, one.email_address, complaint(words))


def _refusals(
    mail: SesMail, category: ProviderCategory, words: str, classify: Classify
) -> Iterator[SesFinding]:
    """SES itself refused the email; the words can only refine the reason."""
    for address in mail.destination:
        classification = settle(category, "", words, classify)
        yield SesFinding(FeedbackKind.BOUNCED, address, classification)


def _departures(mail: SesMail, change: SesSubscription) -> Iterator[SesFinding]:
    """Somebody unsubscribed from everything, or from a topic they were subscribed to."""
    chosen = change.new_topic_preferences
    has_left_all = chosen is not None and chosen.unsubscribe_all
    if has_left_all or _topics_left(chosen) - _topics_left(change.old_topic_preferences):
        for address in mail.destination:
            yield SesFinding(FeedbackKind.UNSUBSCRIBED, address)


def _topics_left(chosen: SesPreferences | None) -> set[str]:
    topics = chosen.topic_subscription_status if chosen else []
    return {one.topic_name for one in topics if one.subscription_status == "OptOut"}
