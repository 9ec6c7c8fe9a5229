"""What a provider posts to us, and what reading it can result in.

The order is the same for every provider: the size is checked before anything is parsed, the proof
of origin before any event is read. In a post that is proven to come from the provider, an event
that cannot be read is counted and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from postroom.domain.feedback import FeedbackEvent


class WebhookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request as a provider made it; the body byte for byte, because it may be signed."""

    body: bytes
    headers: Mapping[str, str] = {}  # names in lower case
    query: Mapping[str, str] = {}
    method: str = "POST"


class WebhookLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a post is read, and how old its signature may be.

    SendGrid posts up to 768 kB; the others post less. An event that was seen before is recognized
    by its id, so the replay window may be as long as a provider keeps retrying a post without
    signing it again.
    """

    body_bytes_max: int = 1_000_000
    events_max: int = 10_000
    window_s: float = 600.0
    skew_s: float = 60.0  # by which our clock and the provider's may differ


DEFAULT_LIMITS = WebhookLimits()


class RefusalReason(StrEnum):
    """Why a post was not read, without any of its text, so that it can be logged."""

    TOO_LARGE = "too_large"
    TOO_MANY_EVENTS = "too_many_events"
    UNSIGNED = "unsigned"  # no signature or secret, or one of the wrong form
    BAD_SIGNATURE = "bad_signature"  # or a wrong secret
    OUTSIDE_WINDOW = "outside_window"  # signed too long ago, or in the future
    MALFORMED = "malformed"  # a handshake that makes no sense
    WRONG_TOPIC = "wrong_topic"
    BAD_CERTIFICATE_URL = "bad_certificate_url"
    BAD_CERTIFICATE = "bad_certificate"
    CERTIFICATE_UNAVAILABLE = "certificate_unavailable"  # our problem: the provider tries again


_HTTP_STATUS = {
    RefusalReason.TOO_LARGE: 413,
    RefusalReason.TOO_MANY_EVENTS: 413,
    RefusalReason.MALFORMED: 400,
    RefusalReason.CERTIFICATE_UNAVAILABLE: 503,
}


class AcceptedPost(msgspec.Struct, frozen=True):
    """What the provider reported. `unknown` counts events that we cannot use."""

    events: list[FeedbackEvent]  # each id once
    unknown: int = 0  # malformed, of a kind we do not know, or nothing that happened to an email


class SubscriptionNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A topic wants to post to us, or has stopped; only an owner may agree, by opening the URL."""

    topic: str
    url: str  # confirms the subscription
    token: str
    is_over: bool = False  # the subscription was deleted; the URL would restore it


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """Not feedback: the provider asks whether this address wants its posts.

    Answer with status 200, the headers and the body. With a notice, the answer alone confirms
    nothing: an owner has to.
    """

    headers: Mapping[str, str] = {}
    body: bytes = b""
    notice: SubscriptionNotice | None = None


class RefusedPost(msgspec.Struct, frozen=True):
    """A post that is not read at all."""

    reason: RefusalReason

    @property
    def http_status(self) -> int:
        return _HTTP_STATUS.get(self.reason, 403)


WebhookResult = AcceptedPost | Handshake | RefusedPost


def accept(found: Iterable[FeedbackEvent | None], unknown: int = 0) -> AcceptedPost:
    """Keep each event once; None is one that could not be read or is of no use."""
    events: dict[str, FeedbackEvent] = {}
    for event in found:
        if event is None:
            unknown += 1
        else:
            events.setdefault(event.id, event)
    return AcceptedPost(list(events.values()), unknown)
