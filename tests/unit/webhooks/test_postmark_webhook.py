"""Postmark: login or header, and every event and type of bounce."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import postmark
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    RefusalReason,
    RefusedPost,
    WebhookRequest,
    WebhookResult,
)
from postroom.feedback.webhooks.postmark import PostmarkSecrets
from tests.webhook_posts import (
    ADDRESS,
    TOKEN,
    Event,
    Postmark,
    as_json,
    classify,
    postmark_bounce,
    postmark_event,
)

SERVER = Postmark()
AT = "2026-11-18T09:29:54.9070259Z"
DELIVERED = postmark_event("Delivery", Recipient=ADDRESS, DeliveredAt=AT, Details="250 ok")


def read(request: WebhookRequest, secrets: PostmarkSecrets = SERVER.secrets) -> WebhookResult:
    return postmark.read(request, secrets, classify=classify)


def read_one(event: Event) -> FeedbackEvent:
    result = read(SERVER.post(event))
    assert isinstance(result, AcceptedPost)
    assert result.unknown == 0
    (found,) = result.events
    return found


def refusal(result: WebhookResult) -> RefusalReason:
    assert isinstance(result, RefusedPost)
    return result.reason


# --- The proof of origin ----------------------------------------------------------------------


def test_a_login_or_a_header_is_enough() -> None:
    assert isinstance(read(SERVER.post(DELIVERED)), AcceptedPost)
    assert isinstance(read(Postmark(login="").post(DELIVERED)), AcceptedPost)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, RefusalReason.UNSIGNED),
        ({"authorization": "Basic"}, RefusalReason.BAD_SIGNATURE),
        ({"authorization": "Basic cG9zdG1hcms6d3Jvbmc="}, RefusalReason.BAD_SIGNATURE),
        ({"authorization": "Bearer contoso-postmark-secret"}, RefusalReason.BAD_SIGNATURE),
        ({"authorization": "Basic ä\ud800"}, RefusalReason.BAD_SIGNATURE),
        ({postmark.SECRET_HEADER: "wrong"}, RefusalReason.BAD_SIGNATURE),
        ({postmark.SECRET_HEADER: SERVER.login}, RefusalReason.BAD_SIGNATURE),
    ],
)
def test_a_post_without_either_is_refused(headers: dict[str, str], reason: RefusalReason) -> None:
    assert refusal(read(WebhookRequest(body=as_json(DELIVERED), headers=headers))) is reason


@pytest.mark.parametrize(
    "secrets", [PostmarkSecrets(), PostmarkSecrets(logins=("",), headers=("",))]
)
def test_without_a_configured_secret_nothing_is_accepted(secrets: PostmarkSecrets) -> None:
    empty = WebhookRequest(body=as_json(DELIVERED), headers={"authorization": "Basic "})
    for post in (SERVER.post(DELIVERED), Postmark(login="").post(DELIVERED), empty):
        assert refusal(read(post, secrets)) is RefusalReason.BAD_SIGNATURE


def test_ten_megabytes_are_refused_before_they_are_parsed() -> None:
    post = SERVER.post(postmark_event("Delivery", Filler="x" * 10_000_000))
    assert refusal(read(post)) is RefusalReason.TOO_LARGE


# --- Events -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (DELIVERED, FeedbackKind.DELIVERED),
        (
            postmark_event("Open", Recipient=ADDRESS, ReceivedAt=AT, FirstOpen=True),
            FeedbackKind.OPENED,
        ),
        (
            postmark_event(
                "Click", Recipient=ADDRESS, ReceivedAt=AT, OriginalLink="https://contoso.example/"
            ),
            FeedbackKind.CLICKED,
        ),
        (
            postmark_event(
                "SubscriptionChange",
                Recipient=ADDRESS,
                ChangedAt=AT,
                Origin="Recipient",
                SuppressSending=True,
                SuppressionReason="ManualSuppression",
            ),
            FeedbackKind.UNSUBSCRIBED,
        ),
    ],
)
def test_an_event_that_is_no_failure(event: Event, kind: FeedbackKind) -> None:
    found = read_one(event)
    assert (found.kind, found.classification) == (kind, None)
    assert (found.delivery, found.address, found.source) == (TOKEN, ADDRESS, "postmark")
    assert found.provider_id == "883953f4-6105-42a2-a16a-77a8eac79483"
    assert found.at == datetime(2026, 11, 18, 9, 29, 54, 907026, UTC)


@pytest.mark.parametrize(
    ("code", "name", "words", "kind", "bounce_class", "reason"),
    [
        (1, "HardBounce", "550 no", "bounced", "dead", "no_such_user"),
        (1, "HardBounce", "550 5.7.1 no", "bounced", "ours", "policy"),
        (2, "Transient", "421 no", "deferred", "temporary", "delayed"),
        (256, "DnsError", "", "deferred", "temporary", "network"),
        (512, "SpamNotification", "", "bounced", "ours", "spam"),
        (2048, "Unknown", "", "bounced", "temporary", "unknown"),
        (4096, "SoftBounce", "552 5.2.2", "bounced", "temporary", "mailbox_full"),
        (8192, "VirusNotification", "", "bounced", "ours", "spam"),
        (100000, "BadEmailAddress", "", "bounced", "dead", "no_such_user"),
        (100001, "SpamComplaint", "", "complained", "complaint", "complaint"),
        (100003, "Unconfirmed", "", "bounced", "ours", "policy"),
        (100006, "Blocked", "550 5.1.1", "bounced", "ours", "blocked"),
        (100007, "SMTPApiError", "", "bounced", "ours", "bad_message"),
        (100009, "DMARCPolicy", "", "bounced", "ours", "authentication"),
        (100010, "TemplateRenderingFailed", "", "bounced", "ours", "bad_message"),
    ],
)
def test_every_type_of_bounce(
    code: int, name: str, words: str, kind: str, bounce_class: str, reason: str
) -> None:
    found = read_one(postmark_bounce(code, name, words))
    assert found.kind == kind
    assert found.id == "Bounce.692560173"
    assert found.classification
    assert (found.classification.bounce_class, found.classification.reason) == (
        BounceClass(bounce_class),
        BounceReason(reason),
    )


@pytest.mark.parametrize(("code", "name"), [(16, "Unsubscribe"), (100002, "ManuallyDeactivated")])
def test_bounces_of_people_who_unsubscribed(code: int, name: str) -> None:
    found = read_one(postmark_bounce(code, name))
    assert (found.kind, found.classification) == (FeedbackKind.UNSUBSCRIBED, None)


def test_a_spam_complaint() -> None:
    event = postmark_bounce(100001, "SpamComplaint") | {"RecordType": "SpamComplaint"}
    found = read_one(event)
    assert found.kind is FeedbackKind.COMPLAINED
    assert found.classification
    assert found.classification.bounce_class is BounceClass.COMPLAINT


@pytest.mark.parametrize(
    ("why", "kind"), [("HardBounce", "bounced"), ("SpamComplaint", "complained")]
)
def test_a_suppression_says_why(why: str, kind: str) -> None:
    event = postmark_event(
        "SubscriptionChange",
        Recipient=ADDRESS,
        ChangedAt=AT,
        SuppressSending=True,
        SuppressionReason=why,
    )
    assert read_one(event).kind == kind


def test_events_without_an_id_get_the_same_one_every_time() -> None:
    later = DELIVERED | {"DeliveredAt": "2026-11-18T09:29:55Z"}
    opened = postmark_event("Open", Recipient=ADDRESS, ReceivedAt=AT)
    ids = [read_one(event).id for event in (DELIVERED, DELIVERED, later, opened)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


MALFORMED: list[object] = [
    None,
    [],
    {},
    {"RecordType": 5},
    postmark_event("Inbound"),
    postmark_event("Delivery", Recipient=ADDRESS),
    postmark_event("Delivery", Recipient=ADDRESS, DeliveredAt="yesterday"),
    postmark_event("SubscriptionChange", ChangedAt=AT, SuppressSending=False),
    postmark_event("SubscriptionChange", ChangedAt=AT, SuppressSending=True),
    postmark_bounce(32, "Subscribe"),
    postmark_bounce(64, "AutoResponder"),
    postmark_bounce(128, "AddressChange"),
    postmark_bounce(16384, "ChallengeVerification"),
    postmark_bounce(7, "Surprise"),
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_what_is_no_feedback_counts_as_unknown(malformed: Event) -> None:
    assert read(SERVER.post(malformed)) == AcceptedPost([], unknown=1)


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"Metadata":' * 50_000, b"\xff"])
def test_a_body_that_is_no_json_counts_as_unknown(body: bytes) -> None:
    post = msgspec.structs.replace(SERVER.post(DELIVERED), body=body)
    assert read(post) == AcceptedPost([], unknown=1)


BODY = as_json(postmark_bounce(1, "HardBounce", "550 5.1.1"))


@settings(max_examples=200)
@given(at=st.integers(0, len(BODY) * 8 - 1))
def test_no_flipped_bit_raises(at: int) -> None:
    body = bytearray(BODY)
    body[at // 8] ^= 1 << at % 8
    result = read(msgspec.structs.replace(SERVER.post(DELIVERED), body=bytes(body)))
    assert isinstance(result, AcceptedPost)
    assert len(result.events) + result.unknown == 1
