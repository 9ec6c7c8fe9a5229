"""Event Grid: the secret, both handshakes, both schemas, and every status of an email."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.feedback import BounceClass, BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import event_grid
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    Handshake,
    RefusalReason,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
)
from tests.webhook_posts import (
    ADDRESS,
    TOKEN,
    Event,
    EventGrid,
    acs_event,
    acs_report,
    as_cloud_event,
    as_json,
    classify,
)

GRID = EventGrid()


def read(request: WebhookRequest, limits: WebhookLimits | None = None) -> WebhookResult:
    limits = limits or WebhookLimits()
    return event_grid.read(request, (GRID.secret,), classify=classify, limits=limits)


def read_one(event: Event) -> FeedbackEvent:
    result = read(GRID.post([event]))
    assert isinstance(result, AcceptedPost)
    assert result.unknown == 0
    (found,) = result.events
    return found


def refusal(result: WebhookResult) -> RefusalReason:
    assert isinstance(result, RefusedPost)
    return result.reason


# --- The secret -------------------------------------------------------------------------------

REQUESTS = [GRID.post([acs_report("Delivered")]), GRID.validate(), GRID.ask()]


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", RefusalReason.UNSIGNED),
        ("another", RefusalReason.BAD_SIGNATURE),
        (GRID.secret[:-1], RefusalReason.BAD_SIGNATURE),
        (f"{GRID.secret} ", RefusalReason.BAD_SIGNATURE),
        ("\ud800", RefusalReason.BAD_SIGNATURE),
        ("ä" * 100_000, RefusalReason.BAD_SIGNATURE),
    ],
)
def test_nothing_is_answered_or_read_without_the_secret(
    request_: WebhookRequest, given: str, reason: RefusalReason
) -> None:
    forged = msgspec.structs.replace(request_, query={event_grid.SECRET_QUERY: given})
    assert refusal(read(forged)) is reason


def test_the_secret_may_come_in_a_header() -> None:
    body = GRID.post([acs_report("Delivered")]).body
    headers = {event_grid.SECRET_HEADER: GRID.secret}
    assert isinstance(read(WebhookRequest(body=body, headers=headers)), AcceptedPost)


@pytest.mark.parametrize("secrets", [(), ("",)])
def test_without_a_configured_secret_nothing_is_accepted(secrets: tuple[str, ...]) -> None:
    for post in (GRID.validate(), EventGrid(secret="x").post([])):
        assert isinstance(event_grid.read(post, secrets, classify=classify), RefusedPost)


def test_a_second_secret_is_accepted_while_it_replaces_the_first() -> None:
    result = event_grid.read(GRID.post([]), ("new", GRID.secret), classify=classify)
    assert result == AcceptedPost([])


# --- Handshakes -------------------------------------------------------------------------------


def test_the_validation_code_is_echoed() -> None:
    result = read(GRID.validate("512d38b6-c7b8-40c8-89fe-f46f9e9622b6"))
    assert isinstance(result, Handshake)
    assert json.loads(result.body) == {"validationResponse": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"}
    assert result.headers == {"Content-Type": "application/json"}
    assert result.notice is None


@pytest.mark.parametrize("code", ["", "x" * 201, "<script>\n", 'a"b', "é"])
def test_a_validation_code_of_any_other_form_is_not_echoed(code: str) -> None:
    assert refusal(read(GRID.validate(code))) is RefusalReason.MALFORMED


def test_event_grid_may_post_cloud_events() -> None:
    result = read(GRID.ask())
    assert isinstance(result, Handshake)
    assert result.headers["WebHook-Allowed-Origin"] == "eventgrid.azure.net"
    assert result.headers["WebHook-Allowed-Rate"] == "*"


@pytest.mark.parametrize("origin", ["", "attacker.example", "*", "eventgrid.azure.net\r\nX: y"])
def test_nobody_else_may(origin: str) -> None:
    assert refusal(read(GRID.ask(origin))) is RefusalReason.MALFORMED


# --- Events -----------------------------------------------------------------------------------

BOUNCED = FeedbackKind.BOUNCED


@pytest.mark.parametrize(
    ("status", "words", "kind", "bounce_class", "reason"),
    [
        ("Delivered", None, FeedbackKind.DELIVERED, None, None),
        ("Expanded", None, FeedbackKind.DELIVERED, None, None),
        ("OutForDelivery", None, FeedbackKind.ACCEPTED, None, None),
        ("Bounced", None, BOUNCED, BounceClass.DEAD, BounceReason.UNKNOWN),
        ("Bounced", "550 5.1.1 no", BOUNCED, BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("Bounced", "550 5.7.515 no", BOUNCED, BounceClass.OURS, BounceReason.POLICY),
        ("Suppressed", None, BOUNCED, BounceClass.DEAD, BounceReason.UNKNOWN),
        ("Failed", "452 4.2.2 full", BOUNCED, BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL),
        ("Failed", "[HM08] no", BOUNCED, BounceClass.TEMPORARY, BounceReason.UNKNOWN),
        ("FilteredSpam", "550 5.1.1", BOUNCED, BounceClass.OURS, BounceReason.SPAM),
        ("Quarantined", None, BOUNCED, BounceClass.OURS, BounceReason.SPAM),
    ],
)
def test_every_status_of_a_delivery_report(
    status: str,
    words: str | None,
    kind: FeedbackKind,
    bounce_class: BounceClass | None,
    reason: BounceReason | None,
) -> None:
    event = read_one(acs_report(status, words=words))
    assert event.kind is kind
    assert (event.delivery, event.address, event.source) == (TOKEN, ADDRESS, "acs")
    assert event.id == "00000000-0000-0000-0000-000000000001"
    assert event.provider_id == "f1edbcfb-9d85-4275-ae62-d568141dbc89"
    assert event.at == datetime(2026, 11, 18, 9, 29, 0, 285575, UTC)
    found = event.classification
    assert (found.bounce_class, found.reason) == (bounce_class, reason) if found else not reason
    assert not found or found.words == (words or "")


@pytest.mark.parametrize(
    ("type_", "kind"), [("view", "opened"), ("View", "opened"), ("click", "clicked")]
)
def test_opens_and_clicks(type_: str, kind: str) -> None:
    data = {
        "sender": "news@contoso.example",
        "messageId": "f1edbcfb-9d85-4275-ae62-d568141dbc89",
        "userActionTimeStamp": "2026-11-18T09:29:52.1303595+00:00",
        "engagementContext": "https://contoso.example/",
        "userAgent": "Mozilla/5.0",
        "engagementType": type_,
    }
    event = read_one(acs_event(event_grid.ENGAGEMENT_REPORT, data))
    assert event.kind == kind
    assert event.provider_id == "f1edbcfb-9d85-4275-ae62-d568141dbc89"
    assert event.at == datetime(2026, 11, 18, 9, 29, 52, 130360, UTC)


def test_cloud_events_mean_the_same_alone_and_in_an_array() -> None:
    plain = acs_report("Bounced", words="550 5.1.1 no")
    cloud = as_cloud_event(plain)
    expected = read(GRID.post([plain]))
    assert read(GRID.post([cloud])) == expected
    assert read(GRID.post(cloud)) == expected


def test_the_older_spelling_of_the_time_is_read() -> None:
    report = acs_report("Delivered")
    report["data"]["deliveryAttemptTimeStamp"] = report["data"].pop("deliveryAttemptTimestamp")
    assert read_one(report).at == datetime(2026, 11, 18, 9, 29, 0, 285575, UTC)
    del report["data"]["deliveryAttemptTimeStamp"]
    assert read_one(report).at == datetime(2026, 11, 18, 9, 30, tzinfo=UTC)  # eventTime


def test_a_duplicated_event_counts_once() -> None:
    result = read(GRID.post([acs_report("Delivered"), acs_report("Delivered")]))
    assert isinstance(result, AcceptedPost)
    assert len(result.events) == 1


# --- Limits and malformed posts ---------------------------------------------------------------


def test_ten_megabytes_are_refused_before_they_are_parsed() -> None:
    post = msgspec.structs.replace(GRID.post([]), body=b" " * 10_000_000)
    assert refusal(read(post)) is RefusalReason.TOO_LARGE


def test_more_events_than_allowed_are_refused_as_a_whole() -> None:
    post = GRID.post([acs_report("Delivered", number) for number in range(11)])
    result = read(post, WebhookLimits(events_max=10))
    assert refusal(result) is RefusalReason.TOO_MANY_EVENTS


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[", b"{", b"\xff", b"[" * 100_000, b'[{"data":' * 100_000]
)
def test_a_body_that_is_no_json_counts_as_unknown(body: bytes) -> None:
    post = msgspec.structs.replace(GRID.post([]), body=body)
    assert read(post) == AcceptedPost([], unknown=1)


MALFORMED: list[object] = [
    None,
    {},
    {"id": "1", "eventType": event_grid.DELIVERY_REPORT},
    acs_event(event_grid.DELIVERY_REPORT, {}),
    acs_event(event_grid.DELIVERY_REPORT, {"status": "Surprise"}),
    acs_event(event_grid.DELIVERY_REPORT, {"status": 5}),
    acs_event(event_grid.ENGAGEMENT_REPORT, {"engagementType": "sing"}),
    acs_event("Microsoft.Communication.SMSReceived", {"message": "hi"}),
    acs_report("Delivered") | {"data": {"status": "Delivered", "deliveryAttemptTimestamp": "no"}},
    acs_event(event_grid.SUBSCRIPTION_VALIDATION, {"validationCode": "1"}),  # comes alone
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_malformed_event_does_not_spoil_its_neighbours(malformed: Event) -> None:
    result = read(GRID.post([acs_report("Delivered", 1), malformed, acs_report("Bounced", 2)]))
    assert isinstance(result, AcceptedPost)
    assert (len(result.events), result.unknown) == (2, 1)


BODY = as_json([acs_report("Bounced", words="550 5.1.1 no")])


@settings(max_examples=200)
@given(at=st.integers(0, len(BODY) * 8 - 1))
def test_no_flipped_bit_raises(at: int) -> None:
    body = bytearray(BODY)
    body[at // 8] ^= 1 << at % 8
    result = read(msgspec.structs.replace(GRID.post([]), body=bytes(body)))
    assert isinstance(result, AcceptedPost)
    assert len(result.events) + result.unknown == 1
