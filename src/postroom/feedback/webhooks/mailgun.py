"""Mailgun's webhooks: an HMAC over a timestamp and a token.

    https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks
    https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/webhook-payloads

The signature does **not** cover the event. Its token is the event's id, so a post that is repeated
counts once. Somebody who captures a post in spite of TLS could send another event with the same
signature while the window is open, but only about an email whose delivery token they know. One
post has one event. Our delivery token is the user variable `postroom_delivery`, or the local part
of the Message-ID.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import datetime

import msgspec

from postroom.domain.feedback import BounceReason, Classification, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import values
from postroom.feedback.webhooks.categories import (
    COMPLAINT,
    Classify,
    ProviderCategory,
    complaint,
    dead,
    ours,
    settle,
    temporary,
)
from postroom.feedback.webhooks.post import (
    DEFAULT_LIMITS,
    RefusalReason,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
    accept,
)

SOURCE = "mailgun"

_TOKEN = re.compile(r"[A-Za-z0-9]{20,100}")  # 50 characters
_SIGNATURE = re.compile(r"[0-9a-f]{64}")

_KINDS = {
    "accepted": FeedbackKind.ACCEPTED,
    "delivered": FeedbackKind.DELIVERED,
    "rejected": FeedbackKind.BOUNCED,
    "failed": FeedbackKind.BOUNCED,
    "complained": FeedbackKind.COMPLAINED,
    "unsubscribed": FeedbackKind.UNSUBSCRIBED,
    "opened": FeedbackKind.OPENED,
    "clicked": FeedbackKind.CLICKED,
}
_LEFT_BEFORE = "suppress-unsubscribe"
_REASONS = {
    "suppress-bounce": dead(),  # it bounced before
    "suppress-complaint": COMPLAINT,
    "old": temporary(BounceReason.EXPIRED),  # tried for too long
    "espblock": ours(BounceReason.BLOCKED, firm=False),
}
_REJECTED = ours(BounceReason.BAD_MESSAGE)  # by Mailgun, before it tried
_HARD = dead(firm=False)
_PERMANENT = temporary(firm=False)  # "bounce", "generic": nobody knows whose fault it is
_TEMPORARY = temporary(BounceReason.DELAYED, firm=False)


class MailgunSignature(msgspec.Struct, rename="kebab"):
    """The proof of origin. A subaccount's event is also signed with the key of its parent."""

    timestamp: str | int
    token: str
    signature: str
    parent_signature: str | None = None


class MailgunStatus(msgspec.Struct, rename="kebab"):
    """The response of the recipient's server."""

    message: str | None = None
    description: str | None = None
    enhanced_code: str | None = None
    bounce_type: str | None = None


class MailgunHeaders(msgspec.Struct, rename="kebab"):
    """The headers repeated by Mailgun that we read."""

    message_id: str | None = None


class MailgunMessage(msgspec.Struct):
    """The email that the event is about."""

    headers: MailgunHeaders | None = None


class MailgunRejection(msgspec.Struct):
    """Why Mailgun did not try."""

    reason: str | None = None


class MailgunEvent(msgspec.Struct, rename="kebab"):
    """The event, with only the keys that we read."""

    event: str
    timestamp: float
    recipient: str | None = None
    severity: str | None = None
    reason: str | None = None
    message: MailgunMessage | None = None
    delivery_status: MailgunStatus | None = None
    reject: MailgunRejection | None = None
    user_variables: dict[str, object] | list[object] | None = None  # an empty one is a list


class MailgunPost(msgspec.Struct, rename="kebab"):
    """The whole body."""

    signature: MailgunSignature
    event_data: msgspec.Raw = msgspec.Raw(b"")


_post = msgspec.json.Decoder(MailgunPost)
_event = msgspec.json.Decoder(MailgunEvent)


def read(
    request: WebhookRequest,
    keys: tuple[str, ...],
    *,
    now: datetime,
    classify: Classify,
    limits: WebhookLimits = DEFAULT_LIMITS,
) -> WebhookResult:
    """Verify a post with one of the webhook signing keys, and read its event."""
    if len(request.body) > limits.body_bytes_max:
        return RefusedPost(RefusalReason.TOO_LARGE)
    post = values.decoded(_post, request.body)
    if post is None:
        return RefusedPost(RefusalReason.UNSIGNED)
    refusal = _verify(post.signature, keys, now, limits)
    if refusal:
        return RefusedPost(refusal)
    event = values.decoded(_event, post.event_data)
    return accept([_read_event(event, post.signature.token, classify) if event else None])


def _verify(
    signature: MailgunSignature, keys: tuple[str, ...], now: datetime, limits: WebhookLimits
) -> RefusalReason | None:
    given = (signature.signature, signature.parent_signature or signature.signature)
    has_form = _TOKEN.fullmatch(signature.token) and all(map(_SIGNATURE.fullmatch, given))
    if not has_form:
        return RefusalReason.UNSIGNED
    if not values.is_in_window(str(signature.timestamp), now, limits):
        return RefusalReason.OUTSIDE_WINDOW
    signed = f"{signature.timestamp}{signature.token}".encode()
    expected = [hmac.new(key.encode(), signed, hashlib.sha256).hexdigest() for key in keys if key]
    if not any(values.is_secret(each, expected) for each in given):
        return RefusalReason.BAD_SIGNATURE
    return None


def _read_event(event: MailgunEvent, token: str, classify: Classify) -> FeedbackEvent | None:
    kind = _kind(event)
    at = values.moment(event.timestamp)
    if kind is None or at is None:
        return None
    headers = event.message.headers if event.message else None
    message_id = (headers.message_id if headers else None) or ""
    return FeedbackEvent(
        id=values.event_id(token),
        kind=kind,
        at=at,
        source=SOURCE,
        delivery=_delivery(event, message_id),
        address=values.address(event.recipient or ""),
        classification=_classification(event, kind, classify),
        provider_id=values.name(message_id),
    )


def _kind(event: MailgunEvent) -> FeedbackKind | None:
    if event.event == "failed" and event.reason == _LEFT_BEFORE:
        return FeedbackKind.UNSUBSCRIBED
    if event.event == "failed" and event.severity == "temporary":
        return FeedbackKind.DEFERRED
    return _KINDS.get(event.event)


def _delivery(event: MailgunEvent, message_id: str) -> str:
    variables = event.user_variables
    token = variables.get(values.DELIVERY_ARGUMENT) if isinstance(variables, dict) else None
    if isinstance(token, str):
        return values.delivery(token)
    return values.delivery_of_message_id(message_id)


def _classification(
    event: MailgunEvent, kind: FeedbackKind, classify: Classify
) -> Classification | None:
    if kind is FeedbackKind.COMPLAINED:
        return complaint("")
    if kind not in (FeedbackKind.BOUNCED, FeedbackKind.DEFERRED):
        return None
    reply = event.delivery_status or MailgunStatus()
    words = reply.message or reply.description or (event.reject.reason if event.reject else None)
    return settle(_category(event, kind, reply), reply.enhanced_code or "", words or "", classify)


def _category(event: MailgunEvent, kind: FeedbackKind, reply: MailgunStatus) -> ProviderCategory:
    if event.event == "rejected":
        return _REJECTED
    fallback = _TEMPORARY if kind is FeedbackKind.DEFERRED else _PERMANENT
    if kind is FeedbackKind.BOUNCED and reply.bounce_type == "hard":
        fallback = _HARD
    return _REASONS.get(event.reason or "", fallback)
