"""Postmark's webhooks: no signature, but basic authentication or a header of our choice.

    https://postmarkapp.com/developer/webhooks/webhooks-overview
    https://postmarkapp.com/developer/webhooks/bounce-webhook (and the pages beside it)
    https://postmarkapp.com/developer/api/bounce-api (bounce types and their codes)

One post has one event. Our delivery token is `postroom_delivery` in `Metadata`. Only bounces and
spam complaints have their own id; the id of any other event is made from its contents, which
are the same when Postmark posts it again.
"""

from __future__ import annotations

import base64

import msgspec

from postroom.domain.feedback import BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import values
from postroom.feedback.webhooks.categories import (
    COMPLAINT,
    Classify,
    ProviderCategory,
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

SOURCE = "postmark"
SECRET_HEADER = "x-postroom-secret"


class PostmarkFinding(msgspec.Struct, frozen=True):
    """What an event or a type of bounce means."""

    kind: FeedbackKind
    category: ProviderCategory | None = None


_LEFT = PostmarkFinding(FeedbackKind.UNSUBSCRIBED)
_COMPLAINED = PostmarkFinding(FeedbackKind.COMPLAINED, COMPLAINT)
_UNCLEAR = PostmarkFinding(FeedbackKind.BOUNCED, temporary(firm=False))

# By TypeCode. Replies of machines and people, and what has nothing to do with an email of ours,
# are left out: Subscribe 32, AutoResponder 64, AddressChange 128, OpenRelayTest 1024,
# ChallengeVerification 16384, InboundError 100008.
_BOUNCES = {
    1: PostmarkFinding(FeedbackKind.BOUNCED, dead(BounceReason.NO_SUCH_USER, firm=False)),
    2: PostmarkFinding(FeedbackKind.DEFERRED, temporary(BounceReason.DELAYED, firm=False)),
    16: _LEFT,
    256: PostmarkFinding(FeedbackKind.DEFERRED, temporary(BounceReason.NETWORK)),  # DnsError
    512: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.SPAM)),  # SpamNotification
    2048: _UNCLEAR,  # Unknown
    4096: _UNCLEAR,  # SoftBounce
    8192: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.SPAM)),  # VirusNotification
    100000: PostmarkFinding(FeedbackKind.BOUNCED, dead(BounceReason.NO_SUCH_USER)),
    100001: _COMPLAINED,
    100002: _LEFT,  # ManuallyDeactivated
    100003: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.POLICY)),  # Unconfirmed
    100006: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.BLOCKED)),
    100007: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.BAD_MESSAGE)),
    100009: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.AUTHENTICATION)),
    100010: PostmarkFinding(FeedbackKind.BOUNCED, ours(BounceReason.BAD_MESSAGE)),
}
_SUPPRESSIONS = {
    "ManualSuppression": _LEFT,
    "SpamComplaint": _COMPLAINED,
    "HardBounce": _BOUNCES[1],
}
_RECORDS = {
    "Delivery": PostmarkFinding(FeedbackKind.DELIVERED),
    "SpamComplaint": _COMPLAINED,
    "Open": PostmarkFinding(FeedbackKind.OPENED),
    "Click": PostmarkFinding(FeedbackKind.CLICKED),
}


class PostmarkSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What a post must carry: one of the logins, or one of the header's values."""

    logins: tuple[str, ...] = ()  # "user:password"
    headers: tuple[str, ...] = ()  # the value of X-Postroom-Secret


class PostmarkEvent(msgspec.Struct, rename="pascal"):
    """An event of any type, with only the keys that we read."""

    record_type: str
    message_id: str = msgspec.field(default="", name="MessageID")
    id: int | None = msgspec.field(default=None, name="ID")
    type_code: int | None = None
    email: str | None = None
    recipient: str | None = None
    details: str | None = None
    description: str | None = None
    bounced_at: str | None = None
    delivered_at: str | None = None
    received_at: str | None = None
    changed_at: str | None = None
    suppress_sending: bool = False
    suppression_reason: str | None = None
    original_link: str | None = None
    metadata: dict[str, object] | None = None


_event = msgspec.json.Decoder(PostmarkEvent)


def read(
    request: WebhookRequest,
    secrets: PostmarkSecrets,
    *,
    classify: Classify,
    limits: WebhookLimits = DEFAULT_LIMITS,
) -> WebhookResult:
    """Check the login or the secret of a post, and read its event."""
    if len(request.body) > limits.body_bytes_max:
        return RefusedPost(RefusalReason.TOO_LARGE)
    login = request.headers.get("authorization", "")
    secret = request.headers.get(SECRET_HEADER, "")
    if not login and not secret:
        return RefusedPost(RefusalReason.UNSIGNED)
    if not _is_login(login, secrets) and not values.is_secret(secret, secrets.headers):
        return RefusedPost(RefusalReason.BAD_SIGNATURE)
    event = values.decoded(_event, request.body)
    return accept([_read_event(event, classify) if event else None])


def _is_login(given: str, secrets: PostmarkSecrets) -> bool:
    scheme, _space, credentials = given.partition(" ")
    expected = [base64.b64encode(login.encode()).decode() for login in secrets.logins if login]
    return scheme.lower() == "basic" and values.is_secret(credentials.strip(), expected)


def _read_event(event: PostmarkEvent, classify: Classify) -> FeedbackEvent | None:
    finding = _finding(event)
    happened = event.bounced_at or event.delivered_at or event.received_at or event.changed_at
    at = values.moment(happened)
    if finding is None or at is None:
        return None
    address = event.email or event.recipient or ""
    words = event.details or event.description or ""
    category = finding.category
    return FeedbackEvent(
        id=_event_id(event, address, happened or ""),
        kind=finding.kind,
        at=at,
        source=SOURCE,
        delivery=_delivery(event),
        address=values.address(address),
        classification=settle(category, "", words, classify) if category else None,
        provider_id=values.name(event.message_id),
    )


def _finding(event: PostmarkEvent) -> PostmarkFinding | None:
    match event.record_type:
        case "Bounce":
            return _BOUNCES.get(event.type_code or 0)
        case "SubscriptionChange" if event.suppress_sending:
            return _SUPPRESSIONS.get(event.suppression_reason or "")
    return _RECORDS.get(event.record_type)


def _event_id(event: PostmarkEvent, address: str, happened: str) -> str:
    if event.id:
        return values.event_id(event.record_type, str(event.id))
    link = event.original_link or ""
    return values.digest(event.record_type, event.message_id, address, happened, link)


def _delivery(event: PostmarkEvent) -> str:
    token = (event.metadata or {}).get(values.DELIVERY_ARGUMENT)
    return values.delivery(token) if isinstance(token, str) else ""
