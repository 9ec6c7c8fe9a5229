"""SendGrid: signed by the published vector and by ours, forged, replayed, and every event."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.delivery_token import (
    DeliveryId,
    SingleMailId,
    delivery_tokens,
    parse_token,
    single_mail_token,
)
from postroom.domain.errors import BadInput
from postroom.domain.feedback import BounceClass, BounceReason, FeedbackEvent, FeedbackKind
from postroom.feedback.webhooks import sendgrid
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    RefusalReason,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
)
from tests.webhook_posts import (
    ADDRESS,
    NOW,
    TOKEN,
    Event,
    SendGrid,
    classify,
    sendgrid_event,
)

ACCOUNT = SendGrid()


def read(
    request: WebhookRequest, now: datetime = NOW, limits: WebhookLimits | None = None
) -> WebhookResult:
    limits = limits or WebhookLimits()
    return sendgrid.read(request, (ACCOUNT.key,), now=now, classify=classify, limits=limits)


def read_one(event: Event) -> FeedbackEvent:
    result = read(ACCOUNT.post([event]))
    assert isinstance(result, AcceptedPost)
    assert result.unknown == 0
    (found,) = result.events
    return found


def refusal(result: WebhookResult) -> RefusalReason:
    assert isinstance(result, RefusedPost)
    return result.reason


# --- The signature ----------------------------------------------------------------------------

# Of the tests of sendgrid-python and sendgrid-go; the body ends in CR LF.
PUBLISHED_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe6"
    "2gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)
PUBLISHED = WebhookRequest(
    body=(
        b'[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address",'
        b'"sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",'
        b'"sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-'
        b'5F5FC76C-9.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>",'
        b'"timestamp":1600112492}]\r\n'
    ),
    headers={
        sendgrid.SIGNATURE_HEADER: (
            "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqH"
            "h89M15TluLtEZtM="
        ),
        sendgrid.TIMESTAMP_HEADER: "1600112502",
    },
)
PUBLISHED_AT = datetime.fromtimestamp(1600112502, UTC)


def read_published(request: WebhookRequest, key: str = PUBLISHED_KEY) -> WebhookResult:
    keys = (sendgrid.verification_key(key),)
    return sendgrid.read(request, keys, now=PUBLISHED_AT, classify=classify)


def test_the_published_vector_is_accepted() -> None:
    result = read_published(PUBLISHED)
    assert isinstance(result, AcceptedPost)
    (event,) = result.events
    assert event.id == "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA"
    assert event.kind is FeedbackKind.BOUNCED
    assert event.at == datetime.fromtimestamp(1600112492, UTC)
    assert event.provider_id == "LRzXl_NHStOGhQ4kofSm_A"  # the X-Message-Id of the call
    assert event.classification
    assert event.classification.bounce_class is BounceClass.DEAD


def test_the_published_wrong_key_and_signature_are_refused() -> None:
    other_key = (
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqTxd43gyp8IOEto2LdIfjRQrIbsd4SXZkLW6jDutdhXSJCWHw8RE"
        "ntlo7aNDthvj+y7GjUuFDb/R1NGe1OPzpA=="
    )
    other_signature = (
        "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDW"
        "YNH3j/0="
    )
    forged = msgspec.structs.replace(
        PUBLISHED, headers={**PUBLISHED.headers, sendgrid.SIGNATURE_HEADER: other_signature}
    )
    assert refusal(read_published(PUBLISHED, other_key)) is RefusalReason.BAD_SIGNATURE
    assert refusal(read_published(forged)) is RefusalReason.BAD_SIGNATURE


def test_our_signer_signs_like_the_published_one() -> None:
    assert read_published(ACCOUNT.post([]), ACCOUNT.verification_key) != AcceptedPost([])
    result = sendgrid.read(
        ACCOUNT.post([]),
        (sendgrid.verification_key(ACCOUNT.verification_key),),
        now=NOW,
        classify=classify,
    )
    assert result == AcceptedPost([])


@pytest.mark.parametrize(
    "text", ["", "not base64!", base64.b64encode(b"not DER").decode(), PUBLISHED_KEY[:-8]]
)
def test_a_text_that_is_no_key_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="verification key"):
        sendgrid.verification_key(text)


def test_a_post_without_a_signature_is_refused() -> None:
    post = ACCOUNT.post([])
    for missing in (sendgrid.SIGNATURE_HEADER, sendgrid.TIMESTAMP_HEADER):
        headers = {name: value for name, value in post.headers.items() if name != missing}
        unsigned = msgspec.structs.replace(post, headers=headers)
        assert refusal(read(unsigned)) is RefusalReason.UNSIGNED


@pytest.mark.parametrize("bad", ["ä", "A" * 5000, "%%%", "QUJD"])
def test_a_signature_of_any_form_is_refused_without_an_error(bad: str) -> None:
    post = ACCOUNT.post([])
    forged = msgspec.structs.replace(post, headers={**post.headers, sendgrid.SIGNATURE_HEADER: bad})
    assert refusal(read(forged)) in (RefusalReason.UNSIGNED, RefusalReason.BAD_SIGNATURE)


def test_without_a_key_nothing_is_accepted() -> None:
    result = sendgrid.read(ACCOUNT.post([]), (), now=NOW, classify=classify)
    assert refusal(result) is RefusalReason.BAD_SIGNATURE


def test_a_second_key_is_accepted_while_it_replaces_the_first() -> None:
    keys = (SendGrid().key, ACCOUNT.key)
    result = sendgrid.read(ACCOUNT.post([]), keys, now=NOW, classify=classify)
    assert isinstance(result, AcceptedPost)


@pytest.mark.parametrize(
    ("age", "is_accepted"),
    [
        (timedelta(minutes=9), True),
        (timedelta(minutes=10, seconds=59), True),  # with the skew
        (timedelta(minutes=11, seconds=1), False),
        (timedelta(days=365), False),
        (timedelta(seconds=-59), True),
        (timedelta(seconds=-61), False),
    ],
)
def test_a_replayed_post_is_refused_outside_the_window(age: timedelta, is_accepted: bool) -> None:
    result = read(ACCOUNT.post([], NOW - age))
    if is_accepted:
        assert isinstance(result, AcceptedPost)
    else:
        assert refusal(result) is RefusalReason.OUTSIDE_WINDOW


@pytest.mark.parametrize("timestamp", ["١٦٠٠", "-1", "1e9", "9" * 40, " 1600112502"])
def test_a_timestamp_that_is_not_plain_seconds_is_refused(timestamp: str) -> None:
    post = ACCOUNT.post([])
    odd = msgspec.structs.replace(
        post, headers={**post.headers, sendgrid.TIMESTAMP_HEADER: timestamp}
    )
    assert refusal(read(odd)) is RefusalReason.OUTSIDE_WINDOW


SIGNED = ACCOUNT.post([sendgrid_event("bounce", reason="550 5.1.1 user unknown")])


@given(at=st.integers(0, len(SIGNED.body) * 8 - 1))
def test_no_flipped_bit_of_the_body_is_accepted(at: int) -> None:
    body = bytearray(SIGNED.body)
    body[at // 8] ^= 1 << at % 8
    flipped = msgspec.structs.replace(SIGNED, body=bytes(body))
    assert refusal(read(flipped)) is RefusalReason.BAD_SIGNATURE


@given(length=st.integers(0, len(SIGNED.body) - 1))
def test_no_truncated_body_is_accepted(length: int) -> None:
    cut = msgspec.structs.replace(SIGNED, body=SIGNED.body[:length])
    assert refusal(read(cut)) is RefusalReason.BAD_SIGNATURE


# --- Limits and malformed posts ---------------------------------------------------------------


def test_ten_megabytes_are_refused_before_they_are_parsed() -> None:
    post = ACCOUNT.post_body(b"[" + b" " * 10_000_000 + b"]")
    result = read(post)
    assert refusal(result) is RefusalReason.TOO_LARGE
    assert isinstance(result, RefusedPost)
    assert result.http_status == 413


def test_the_size_is_a_parameter() -> None:
    post = ACCOUNT.post_body(b"[" + b" " * 2_000_000 + b"]")
    limits = WebhookLimits(body_bytes_max=3_000_000)
    assert read(post, limits=limits) == AcceptedPost([])


def test_more_events_than_allowed_are_refused_as_a_whole() -> None:
    post = ACCOUNT.post_body(b"[" + b"{}," * 10_000 + b"{}]")
    assert refusal(read(post)) is RefusalReason.TOO_MANY_EVENTS


@pytest.mark.parametrize(
    "body", [b"", b"null", b"{}", b"[", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_signed_body_that_is_no_array_counts_as_unknown(body: bytes) -> None:
    assert read(ACCOUNT.post_body(body)) == AcceptedPost([], unknown=1)


MALFORMED: list[object] = [
    None,
    5,
    "delivered",
    [],
    {},
    {"event": "delivered"},
    {"event": "delivered", "timestamp": "yesterday"},
    {"event": "delivered", "timestamp": -1},
    {"event": "delivered", "timestamp": 1e300},
    {"event": 5, "timestamp": 1600112492},
    {"event": "bounce", "timestamp": 1600112492, "reason": {"deep": []}},
    {"event": "surprise", "timestamp": 1600112492},
    sendgrid_event("group_resubscribe"),
    {"type": "compliance_deactivate", "event": "account_status_change", "timestamp": 1600112492},
]


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_malformed_event_does_not_spoil_its_neighbours(malformed: Event) -> None:
    events = [sendgrid_event("delivered", 1), malformed, sendgrid_event("delivered", 2)]
    result = read(ACCOUNT.post(events))
    assert isinstance(result, AcceptedPost)
    assert (len(result.events), result.unknown) == (2, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    changed=st.dictionaries(
        st.sampled_from(sorted({*sendgrid_event(""), "reason", "status", "type", "response"})),
        JSON,
        max_size=4,
    ),
    event=st.sampled_from(["bounce", "dropped", "deferred", "open", "processed"]),
)
def test_no_signed_event_raises_or_leaves_the_bounds(changed: Event, event: str) -> None:
    result = read(ACCOUNT.post([sendgrid_event(event) | changed]))
    assert isinstance(result, AcceptedPost)
    assert len(result.events) + result.unknown == 1
    for found in result.events:
        assert 1 <= len(found.id) <= 128
        assert found.id.isascii()
        assert found.delivery in ("", TOKEN)
        assert len(found.address) <= 320
        assert len(found.provider_id) <= 256
        if found.classification:
            assert len(found.classification.words) <= 500
            assert found.classification.words.isprintable()


def test_lone_surrogates_do_not_get_through() -> None:
    body = b'[{"event":"bounce","timestamp":1600112492,"sg_event_id":"\\ud800","reason":"\\udfff",'
    body += b'"email":"\\ud800@fabrikam.example"}]'
    result = read(ACCOUNT.post_body(body))
    assert isinstance(result, AcceptedPost)
    for event in result.events:
        assert msgspec.json.encode(event)


def test_a_duplicated_event_has_the_same_id_and_counts_once_in_a_post() -> None:
    event = sendgrid_event("delivered")
    result = read(ACCOUNT.post([event, event]))
    again = read(ACCOUNT.post([event], NOW + timedelta(seconds=30)))
    assert isinstance(result, AcceptedPost)
    assert isinstance(again, AcceptedPost)
    assert [one.id for one in result.events] == [one.id for one in again.events]


def test_an_event_without_an_id_gets_the_same_one_every_time() -> None:
    event = sendgrid_event("dropped", reason="Invalid", sg_event_id=None, sg_message_id=None)
    other = event | {"email": "thomas.hardy@fabrikam.example"}
    assert read_one(event).id == read_one(event).id != read_one(other).id


# --- What events mean -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (sendgrid_event("processed"), FeedbackKind.ACCEPTED),
        (sendgrid_event("delivered", response="250 OK"), FeedbackKind.DELIVERED),
        (sendgrid_event("open", useragent="Mozilla/5.0", ip="192.0.2.1"), FeedbackKind.OPENED),
        (sendgrid_event("click", url="https://contoso.example/"), FeedbackKind.CLICKED),
        (sendgrid_event("unsubscribe"), FeedbackKind.UNSUBSCRIBED),
        (sendgrid_event("group_unsubscribe", asm_group_id=10), FeedbackKind.UNSUBSCRIBED),
        (sendgrid_event("dropped", reason="Unsubscribed Address"), FeedbackKind.UNSUBSCRIBED),
    ],
)
def test_an_event_that_is_no_failure_has_no_classification(event: Event, kind: str) -> None:
    found = read_one(event)
    assert (found.kind, found.classification) == (kind, None)
    assert (found.delivery, found.address, found.source) == (TOKEN, ADDRESS, "sendgrid")
    assert found.at == NOW


BOUNCED = FeedbackKind.BOUNCED


@pytest.mark.parametrize(
    ("event", "kind", "bounce_class", "reason"),
    [
        (
            sendgrid_event("deferred", response="450 4.2.2 full", attempt="5"),
            FeedbackKind.DEFERRED,
            BounceClass.TEMPORARY,
            BounceReason.MAILBOX_FULL,
        ),
        (
            sendgrid_event("deferred", response="try again later"),
            FeedbackKind.DEFERRED,
            BounceClass.TEMPORARY,
            BounceReason.DELAYED,
        ),
        (
            sendgrid_event("spamreport"),
            FeedbackKind.COMPLAINED,
            BounceClass.COMPLAINT,
            BounceReason.COMPLAINT,
        ),
    ],
)
def test_deferrals_and_complaints(
    event: Event, kind: str, bounce_class: BounceClass, reason: BounceReason
) -> None:
    found = read_one(event)
    assert found.kind == kind
    assert found.classification
    assert found.classification.bounce_class is bounce_class
    assert found.classification.reason is reason


@pytest.mark.parametrize(
    ("drop", "bounce_class", "reason"),
    [
        ("Bounced Address", BounceClass.DEAD, BounceReason.UNKNOWN),
        ("Invalid", BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("Spam Reporting Address", BounceClass.COMPLAINT, BounceReason.COMPLAINT),
        ("Spam Content", BounceClass.OURS, BounceReason.SPAM),
        ("Invalid SMTPAPI header", BounceClass.OURS, BounceReason.BAD_MESSAGE),
        ("Recipient List over Package Quota", BounceClass.OURS, BounceReason.POLICY),
        ("Something new", BounceClass.OURS, BounceReason.UNKNOWN),
    ],
)
def test_a_drop_is_a_bounce_with_a_reason(
    drop: str, bounce_class: BounceClass, reason: BounceReason
) -> None:
    found = read_one(sendgrid_event("dropped", reason=drop))
    assert found.kind is BOUNCED
    assert found.classification
    assert found.classification.bounce_class is bounce_class
    assert found.classification.reason is reason
    assert found.classification.words == drop


@pytest.mark.parametrize(
    ("type_", "category", "words", "bounce_class", "reason"),
    [
        ("bounce", "Invalid Address", "550 no", BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("bounce", "Invalid Address", "550 5.1.2", BounceClass.DEAD, BounceReason.NO_SUCH_HOST),
        ("bounce", "Invalid Address", "550 5.7.1", BounceClass.DEAD, BounceReason.NO_SUCH_USER),
        ("blocked", "Reputation", "550 no", BounceClass.OURS, BounceReason.BLOCKED),
        ("blocked", "Reputation", "550 5.1.1", BounceClass.OURS, BounceReason.BLOCKED),
        ("blocked", "Content", "550 5.7.1", BounceClass.OURS, BounceReason.POLICY),
        ("blocked", "Content", "550 no", BounceClass.OURS, BounceReason.SPAM),
        ("blocked", "Technical", "no", BounceClass.TEMPORARY, BounceReason.SYSTEM),
        ("blocked", "Technical Failure", "5.1.2", BounceClass.DEAD, BounceReason.NO_SUCH_HOST),
        ("bounce", "Mailbox Unavailable", "", BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL),
        ("blocked", "Frequency or Volume Too High", "x", BounceClass.TEMPORARY, BounceReason.BUSY),
        ("bounce", "Unclassified", "550 5.7.1", BounceClass.OURS, BounceReason.POLICY),
        ("bounce", "Unclassified", "550 no", BounceClass.TEMPORARY, BounceReason.UNKNOWN),
        ("blocked", "Unclassified", "550 no", BounceClass.OURS, BounceReason.UNKNOWN),
        ("expired", None, "unable to get mx info", BounceClass.TEMPORARY, BounceReason.EXPIRED),
        (None, None, "550 5.1.1", BounceClass.DEAD, BounceReason.NO_SUCH_USER),
    ],
)
def test_a_bounce_is_classified_by_cause_then_words_then_type(
    type_: str | None,
    category: str | None,
    words: str,
    bounce_class: BounceClass,
    reason: BounceReason,
) -> None:
    event = sendgrid_event(
        "bounce", type=type_, bounce_classification=category, reason=words, status="5.0.0"
    )
    found = read_one(event).classification
    assert found
    assert (found.bounce_class, found.reason) == (bounce_class, reason)
    assert (found.words, found.status) == (words, "5.0.0")


def test_the_message_id_names_the_delivery_if_no_custom_argument_does() -> None:
    event = sendgrid_event("delivered", delivery="")
    event["smtp-id"] = f"<{TOKEN.upper()}@contoso.example>"
    assert read_one(event).delivery == TOKEN


@pytest.mark.parametrize("odd", ["", "short", TOKEN + "a", "0" * 32, f"{TOKEN}\n", "a" * 41])
def test_a_token_of_another_form_is_left_out(odd: str) -> None:
    assert read_one(sendgrid_event("delivered", delivery=odd)).delivery == ""


def test_the_tokens_that_we_send_come_back() -> None:
    secret = b"a secret of 32 bytes for tests.."
    token = delivery_tokens(secret, "063898817400000000", 7, [3])[3]
    single = single_mail_token(secret, "0" * 32)
    for sent, named in [
        (token, DeliveryId("063898817400000000", 7, 3)),
        (single, SingleMailId("0" * 32)),
    ]:
        found = read_one(sendgrid_event("delivered", delivery=sent)).delivery
        assert parse_token(secret, found) == named


def test_an_open_by_a_machine_is_not_a_persons() -> None:
    result = read(ACCOUNT.post([sendgrid_event("open", sg_machine_open=True)]))
    assert result == AcceptedPost([], unknown=1)
