"""Notifications of Amazon SES that Amazon SNS sends by email: JSON in the text of a mail."""

from __future__ import annotations

import msgspec

from postroom.domain.feedback import FeedbackKind
from postroom.feedback.status_fields import RecipientStatus, without_type

NOTIFICATION_CHARS_MAX = 60_000


class _SesRecipient(msgspec.Struct, rename="camel"):
    email_address: str = ""
    action: str = ""
    status: str = ""
    diagnostic_code: str = ""


class _SesBounce(msgspec.Struct, rename="camel"):
    bounce_type: str = ""
    bounced_recipients: list[_SesRecipient] = []


class _SesComplaint(msgspec.Struct, rename="camel"):
    complained_recipients: list[_SesRecipient] = []


class _SesDelivery(msgspec.Struct, rename="camel"):
    recipients: list[str] = []
    smtp_response: str = ""


class _SesNotification(msgspec.Struct, rename="camel"):
    notification_type: str = ""
    bounce: _SesBounce | None = None
    complaint: _SesComplaint | None = None
    delivery: _SesDelivery | None = None
    message: str = msgspec.field(name="Message", default="")


class SesOutcome(msgspec.Struct, frozen=True):
    """What a notification reports, in our vocabulary."""

    kind: FeedbackKind
    status: RecipientStatus


def read_notification(text: str) -> SesOutcome | None:
    """Read the notification in the text of a mail, if there is one."""
    if "notificationType" not in text:
        return None
    # Mail servers break long lines with "!", newline and space.
    line = text[:NOTIFICATION_CHARS_MAX].replace("\r", "").replace("!\n ", "").replace("\n", "")
    found = _decode(line[line.find("{") : line.rfind("}") + 1])
    if found and found.message:  # the form that SNS wraps around the notification
        found = _decode(found.message)
    return _outcome(found) if found else None


def _decode(text: str) -> _SesNotification | None:
    try:
        return msgspec.json.decode(text, type=_SesNotification, strict=False)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _outcome(found: _SesNotification) -> SesOutcome | None:
    if found.bounce:
        named = (found.bounce.bounced_recipients or [_SesRecipient()])[0]
        status = RecipientStatus(
            recipient=named.email_address,
            action=named.action or "failed",
            status=named.status,
            diagnostic=without_type(named.diagnostic_code),
        )
        return SesOutcome(FeedbackKind.BOUNCED, status)
    if found.complaint:
        named = (found.complaint.complained_recipients or [_SesRecipient()])[0]
        return SesOutcome(FeedbackKind.COMPLAINED, RecipientStatus(recipient=named.email_address))
    if found.delivery:
        address = (found.delivery.recipients or [""])[0]
        return SesOutcome(FeedbackKind.DELIVERED, RecipientStatus(address, action="delivered"))
    return None
