"""Mailgun: the signature, replays, and every event."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import mailgun
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    RefusalReason,
    RefusedPost,
    WebhookRequest,
    WebhookResult,
)
from tests.webhook_posts import (
    ADDRESS,
    NOW,
    TOKEN,
    Event,
    Mailgun,
    as_json,
    classify,
    mailgun_event,
)

ACCOUNT = Mailgun()
DELIVERED = mailgun_event("delivered", delivery_status={"code": 250, "message": "OK"})


def read(
    request: WebhookRequest, now: datetime = NOW, keys: tuple[str, ...] = (ACCOUNT.key,)
) -> WebhookResult:
    return mailgun.read(request, keys, now=now, classify=classify)


def read_one(event: Event) -> FeedbackEvent:
    result = read(ACCOUNT.post(event))
    assert isinstance(result, AcceptedPost)
    assert result.unknown == 0
    (found,) = result.events
    return found


def refusal(result: WebhookResult) -> RefusalReason:
    assert isinstance(result, RefusedPost)
    return result.reason


def with_signature(**changed: object) -> WebhookRequest:
    whole = json.loads(ACCOUNT.post(DELIVERED).body)
    whole["signature"] |= changed
    return WebhookRequest(body=as_json(whole))


# --- The signature ----------------------------------------------------------------------------


# Of the tests of grafana/oncall, which verifies with django-anymail; the key is "secret".
PUBLISHED = {
    "timestamp": "1461261330",
    "token": "06c96bafc3f42a66b9edd546347a2fe18dc23461fe80dc52f0",
    "signature": "dbb05e62be402448b36ffb81f6abfb888273c95617aa077b4da355b25bab3670",
}


def test_a_published_signature_is_accepted() -> None:
    post = WebhookRequest(body=as_json({"signature": PUBLISHED, "event-data": DELIVERED}))
    at = datetime.fromtimestamp(1461261330, UTC)
    assert isinstance(read(post, at, ("secret",)), AcceptedPost)
    assert refusal(read(post, at, ("Secret",))) is RefusalReason.BAD_SIGNATURE


def test_an_event_of_a_subaccount_is_accepted_by_the_key_of_its_parent() -> None:
    parent = json.loads(Mailgun(key="parent").post(DELIVERED).body)["signature"]["signature"]
    post = with_signature(**{"parent-signature": parent})
    assert isinstance(read(post, keys=("parent",)), AcceptedPost)
    assert isinstance(read(post), AcceptedPost)
    forged = with_signature(**{"parent-signature": "0" * 64})
    assert refusal(read(forged, keys=("parent",))) is RefusalReason.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"signature": "0" * 64}, RefusalReason.BAD_SIGNATURE),
        ({"token": "b" * 50}, RefusalReason.BAD_SIGNATURE),
        ({"timestamp": str(int(NOW.timestamp()) - 1)}, RefusalReason.BAD_SIGNATURE),
        ({"timestamp": "yesterday"}, RefusalReason.OUTSIDE_WINDOW),
        ({"signature": ""}, RefusalReason.UNSIGNED),
        ({"signature": "0" * 63 + "\n"}, RefusalReason.UNSIGNED),
        ({"token": "../" * 20}, RefusalReason.UNSIGNED),
        ({"token": "x" * 1000}, RefusalReason.UNSIGNED),
        ({"token": None}, RefusalReason.UNSIGNED),
    ],
)
def test_a_forged_signature_is_refused(changed: Event, reason: RefusalReason) -> None:
    assert refusal(read(with_signature(**changed))) is reason


def test_a_timestamp_may_be_a_number() -> None:
    assert isinstance(read(with_signature(timestamp=int(NOW.timestamp()))), AcceptedPost)


@pytest.mark.parametrize("keys", [(), ("",), ("another",)])
def test_without_the_key_nothing_is_accepted(keys: tuple[str, ...]) -> None:
    post = Mailgun(key="").post(DELIVERED)
    assert refusal(read(post, keys=keys)) is RefusalReason.BAD_SIGNATURE
    assert refusal(read(ACCOUNT.post(DELIVERED), keys=keys)) is RefusalReason.BAD_SIGNATURE


@pytest.mark.parametrize("minutes", [-12, 2])
def test_a_post_outside_the_window_is_refused(minutes: int) -> None:
    post = ACCOUNT.post(DELIVERED, at=NOW + timedelta(minutes=minutes))
    assert refusal(read(post)) is RefusalReason.OUTSIDE_WINDOW


def test_a_replayed_token_has_the_same_id_whatever_event_it_carries() -> None:
    """The signature does not cover the event: the id lets storage refuse the second one."""
    whole = json.loads(ACCOUNT.post(DELIVERED, 7).body)
    whole["event-data"] = mailgun_event("complained")
    replayed = read(WebhookRequest(body=as_json(whole)))
    first = read(ACCOUNT.post(DELIVERED, 7))
    assert isinstance(replayed, AcceptedPost)
    assert isinstance(first, AcceptedPost)
    assert replayed.events[0].id == first.events[0].id == f"{7:050x}"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{}", b"\xff"),
        b"[" * 100_000,
        b'{"event-data":' * 50_000,
        ACCOUNT.post(DELIVERED).body[:-1],
    ],
)
def test_a_body_without_a_signature_is_refused(body: bytes) -> None:
    assert refusal(read(WebhookRequest(body=body))) is RefusalReason.UNSIGNED


def test_ten_megabytes_are_refused_before_they_are_parsed() -> None:
    post = ACCOUNT.post(mailgun_event("delivered", filler="x" * 10_000_000))
    assert refusal(read(post)) is RefusalReason.TOO_LARGE


MALFORMED: list[object] = [
    None,
    [],
    {},
    {"event": "delivered"},
    {"event": "delivered", "timestamp": "yesterday"},
    {"event": "delivered", "timestamp": 1e300},
    mailgun_event("stored"),
    mailgun_event("delivered", message="none"),
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_signed_event_that_cannot_be_read_counts_as_unknown(malformed: Event) -> None:
    assert read(ACCOUNT.post(malformed)) == AcceptedPost([], unknown=1)


BODY = ACCOUNT.post(DELIVERED).body


@settings(max_examples=200)
@given(at=st.integers(0, len(BODY) * 8 - 1))
def test_no_flipped_bit_raises(at: int) -> None:
    body = bytearray(BODY)
    body[at // 8] ^= 1 << at % 8
    assert isinstance(read(WebhookRequest(body=bytes(body))), AcceptedPost | RefusedPost)


# --- Events -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (mailgun_event("accepted"), FeedbackKind.ACCEPTED),
        (DELIVERED, FeedbackKind.DELIVERED),
        (mailgun_event("opened", client_info={"bot": ""}), FeedbackKind.OPENED),
        (mailgun_event("clicked", url="https://contoso.example/"), FeedbackKind.CLICKED),
        (mailgun_event("unsubscribed"), FeedbackKind.UNSUBSCRIBED),
        (
            mailgun_event("failed", severity="permanent", reason="suppress-unsubscribe"),
            FeedbackKind.UNSUBSCRIBED,
        ),
    ],
)
def test_an_event_that_is_no_failure(event: Event, kind: FeedbackKind) -> None:
    found = read_one(event)
    assert (found.kind, found.classification) == (kind, None)
    assert (found.delivery, found.address, found.source) == (TOKEN, ADDRESS, "mailgun")
    assert found.provider_id == f"{TOKEN}@contoso.example"
    assert found.at == NOW - timedelta(seconds=0.25)


def failed(severity: str, reason: str, words: str = "", **said: object) -> Event:
    status = {"attempt-no": 1, "code": 550, "message": words, "description": ""} | said
    return mailgun_event("failed", severity=severity, reason=reason, delivery_status=status)


@pytest.mark.parametrize(
    ("event", "kind", "bounce_class", "reason"),
    [
        (failed("permanent", "bounce", "5.1.1 user unknown"), "bounced", "dead", "no_such_user"),
        (failed("permanent", "bounce", "5.7.1 no"), "bounced", "ours", "policy"),
        (failed("permanent", "bounce", "no"), "bounced", "temporary", "unknown"),
        (
            failed("permanent", "bounce", "no", **{"bounce-type": "hard"}),
            "bounced",
            "dead",
            "unknown",
        ),
        (
            failed("permanent", "generic", "no", **{"enhanced-code": "5.2.2"}),
            "bounced",
            "temporary",
            "mailbox_full",
        ),
        (failed("permanent", "suppress-bounce", code=605), "bounced", "dead", "unknown"),
        (failed("permanent", "suppress-complaint", code=607), "bounced", "complaint", "complaint"),
        (failed("permanent", "old", "Too old"), "bounced", "temporary", "expired"),
        (failed("temporary", "generic", "4.2.2 full"), "deferred", "temporary", "mailbox_full"),
        (failed("temporary", "generic", "no"), "deferred", "temporary", "delayed"),
        (failed("temporary", "espblock", "no"), "deferred", "ours", "blocked"),
        (mailgun_event("complained"), "complained", "complaint", "complaint"),
        (
            mailgun_event("rejected", reject={"reason": "Sandbox subdomains are for test"}),
            "bounced",
            "ours",
            "bad_message",
        ),
    ],
)
def test_a_failure_is_classified_by_its_reason_and_the_words(
    event: Event, kind: str, bounce_class: str, reason: str
) -> None:
    found = read_one(event)
    assert found.kind == kind
    assert found.classification
    assert (found.classification.bounce_class, found.classification.reason) == (
        BounceClass(bounce_class),
        BounceReason(reason),
    )


@pytest.mark.parametrize("variables", [{}, [], None, {"postroom_delivery": 5}])
def test_the_message_id_names_the_delivery_if_no_variable_does(variables: object) -> None:
    assert read_one(mailgun_event("delivered", user_variables=variables)).delivery == TOKEN
