"""Amazon SNS: messages signed with RSA, whose certificate is fetched from Amazon.

Canonical string, signature versions and where the certificate may come from:
    https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
    https://docs.aws.amazon.com/sns/latest/dg/
    sns-verify-signature-of-message-verify-message-signature.html
Version 1 signs a SHA-1 hash, version 2 a SHA-256 hash. SNS signs for anybody who has a topic, so
a valid signature proves nothing without the topic's ARN. Anybody who knows the ARN could still
request a subscription, which is why only an owner can confirm one. Raw message delivery has no
signature and is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from postroom.feedback.webhooks import ses, values
from postroom.feedback.webhooks.categories import Classify
from postroom.feedback.webhooks.post import (
    DEFAULT_LIMITS,
    Handshake,
    RefusalReason,
    RefusedPost,
    SubscriptionNotice,
    WebhookLimits,
    WebhookRequest,
    WebhookResult,
    accept,
)

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CERTIFICATES_MAX = 16  # there is one per region, and a new one about once a year
CERTIFICATE_BYTES_MAX = 32_000
FETCHES_WAITING_MAX = 8  # strangers may name any certificate: they must not queue up
FETCH_AGAIN_AFTER_S = 60.0
SIGNATURE_CHARS_MAX = 1400  # RSA of 8192 bits in base64
URL_CHARS_MAX = 2000
TOKEN_CHARS_MAX = 1000

# Only a region: sns.s3-us-west-2.amazonaws.com would be a bucket called “sns”, with any content.
_HOST = r"https://sns\.[a-z]{2,4}(?:-[a-z]{2,12}){1,3}-[0-9]{1,2}\.amazonaws\.com(?:\.cn)?"
# No port, no user, no query: only a file of SNS itself.
_CERTIFICATE_URL = re.compile(rf"{_HOST}/[A-Za-z0-9_-]{{1,100}}\.pem")
_CONFIRM_URL = re.compile(rf"{_HOST}/\?[!-~]+")
_VERSIONS = ("1", "2")  # of signatures
_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_SUBSCRIPTION = (
    *("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
)
_SIGNED_FIELDS = {
    "Notification": _NOTIFICATION,
    "SubscriptionConfirmation": _SUBSCRIPTION,
    "UnsubscribeConfirmation": _SUBSCRIPTION,
}

# Returns the certificate's PEM, or None if it cannot be fetched now. It must use TLS with
# verification, follow no redirect, and give up after a few seconds.
FetchCertificate = Callable[[str], Awaitable[bytes | None]]


class SnsMessage(msgspec.Struct, rename="pascal"):
    """The envelope; `message` is what SES wrote."""

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    signature_version: str
    signature: str
    signing_cert_url: str = msgspec.field(name="SigningCertURL")
    subject: str | None = None
    token: str | None = None
    subscribe_url: str | None = msgspec.field(default=None, name="SubscribeURL")


_envelope = msgspec.json.Decoder(SnsMessage)
_NAMES = {field.encode_name: field.name for field in msgspec.structs.fields(SnsMessage)}


class SigningCertificates:
    """Certificates by URL, fetched once each; bounded, and shared by all requests of a process."""

    def __init__(self, fetch: FetchCertificate, *, kept_max: int = CERTIFICATES_MAX) -> None:
        self._fetch = fetch
        self._kept_max = kept_max
        self._kept: dict[str, Certificate] = {}
        self._failed_until: dict[str, datetime] = {}
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def get(self, url: str, now: datetime) -> Certificate | None:
        """The certificate at a URL that was checked before; None if it cannot be fetched now."""
        if url in self._kept:
            return self._kept[url]
        if self._waiting >= FETCHES_WAITING_MAX or now < self._failed_until.get(url, now):
            return None
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                if url not in self._kept:
                    await self._fetch_and_keep(url, now)
        finally:
            self._waiting -= 1
        return self._kept.get(url)

    async def _fetch_and_keep(self, url: str, now: datetime) -> None:
        certificate = _parsed_certificate(await self._fetch(url))
        if certificate is None:
            self._failed_until[url] = now + timedelta(seconds=FETCH_AGAIN_AFTER_S)
            _drop_oldest(self._failed_until, self._kept_max)
            return
        self._kept[url] = certificate
        _drop_oldest(self._kept, self._kept_max)


def _drop_oldest(kept: dict[str, Certificate] | dict[str, datetime], kept_max: int) -> None:
    if len(kept) > kept_max:
        del kept[next(iter(kept))]


def _parsed_certificate(pem: bytes | None) -> Certificate | None:
    if pem is None or len(pem) > CERTIFICATE_BYTES_MAX:
        return None
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(pem)
    except (ValueError, UnsupportedAlgorithm):
        return None


async def read(
    request: WebhookRequest,
    topics: frozenset[str],
    certificates: SigningCertificates,
    *,
    now: datetime,
    classify: Classify,
    limits: WebhookLimits = DEFAULT_LIMITS,
) -> WebhookResult:
    """Verify a message of one of our topics, by their ARNs, and read the events of SES in it."""
    if len(request.body) > limits.body_bytes_max:
        return RefusedPost(RefusalReason.TOO_LARGE)
    message = values.decoded(_envelope, request.body)
    if message is None:
        return RefusedPost(RefusalReason.UNSIGNED)
    refusal = _check_envelope(message, topics)  # before anything is fetched
    refusal = refusal or await _verify(message, certificates, now)
    if refusal:
        return RefusedPost(refusal)
    if message.type != "Notification":
        return _notice(message)
    report = ses.read_report(message.message, message.message_id, classify)
    if len(report.events) > limits.events_max:
        return RefusedPost(RefusalReason.TOO_MANY_EVENTS)
    return accept(report.events, report.unknown)


def _check_envelope(message: SnsMessage, topics: frozenset[str]) -> RefusalReason | None:
    if message.type not in _SIGNED_FIELDS or message.signature_version not in _VERSIONS:
        return RefusalReason.UNSIGNED
    if message.topic_arn not in topics:
        return RefusalReason.WRONG_TOPIC
    if not _CERTIFICATE_URL.fullmatch(message.signing_cert_url):
        return RefusalReason.BAD_CERTIFICATE_URL
    return None


async def _verify(
    message: SnsMessage, certificates: SigningCertificates, now: datetime
) -> RefusalReason | None:
    signature = values.decoded_base64(message.signature, SIGNATURE_CHARS_MAX)
    signed = canonical(message)
    if not signature or signed is None:
        return RefusalReason.UNSIGNED
    certificate = await certificates.get(message.signing_cert_url, now)
    if certificate is None:
        return RefusalReason.CERTIFICATE_UNAVAILABLE
    return _check_signature(message, certificate, signature, signed, now)


def _check_signature(
    message: SnsMessage, certificate: Certificate, signature: bytes, signed: bytes, now: datetime
) -> RefusalReason | None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    key = certificate.public_key()
    is_valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    if not is_valid or not isinstance(key, RSAPublicKey):
        return RefusalReason.BAD_CERTIFICATE
    try:
        hashed = SHA1() if message.signature_version == "1" else SHA256()
        key.verify(signature, signed, PKCS1v15(), hashed)
    except InvalidSignature:
        return RefusalReason.BAD_SIGNATURE
    return None


def canonical(message: SnsMessage) -> bytes | None:
    """The signed text: names and values of the type's fields, each followed by a line feed."""
    lines: list[str] = []
    for name in _SIGNED_FIELDS[message.type]:
        value: str | None = getattr(message, _NAMES[name])
        if value is not None:
            lines += (name, value)
    try:
        return "".join(f"{each}\n" for each in lines).encode()
    except UnicodeEncodeError:
        return None


def is_confirm_url(url: str) -> bool:
    """Whether a URL leads to SNS, and nowhere else."""
    return len(url) <= URL_CHARS_MAX and _CONFIRM_URL.fullmatch(url) is not None


def _notice(message: SnsMessage) -> WebhookResult:
    url = message.subscribe_url or ""
    token = message.token or ""
    if not 0 < len(token) <= TOKEN_CHARS_MAX or not is_confirm_url(url):
        return RefusedPost(RefusalReason.MALFORMED)
    notice = SubscriptionNotice(
        topic=message.topic_arn,
        url=url,
        token=token,
        is_over=message.type == "UnsubscribeConfirmation",
    )
    return Handshake(notice=notice)
