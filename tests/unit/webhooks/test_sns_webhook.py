"""SNS: signed by Amazon's own examples and by ours, forged, from another host or topic."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.feedback.webhooks import sns
from postroom.feedback.webhooks.post import (
    AcceptedPost,
    Handshake,
    RefusalReason,
    RefusedPost,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
)
from postroom.feedback.webhooks.ses import TOPIC_WORKS
from postroom.feedback.webhooks.sns import SigningCertificates
from tests.unit.webhooks import published_sns
from tests.webhook_posts import NOW, SnsTopic, as_json, classify, ses_report

TOPIC = SnsTopic()
DELIVERED = ses_report("Delivery", "delivery", {"recipients": ["ana@fabrikam.example"]})


async def read(
    request: WebhookRequest, topic: SnsTopic = TOPIC, now: datetime = NOW
) -> WebhookResult:
    certificates = SigningCertificates(topic.fetch)
    topics = frozenset({TOPIC.arn})
    return await sns.read(request, topics, certificates, now=now, classify=classify)


def refusal(result: WebhookResult) -> RefusalReason:
    assert isinstance(result, RefusedPost)
    return result.reason


def changed(request: WebhookRequest, **fields: object) -> WebhookRequest:
    """Change fields after the message was signed."""
    return WebhookRequest(body=as_json(json.loads(request.body) | fields))


# --- The signature ----------------------------------------------------------------------------


async def fetch_published(url: str) -> bytes | None:
    return published_sns.CERTIFICATE if url == published_sns.CERTIFICATE_URL else None


async def read_published(body: bytes, now: datetime) -> WebhookResult:
    return await sns.read(
        WebhookRequest(body=body),
        published_sns.TOPICS,
        SigningCertificates(fetch_published),
        now=now,
        classify=classify,
    )


@pytest.mark.parametrize("body", [published_sns.SIGNED_WITH_SHA1, published_sns.SIGNED_WITH_SHA256])
async def test_what_amazon_signed_is_accepted(body: bytes) -> None:
    at = datetime(2022, 7, 28, 21, 25, tzinfo=UTC)
    assert await read_published(body, at) == AcceptedPost([], unknown=1)  # "Hello world"
    forged = body.replace(b"Hello", b"Jello")
    assert refusal(await read_published(forged, at)) is RefusalReason.BAD_SIGNATURE


async def test_an_expired_certificate_is_refused() -> None:
    late = datetime(2022, 8, 18, tzinfo=UTC)
    result = await read_published(published_sns.SIGNED_WITH_SHA256, late)
    assert refusal(result) is RefusalReason.BAD_CERTIFICATE


@pytest.mark.parametrize("version", ["1", "2"])
async def test_both_versions_of_the_signature_are_accepted(version: str) -> None:
    topic = SnsTopic(version=version)
    result = await read(topic.post(DELIVERED, Subject="Amazon SES Email Event"), topic)
    assert isinstance(result, AcceptedPost)
    assert len(result.events) == 1


async def test_a_version_is_not_accepted_for_the_other() -> None:
    forged = changed(TOPIC.post(DELIVERED), SignatureVersion="1")
    assert refusal(await read(forged)) is RefusalReason.BAD_SIGNATURE
    unheard_of = changed(TOPIC.post(DELIVERED), SignatureVersion="3")
    assert refusal(await read(unheard_of)) is RefusalReason.UNSIGNED


@pytest.mark.parametrize(
    "fields",
    [
        {"Message": "{}"},
        {"MessageId": "another"},
        {"Timestamp": "2026-11-18T09:31:00.000Z"},
        {"Subject": "added"},
        {"Type": "SubscriptionConfirmation"},
    ],
)
async def test_no_signed_field_can_be_changed(fields: dict[str, str]) -> None:
    forged = changed(TOPIC.post(DELIVERED), **fields)
    assert refusal(await read(forged)) is RefusalReason.BAD_SIGNATURE


async def test_another_key_is_refused() -> None:
    stranger = SnsTopic(key_number=1)
    assert refusal(await read(stranger.post(DELIVERED), TOPIC)) is RefusalReason.BAD_SIGNATURE


async def test_another_topic_is_refused_before_anything_is_fetched() -> None:
    other = SnsTopic(arn="arn:aws:sns:eu-central-1:999999999999:not-ours")

    async def fetch(url: str) -> bytes | None:
        raise AssertionError(url)

    result = await sns.read(
        other.post(DELIVERED),
        frozenset({TOPIC.arn}),
        SigningCertificates(fetch),
        now=NOW,
        classify=classify,
    )
    assert refusal(result) is RefusalReason.WRONG_TOPIC


PEM = "SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
WRONG_URLS = [
    f"http://sns.eu-central-1.amazonaws.com/{PEM}",
    f"https://sns.eu-central-1.amazonaws.com.attacker.example/{PEM}",
    f"https://sns.attacker.example/{PEM}",
    f"https://sns.eu-central-1.amazonaws.com@attacker.example/{PEM}",
    f"https://attacker.example/sns.eu-central-1.amazonaws.com/{PEM}",
    f"https://bucket.s3.eu-central-1.amazonaws.com/{PEM}",
    f"https://sns.s3-us-west-2.amazonaws.com/{PEM}",  # a bucket called “sns”
    f"https://sns.s3-external-1.amazonaws.com/{PEM}",
    f"https://sns-eu-central-1.amazonaws.com/{PEM}",
    f"https://sns.eu.central.1.amazonaws.com/{PEM}",
    f"https://sns.eu-central-1.amazonaws.com:8443/{PEM}",
    f"https://sns.eu-central-1.amazonaws.com/{PEM}?x=1",
    f"https://sns.eu-central-1.amazonaws.com/{PEM}#x",
    f"https://sns.eu-central-1.amazonaws.com/{PEM}\n",
    f"https://sns.eu-central-1.amazonaws.com/../{PEM}",
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService.key",
    f"https://sns.eu-central-1.amazonaws.com\\@attacker.example/{PEM}",
    "",
]


@pytest.mark.parametrize("url", WRONG_URLS)
async def test_a_certificate_from_elsewhere_is_refused_and_never_fetched(url: str) -> None:
    elsewhere = SnsTopic(certificate_url=url)
    result = await read(elsewhere.post(DELIVERED), elsewhere)
    assert refusal(result) is RefusalReason.BAD_CERTIFICATE_URL


@pytest.mark.parametrize(
    "host",
    [
        "sns.us-east-1.amazonaws.com",
        "sns.ap-southeast-10.amazonaws.com",
        "sns.us-gov-west-1.amazonaws.com",
        "sns.mx-central-1.amazonaws.com",
        "sns.cn-north-1.amazonaws.com.cn",
        "sns.cn-northwest-1.amazonaws.com.cn",
    ],
)
async def test_the_certificate_of_any_region_is_accepted(host: str) -> None:
    topic = SnsTopic(certificate_url=f"https://{host}/{PEM}")
    assert isinstance(await read(topic.post(DELIVERED), topic), AcceptedPost)


BODY = TOPIC.post(DELIVERED).body
ONE_CERTIFICATE = SigningCertificates(TOPIC.fetch)


@settings(max_examples=200)
@given(at=st.integers(0, len(BODY) * 8 - 1))
async def test_no_flipped_bit_changes_what_is_read(at: int) -> None:
    """Fields that are not signed, such as the names of unknown ones, may change nothing."""
    flipped = bytearray(BODY)
    flipped[at // 8] ^= 1 << at % 8
    topics = frozenset({TOPIC.arn})
    read_both = [
        await sns.read(
            WebhookRequest(body=body), topics, ONE_CERTIFICATE, now=NOW, classify=classify
        )
        for body in (BODY, bytes(flipped))
    ]
    assert read_both[0] == read_both[1] or isinstance(read_both[1], RefusedPost)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        BODY[:-1],
        BODY[:100],
        b"[" * 200_000,
        b'{"unheard":' * 80_000,
        b"\xff\xfe",
        as_json(DELIVERED),  # raw message delivery
        BODY.replace(b'"22b80b92', b'"\\ud800'),
    ],
)
async def test_a_body_that_is_no_signed_message_is_refused(body: bytes) -> None:
    assert refusal(await read(WebhookRequest(body=body))) is RefusalReason.UNSIGNED


@pytest.mark.parametrize("signature", ["", "bad!", "ä", "A" * 5000])
async def test_a_signature_of_any_form_is_refused_without_an_error(signature: str) -> None:
    forged = changed(TOPIC.post(DELIVERED), Signature=signature)
    assert refusal(await read(forged)) is RefusalReason.UNSIGNED


async def test_ten_megabytes_are_refused_before_they_are_parsed() -> None:
    large = TOPIC.post(" " * 10_000_000)
    assert refusal(await read(large)) is RefusalReason.TOO_LARGE


async def test_more_recipients_than_allowed_are_refused_as_a_whole() -> None:
    many = [f"{number}@fabrikam.example" for number in range(11)]
    post = TOPIC.post(ses_report("Delivery", "delivery", {"recipients": many}))
    result = await sns.read(
        post,
        frozenset({TOPIC.arn}),
        SigningCertificates(TOPIC.fetch),
        now=NOW,
        classify=classify,
        limits=WebhookLimits(events_max=10),
    )
    assert refusal(result) is RefusalReason.TOO_MANY_EVENTS


# --- Subscriptions ----------------------------------------------------------------------------


async def test_a_subscription_is_a_notice_that_an_owner_confirms() -> None:
    result = await read(TOPIC.ask())
    assert isinstance(result, Handshake)
    assert result.notice
    assert result.notice.topic == TOPIC.arn
    assert result.notice.url.startswith("https://sns.eu-central-1.amazonaws.com/?Action=Confirm")
    assert result.notice.token in result.notice.url
    assert not result.notice.is_over


async def test_the_end_of_a_subscription_is_a_notice_too() -> None:
    result = await read(TOPIC.ask("UnsubscribeConfirmation"))
    assert isinstance(result, Handshake)
    assert result.notice
    assert result.notice.is_over


@pytest.mark.parametrize(
    "url",
    [
        "https://attacker.example/?Action=ConfirmSubscription",
        "http://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription",
        "https://sns.eu-central-1.amazonaws.com/?" + "x" * 3000,
        "https://sns.s3-us-west-2.amazonaws.com/?Action=ConfirmSubscription",
        "javascript:alert(1)",
        "",
    ],
)
async def test_an_address_to_confirm_at_must_be_amazons(url: str) -> None:
    result = await read(TOPIC.ask(SubscribeURL=url))
    assert refusal(result) is RefusalReason.MALFORMED


async def test_a_forged_subscription_is_refused() -> None:
    forged = changed(TOPIC.ask(), Token="another")
    assert refusal(await read(forged)) is RefusalReason.BAD_SIGNATURE


async def test_the_greeting_of_a_new_topic_says_nothing() -> None:
    assert await read(TOPIC.post(TOPIC_WORKS)) == AcceptedPost([])


# --- Certificates -----------------------------------------------------------------------------


class CountedFetch:
    """Serves the certificate, or nothing, and counts."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.urls: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, url: str) -> bytes | None:
        self.urls.append(url)
        await self.may_answer.wait()
        return self.answer


def url(number: int) -> str:
    return f"https://sns.eu-central-1.amazonaws.com/{number}.pem"


async def test_a_certificate_is_fetched_once_also_by_requests_at_the_same_time() -> None:
    fetch = CountedFetch(TOPIC.pem)
    certificates = SigningCertificates(fetch)
    found = await asyncio.gather(*(certificates.get(url(1), NOW) for _ in range(5)))
    assert all(found)
    assert len(fetch.urls) == 1


async def test_no_more_certificates_are_kept_than_allowed() -> None:
    fetch = CountedFetch(TOPIC.pem)
    certificates = SigningCertificates(fetch, kept_max=2)
    for number in (1, 2, 3, 3, 2, 1):  # 1 gave way to 3
        await certificates.get(url(number), NOW)
    assert fetch.urls == [url(1), url(2), url(3), url(1)]


async def test_a_certificate_that_cannot_be_had_is_not_fetched_again_at_once() -> None:
    fetch = CountedFetch(None)
    certificates = SigningCertificates(fetch)
    post = TOPIC.post(DELIVERED)
    topics = frozenset({TOPIC.arn})
    for seconds in (0, 30, 61):
        now = NOW + timedelta(seconds=seconds)
        result = await sns.read(post, topics, certificates, now=now, classify=classify)
        assert refusal(result) is RefusalReason.CERTIFICATE_UNAVAILABLE
        assert isinstance(result, RefusedPost)
        assert result.http_status == 503  # so that SNS tries again
    assert len(fetch.urls) == 2


@pytest.mark.parametrize("answer", [b"", b"<html>", b"x" * 100_000, TOPIC.pem[:200]])
async def test_an_answer_that_is_no_certificate_counts_as_none(answer: bytes) -> None:
    certificates = SigningCertificates(CountedFetch(answer))
    assert await certificates.get(url(1), NOW) is None


async def test_strangers_cannot_make_requests_queue_up() -> None:
    fetch = CountedFetch(TOPIC.pem)
    fetch.may_answer.clear()
    certificates = SigningCertificates(fetch)
    waiting = [
        asyncio.create_task(certificates.get(url(number), NOW))
        for number in range(sns.FETCHES_WAITING_MAX)
    ]
    await asyncio.sleep(0)
    assert await certificates.get(url(99), NOW) is None
    fetch.may_answer.set()
    assert all(await asyncio.gather(*waiting))
    assert await certificates.get(url(99), NOW)


def test_the_envelope_has_the_fields_of_the_canonical_text() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(sns.SnsMessage)}
    assert {"SubscribeURL", "Subject", "Token", "TopicArn", "SigningCertURL"} <= fields
