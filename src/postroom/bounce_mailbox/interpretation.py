"""What a mail in the bounce mailbox means: its event, if it has one, and where it is filed.

Pure. A report counts only with a delivery token whose MAC is right, so nobody can suppress or
unsubscribe somebody else with a forged bounce.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from postroom.bounce_mailbox.port import Filing, ReturnedMail
from postroom.domain.delivery_token import parse_token
from postroom.domain.feedback import (
    MAILBOX_SOURCE,
    BounceReason,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.outcome import clip
from postroom.feedback.mail_parts import field, split_headers
from postroom.feedback.report import Report, read_report

ADDRESS_CHARS_MAX = 320
HEARD = frozenset(
    {
        FeedbackKind.BOUNCED,
        FeedbackKind.DEFERRED,
        FeedbackKind.COMPLAINED,
        FeedbackKind.UNSUBSCRIBED,
        FeedbackKind.DELIVERED,
    }
)


class Interpretation(msgspec.Struct, frozen=True):
    """Where a mail is filed, after its event, if it has one, is stored."""

    filing: Filing
    event: FeedbackEvent | None = None


UNKNOWN_MAIL = Interpretation(Filing.UNKNOWN)


def interpret(mail: ReturnedMail, secret: str, now: datetime) -> Interpretation:
    """Read a mail as feedback about one of our emails."""
    report = read_report(mail.content)
    if parse_token(secret.encode(), report.delivery) is None:
        return UNKNOWN_MAIL
    if report.kind not in HEARD:
        is_automatic = report.classification.reason is BounceReason.AUTOMATIC_REPLY
        return Interpretation(Filing.IGNORED) if is_automatic else UNKNOWN_MAIL
    event = FeedbackEvent(
        id=event_id(mail.content, report),
        kind=report.kind,
        at=min(mail.received_at, now),  # its Date could be anything
        source=MAILBOX_SOURCE,
        delivery=report.delivery,
        address=clip(report.recipient)[:ADDRESS_CHARS_MAX],
        classification=report.classification,
    )
    return Interpretation(Filing.RECORDED, event)


def event_id(content: bytes, report: Report) -> str:
    """The same for the same mail, however often it is read, and for a second copy of it."""
    message_id = field(split_headers(content)[0], "message-id")
    if not message_id:
        return hashlib.sha256(content).hexdigest()
    status = report.classification.status
    parts = (message_id, report.delivery, report.recipient, str(report.kind), status)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
