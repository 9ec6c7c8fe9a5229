"""Azure Event Grid: email events of Azure Communication Services, and two kinds of handshake.

Events, in the Event Grid schema and as CloudEvents 1.0:
    https://learn.microsoft.com/azure/event-grid/communication-services-email-events
Handshakes:
    https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema
    https://learn.microsoft.com/azure/event-grid/end-point-validation-cloud-events-schema
    https://github.com/cloudevents/spec/blob/v1.0/http-webhook.md (4, abuse protection)

Event Grid signs nothing. The proof of origin is a secret that the event subscription carries, in
the query of its URL or in a header (a *delivery property*). A handshake must carry it too, so
that nobody else can point a subscription at us. Communication Services has no custom arguments:
our delivery token is the local part of `internetMessageId`, and `messageId` is the operation that
sent the email.
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from postroom.domain.feedback import BounceReason, Classification, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import values
from postroom.feedback.webhooks.categories import (
    Classify,
    dead,
    ours,
    settle,
    temporary,
)
from postroom.feedback.webhooks.post import (
    DEFAULT_LIMITS,
    Handshake,
    RefusalReason,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
    accept,
)

SOURCE = "acs"
SECRET_QUERY = "secret"
SECRET_HEADER = "x-postroom-secret"
DELIVERY_REPORT = "Microsoft.Communication.EmailDeliveryReportReceived"
ENGAGEMENT_REPORT = "Microsoft.Communication.EmailEngagementTrackingReportReceived"
SUBSCRIPTION_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
# The public cloud, and those of the US government and China.
ORIGINS = frozenset({"eventgrid.azure.net", "eventgrid.azure.us", "eventgrid.azure.cn"})

_VALIDATION_CODE = re.compile(r"[!#-\[\]-~]{1,200}")  # printable, without quote and backslash

_STATUS_KINDS = {
    "Delivered": FeedbackKind.DELIVERED,
    "Expanded": FeedbackKind.DELIVERED,  # to a distribution list, which was taken apart
    "OutForDelivery": FeedbackKind.ACCEPTED,
    "Bounced": FeedbackKind.BOUNCED,
    "Failed": FeedbackKind.BOUNCED,
    "FilteredSpam": FeedbackKind.BOUNCED,
    "Quarantined": FeedbackKind.BOUNCED,
    "Suppressed": FeedbackKind.BOUNCED,
}
_CATEGORIES = {
    "Bounced": dead(firm=False),  # "hard bounce", whatever the server's reason
    "Suppressed": dead(firm=False),  # after hard bounces
    "Failed": temporary(firm=False),
    "FilteredSpam": ours(BounceReason.SPAM),
    "Quarantined": ours(BounceReason.SPAM),
}
_ENGAGEMENTS = {"view": FeedbackKind.OPENED, "click": FeedbackKind.CLICKED}


class AcsStatusDetails(msgspec.Struct, rename="camel"):
    """The response of the recipient's server."""

    status_message: str | None = None


class AcsData(msgspec.Struct, rename="camel"):
    """The data of both kinds of events; the documents spell the timestamps in two ways."""

    recipient: str | None = None
    message_id: str | None = None
    internet_message_id: str | None = None
    status: str | None = None
    delivery_status_details: AcsStatusDetails | None = None
    delivery_attempt_timestamp: str | None = None
    delivery_attempt_time_stamp: str | None = None
    user_action_timestamp: str | None = None
    user_action_time_stamp: str | None = None
    engagement_type: str | None = None
    validation_code: str | None = None


class GridEvent(msgspec.Struct, rename="camel"):
    """An event in either schema: `eventType` and `eventTime`, or `type` and `time`."""

    id: str
    data: AcsData
    event_type: str | None = None
    type: str | None = None
    event_time: str | None = None
    time: str | None = None


_pieces = msgspec.json.Decoder(list[msgspec.Raw])
_one = msgspec.json.Decoder(GridEvent)


def read(
    request: WebhookRequest,
    secrets: tuple[str, ...],
    *,
    classify: Classify,
    limits: WebhookLimits = DEFAULT_LIMITS,
) -> WebhookResult:
    """Check the secret (two while one replaces the other), then answer or read the events."""
    if len(request.body) > limits.body_bytes_max:
        return RefusedPost(RefusalReason.TOO_LARGE)
    given = request.headers.get(SECRET_HEADER) or request.query.get(SECRET_QUERY) or ""
    if not given:
        return RefusedPost(RefusalReason.UNSIGNED)
    if not values.is_secret(given, secrets):
        return RefusedPost(RefusalReason.BAD_SIGNATURE)
    if request.method == "OPTIONS":
        return _allow_origin(request)
    pieces = _split(request.body)
    if pieces is None:
        return accept([None])
    if len(pieces) > limits.events_max:
        return RefusedPost(RefusalReason.TOO_MANY_EVENTS)
    events = [values.decoded(_one, piece) for piece in pieces]
    if len(events) == 1 and events[0] and events[0].event_type == SUBSCRIPTION_VALIDATION:
        return _echo_code(events[0])
    return accept(_read_event(event, classify) if event else None for event in events)


def _split(body: bytes) -> list[msgspec.Raw] | None:
    """The events of an array; a CloudEvent may also come alone."""
    if body.lstrip().startswith(b"{"):
        body = b"[" + body + b"]"
    return values.decoded(_pieces, body)


def _allow_origin(request: WebhookRequest) -> WebhookResult:
    origin = request.headers.get("webhook-request-origin", "").strip().lower()
    if origin not in ORIGINS:
        return RefusedPost(RefusalReason.MALFORMED)
    return Handshake(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})


def _echo_code(event: GridEvent) -> WebhookResult:
    code = event.data.validation_code or ""
    if not _VALIDATION_CODE.fullmatch(code):
        return RefusedPost(RefusalReason.MALFORMED)
    return Handshake(
        headers={"Content-Type": "application/json"},
        body=msgspec.json.encode({"validationResponse": code}),
    )


def _read_event(event: GridEvent, classify: Classify) -> FeedbackEvent | None:
    data = event.data
    kind = _kind(event)
    at = _happened_at(event)
    if kind is None or at is None:
        return None
    return FeedbackEvent(
        id=values.event_id(event.id),
        kind=kind,
        at=at,
        source=SOURCE,
        delivery=values.delivery_of_message_id(data.internet_message_id or ""),
        address=values.address(data.recipient or ""),
        classification=_classification(data, classify) if kind is FeedbackKind.BOUNCED else None,
        provider_id=values.name(data.message_id or ""),
    )


def _kind(event: GridEvent) -> FeedbackKind | None:
    type_ = event.event_type or event.type
    if type_ == DELIVERY_REPORT:
        return _STATUS_KINDS.get(event.data.status or "")
    if type_ == ENGAGEMENT_REPORT:
        return _ENGAGEMENTS.get((event.data.engagement_type or "").lower())
    return None


def _happened_at(event: GridEvent) -> datetime | None:
    data = event.data
    return values.moment(
        data.delivery_attempt_timestamp
        or data.delivery_attempt_time_stamp
        or data.user_action_timestamp
        or data.user_action_time_stamp
        or event.event_time
        or event.time
    )


def _classification(data: AcsData, classify: Classify) -> Classification:
    details = data.delivery_status_details
    words = details.status_message if details else None
    return settle(_CATEGORIES[data.status or ""], "", words or "", classify)
