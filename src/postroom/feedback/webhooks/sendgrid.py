"""SendGrid's Event Webhook: an ECDSA signature over the timestamp and the raw body.

Events and their properties:
    https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event
Signature (P-256, SHA-256; the key is the base64 of a DER SubjectPublicKeyInfo):
    https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/
    getting-started-event-webhook-security-features

Custom arguments are keys of the event itself, so our delivery token is `postroom_delivery`.
`processed` means that SendGrid has taken the email over, which settles a delivery in doubt.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.feedback import BounceReason, Classification, FeedbackEvent, FeedbackKind
from postroom.domain.texts import _
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

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

SOURCE = "sendgrid"
SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature"
TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp"
SIGNATURE_CHARS_MAX = 200  # a DER signature of P-256 has at most 72 bytes
KEY_CHARS_MAX = 1000

_KINDS = {
    "processed": FeedbackKind.ACCEPTED,
    "delivered": FeedbackKind.DELIVERED,
    "deferred": FeedbackKind.DEFERRED,
    "bounce": FeedbackKind.BOUNCED,
    "dropped": FeedbackKind.BOUNCED,
    "spamreport": FeedbackKind.COMPLAINED,
    "unsubscribe": FeedbackKind.UNSUBSCRIBED,
    "group_unsubscribe": FeedbackKind.UNSUBSCRIBED,
    "open": FeedbackKind.OPENED,
    "click": FeedbackKind.CLICKED,
}

# `bounce_classification`, as in the Bounces API; the webhook also writes "Technical".
_CLASSIFICATIONS = {
    "invalid address": dead(BounceReason.NO_SUCH_USER),
    "mailbox unavailable": temporary(BounceReason.MAILBOX_FULL, firm=False),  # or suspended
    "technical": temporary(BounceReason.SYSTEM, firm=False),
    "technical failure": temporary(BounceReason.SYSTEM, firm=False),
    "content": ours(BounceReason.SPAM),
    "reputation": ours(BounceReason.BLOCKED),
    "frequency or volume too high": temporary(BounceReason.BUSY),
}
# `type`, where the classification says nothing. Not all of type "bounce" are the address's fault.
_BOUNCE_TYPES = {
    "bounce": temporary(firm=False),
    "blocked": ours(firm=False),
    "expired": temporary(BounceReason.EXPIRED),
}
_DROP_REASONS = {
    "bounced address": dead(),  # it bounced before
    "invalid": dead(BounceReason.NO_SUCH_USER),
    "spam reporting address": COMPLAINT,
    "spam content": ours(BounceReason.SPAM),
    "invalid smtpapi header": ours(BounceReason.BAD_MESSAGE),
    "recipient list over package quota": ours(BounceReason.POLICY),
}
_UNSUBSCRIBED = "unsubscribed address"
_DEFERRED = temporary(BounceReason.DELAYED, firm=False)

# `sg_message_id` is the X-Message-Id of the answer to our call, and where it went from there.
_MESSAGE_ID_ENDS = re.compile(r"\.(?:filter|recvd)")


class SendGridEvent(msgspec.Struct):
    """One event as posted, with only the keys that we read."""

    event: str
    timestamp: float
    email: str = ""
    sg_event_id: str | None = None
    sg_message_id: str | None = None
    smtp_id: str | None = msgspec.field(default=None, name="smtp-id")
    reason: str | None = None
    response: str | None = None
    status: str | None = None
    type: str | None = None
    bounce_classification: str | None = None
    sg_machine_open: bool = False
    postroom_delivery: str | None = None


_whole = msgspec.json.Decoder(list[SendGridEvent])
_pieces = msgspec.json.Decoder(list[msgspec.Raw])
_one = msgspec.json.Decoder(SendGridEvent)


def verification_key(text: str) -> EllipticCurvePublicKey:
    """Parse the verification key as SendGrid shows it in Mail Settings."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        der = base64.b64decode("".join(text.split())[:KEY_CHARS_MAX], validate=True)
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key
    raise BadInput(
        _("This is not a SendGrid verification key. Copy it from Mail Settings, Event Webhooks.")
    )


def read(
    request: WebhookRequest,
    keys: tuple[EllipticCurvePublicKey, ...],
    *,
    now: datetime,
    classify: Classify,
    limits: WebhookLimits = DEFAULT_LIMITS,
) -> WebhookResult:
    """Verify a post with one of the keys (two while one replaces the other) and read its events."""
    if len(request.body) > limits.body_bytes_max:
        return RefusedPost(RefusalReason.TOO_LARGE)
    refusal = _verify(request, keys, now, limits)
    if refusal:
        return RefusedPost(refusal)
    events = _decode(request.body)
    if len(events) > limits.events_max:
        return RefusedPost(RefusalReason.TOO_MANY_EVENTS)
    return accept(_read_events(events, classify))


def _verify(
    request: WebhookRequest,
    keys: tuple[EllipticCurvePublicKey, ...],
    now: datetime,
    limits: WebhookLimits,
) -> RefusalReason | None:
    timestamp = request.headers.get(TIMESTAMP_HEADER, "")
    signed_by = request.headers.get(SIGNATURE_HEADER, "")
    signature = values.decoded_base64(signed_by, SIGNATURE_CHARS_MAX)
    if not timestamp or not signature:
        return RefusalReason.UNSIGNED
    if not values.is_in_window(timestamp, now, limits):
        return RefusalReason.OUTSIDE_WINDOW
    signed = timestamp.encode() + request.body
    if not any(_is_signed(key, signature, signed) for key in keys):
        return RefusalReason.BAD_SIGNATURE
    return None


def _is_signed(key: EllipticCurvePublicKey, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.verify(signature, signed, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _decode(body: bytes) -> list[SendGridEvent | None]:
    """All events at once; if one is malformed, one by one, with None in its place."""
    whole = values.decoded(_whole, body)
    if whole is not None:
        return list(whole)
    pieces = values.decoded(_pieces, body)
    return [None] if pieces is None else [values.decoded(_one, piece) for piece in pieces]


def _read_events(
    events: list[SendGridEvent | None], classify: Classify
) -> Iterator[FeedbackEvent | None]:
    for event in events:
        yield _read_event(event, classify) if event else None


def _read_event(event: SendGridEvent, classify: Classify) -> FeedbackEvent | None:
    kind = _KINDS.get(event.event)
    at = values.moment(event.timestamp)
    if kind is None or at is None or event.sg_machine_open:  # opened by a proxy, not a person
        return None
    if event.event == "dropped" and (event.reason or "").strip().lower() == _UNSUBSCRIBED:
        kind = FeedbackKind.UNSUBSCRIBED
    message = event.sg_message_id or event.smtp_id or ""
    return FeedbackEvent(
        id=_event_id(event, message),
        kind=kind,
        at=at,
        source=SOURCE,
        delivery=_delivery(event),
        address=values.address(event.email),
        classification=_classification(event, kind, classify),
        provider_id=values.name(_MESSAGE_ID_ENDS.split(message, maxsplit=1)[0]),
    )


def _event_id(event: SendGridEvent, message: str) -> str:
    if event.sg_event_id:
        return values.event_id(event.sg_event_id)
    return values.digest(event.event, message, event.email, str(event.timestamp))


def _delivery(event: SendGridEvent) -> str:
    """Read the token from our custom argument, or from the Message-ID if SMTP was used."""
    if event.postroom_delivery:
        return values.delivery(event.postroom_delivery)
    return values.delivery_of_message_id(event.smtp_id) if event.smtp_id else ""


def _classification(
    event: SendGridEvent, kind: FeedbackKind, classify: Classify
) -> Classification | None:
    words = event.reason or event.response or ""
    status = event.status or ""
    if kind is FeedbackKind.BOUNCED:
        return settle(_category(event), status, words, classify)
    if kind is FeedbackKind.DEFERRED:
        return settle(_DEFERRED, status, words, classify)
    return complaint("") if kind is FeedbackKind.COMPLAINED else None


def _category(event: SendGridEvent) -> ProviderCategory:
    if event.event == "dropped":
        return _DROP_REASONS.get((event.reason or "").strip().lower(), ours(firm=False))
    by_cause = _CLASSIFICATIONS.get((event.bounce_classification or "").strip().lower())
    return by_cause or _BOUNCE_TYPES.get(event.type or "", _BOUNCE_TYPES["bounce"])
