"""Posts of mail providers, signed as the providers sign them, with the events in their shapes.

For tests of the parsers, and for load and kill tests of what receives them. The shapes follow the
documents that the modules of `postroom.feedback.webhooks` cite.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from postroom.domain.feedback import BounceClass, BounceReason, Classification
from postroom.feedback.webhooks import event_grid, postmark, sendgrid
from postroom.feedback.webhooks.post import WebhookRequest

NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
ADDRESS = "ana.trujillo@fabrikam.example"
TOKEN = "abcdefghijklmnop234567abcdefghij"  # by its form; tests that need the MAC make their own
MESSAGE_ID = f"<{TOKEN}@contoso.example>"

Event = dict[str, Any]


def classify(status: str, words: str) -> Classification:
    """Just enough to tell the three classes apart; the real one is feedback/classify.py."""
    said = f"{status} {words}".lower()
    found = (BounceClass.TEMPORARY, BounceReason.UNKNOWN)
    if "5.1.1" in said or "user unknown" in said:
        found = (BounceClass.DEAD, BounceReason.NO_SUCH_USER)
    elif "5.1.2" in said:
        found = (BounceClass.DEAD, BounceReason.NO_SUCH_HOST)
    elif ".7." in said:
        found = (BounceClass.OURS, BounceReason.POLICY)
    elif "4.2.2" in said or "5.2.2" in said:
        found = (BounceClass.TEMPORARY, BounceReason.MAILBOX_FULL)
    return Classification(*found, status, words)


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def seconds(at: datetime) -> str:
    return str(int(at.timestamp()))


def written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


# --- SendGrid ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SendGrid:
    """An account with signed webhooks."""

    private_key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    @property
    def key(self) -> ec.EllipticCurvePublicKey:
        return self.private_key.public_key()

    @property
    def verification_key(self) -> str:
        """The key as an owner copies it from SendGrid's pages."""
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        return base64.b64encode(self.key.public_bytes(serialization.Encoding.DER, spki)).decode()

    def post(self, events: Sequence[Event], at: datetime = NOW) -> WebhookRequest:
        return self.post_body(as_json(events) + b"\r\n", at)

    def post_body(self, body: bytes, at: datetime = NOW) -> WebhookRequest:
        timestamp = seconds(at)
        signature = self.private_key.sign(timestamp.encode() + body, ec.ECDSA(hashes.SHA256()))
        headers = {
            "content-type": "application/json",
            sendgrid.TIMESTAMP_HEADER: timestamp,
            sendgrid.SIGNATURE_HEADER: base64.b64encode(signature).decode(),
        }
        return WebhookRequest(body=body, headers=headers)


def sendgrid_event(
    event: str,
    number: int = 1,
    *,
    delivery: str = TOKEN,
    address: str = ADDRESS,
    at: datetime = NOW,
    **more: object,
) -> Event:
    return {
        "email": address,
        "timestamp": int(at.timestamp()),
        "smtp-id": "<14c5d75ce93.dfd.64b469@ismtpd-555>",
        "event": event,
        "category": ["newsletter"],
        "sg_event_id": f"sendgrid-event-{event}-{number:010d}",
        "sg_message_id": "LRzXl_NHStOGhQ4kofSm_A.filterdrecv-756b745b58-kmzbl-18-5F5FC76C-9.0",
        "postroom_delivery": delivery,
    } | more


# --- Amazon SES over SNS ----------------------------------------------------------------------

NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
SUBSCRIPTION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


@lru_cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    """Made once for each number: it takes a moment."""
    del number
    return rsa.generate_private_key(65537, 2048)


@dataclass(frozen=True)
class SnsTopic:
    """A topic, and the key and certificate that SNS signs its messages with."""

    arn: str = "arn:aws:sns:eu-central-1:123456789012:contoso-mail"
    certificate_url: str = (
        "https://sns.eu-central-1.amazonaws.com/"
        "SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
    )
    version: str = "2"
    key_number: int = 0
    valid_from: datetime = NOW - timedelta(days=100)
    valid_until: datetime = NOW + timedelta(days=265)

    @cached_property
    def pem(self) -> bytes:
        key = rsa_key(self.key_number)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
        builder = builder.not_valid_before(self.valid_from).not_valid_after(self.valid_until)
        certificate = builder.sign(key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    async def fetch(self, url: str) -> bytes | None:
        """What SNS serves at the URL of its certificate."""
        return self.pem if url == self.certificate_url else None

    def post(self, report: Event | str, number: int = 1, **changed: str) -> WebhookRequest:
        """A notification with a report of SES; `changed` fields are signed, too."""
        message = report if isinstance(report, str) else as_json(report).decode()
        fields = self._fields("Notification", message, number) | changed
        return self.sign(fields, NOTIFICATION)

    def ask(self, type_: str = "SubscriptionConfirmation", **changed: str) -> WebhookRequest:
        """The request to confirm a subscription, or the notice that it is over."""
        host = self.certificate_url.rpartition("/")[0]
        token = "2336412f37fb687f5d51e6e241d09c805a5a57b30d712f794cc5f6a988666d92"
        asked = {
            "Token": token,
            "SubscribeURL": f"{host}/?Action=ConfirmSubscription&TopicArn={self.arn}&Token={token}",
        }
        words = f"You have chosen to subscribe to the topic {self.arn}.\nTo confirm, visit the URL."
        return self.sign(self._fields(type_, words, 1) | asked | changed, SUBSCRIPTION)

    def _fields(self, type_: str, message: str, number: int) -> dict[str, str]:
        return {
            "Type": type_,
            "MessageId": f"22b80b92-fdea-4c2c-8f9d-{number:012x}",
            "TopicArn": self.arn,
            "Message": message,
            "Timestamp": written(NOW),
            "SignatureVersion": self.version,
            "SigningCertURL": self.certificate_url,
        }

    def sign(self, fields: dict[str, str], signed: Sequence[str]) -> WebhookRequest:
        text = "".join(f"{name}\n{fields[name]}\n" for name in signed if name in fields)
        hash_ = hashes.SHA256() if self.version == "2" else hashes.SHA1()
        signature = rsa_key(self.key_number).sign(text.encode(), padding.PKCS1v15(), hash_)
        whole = fields | {"Signature": base64.b64encode(signature).decode()}
        headers = {
            "content-type": "text/plain; charset=UTF-8",
            "x-amz-sns-message-type": fields["Type"],
            "x-amz-sns-topic-arn": fields["TopicArn"],
        }
        return WebhookRequest(body=as_json(whole), headers=headers)


def ses_report(
    type_: str, part: str, details: Mapping[str, object], *, delivery: str = TOKEN, **more: object
) -> Event:
    """A report of a configuration set; `part` is what SES calls the object with the details."""
    mail = {
        "timestamp": written(NOW - timedelta(minutes=1)),
        "messageId": "01070190aaaabbbb-00000000-0000-0000-0000-000000000000-000000",
        "source": "news@contoso.example",
        "sendingAccountId": "123456789012",
        "destination": [ADDRESS],
        "headersTruncated": False,
        "headers": [{"name": "Message-ID", "value": f"<{delivery}@contoso.example>"}],
        "commonHeaders": {"to": [ADDRESS], "messageId": f"<{delivery}@contoso.example>"},
        "tags": {
            "ses:configuration-set": ["contoso"],
            **({"postroom_delivery": [delivery]} if delivery else {}),
        },
    }
    return {"eventType": type_, "mail": mail | more, part: dict(details)}


def ses_bounce(
    type_: str, sub_type: str, status: str | None = None, words: str | None = None
) -> Event:
    recipient = {"emailAddress": ADDRESS}
    if status:
        recipient |= {"action": "failed", "status": status, "diagnosticCode": f"smtp; {words}"}
    details = {
        "bounceType": type_,
        "bounceSubType": sub_type,
        "bouncedRecipients": [recipient],
        "timestamp": written(NOW),
        "feedbackId": "01070190aaaabbbb-11111111-0000-0000-0000-000000000000-000000",
    }
    return ses_report("Bounce", "bounce", details)


# --- Azure Communication Services over Event Grid ---------------------------------------------


@dataclass(frozen=True)
class EventGrid:
    """An event subscription whose URL or headers carry a secret."""

    secret: str = "contoso-event-grid-secret"

    def post(self, events: Sequence[Event] | Event) -> WebhookRequest:
        return WebhookRequest(
            body=as_json(events),
            headers={"aeg-event-type": "Notification"},
            query={event_grid.SECRET_QUERY: self.secret},
        )

    def validate(self, code: str = "512d38b6-c7b8-40c8-89fe-f46f9e9622b6") -> WebhookRequest:
        event = acs_event(
            event_grid.SUBSCRIPTION_VALIDATION,
            {"validationCode": code, "validationUrl": "https://rp.eventgrid.azure.net:553/x"},
        )
        return self.post([event])

    def ask(self, origin: str = "eventgrid.azure.net") -> WebhookRequest:
        """The handshake of CloudEvents."""
        return WebhookRequest(
            body=b"",
            headers={"webhook-request-origin": origin, "webhook-request-rate": "120"},
            query={event_grid.SECRET_QUERY: self.secret},
            method="OPTIONS",
        )


def acs_event(type_: str, data: Mapping[str, object], number: int = 1) -> Event:
    return {
        "id": f"00000000-0000-0000-0000-{number:012x}",
        "topic": "/subscriptions/0/resourceGroups/contoso/providers/microsoft.communication",
        "subject": "sender/news@contoso.example/message/0",
        "data": dict(data),
        "eventType": type_,
        "dataVersion": "1.0",
        "metadataVersion": "1",
        "eventTime": written(NOW),
    }


def as_cloud_event(event: Event) -> Event:
    return {
        "specversion": "1.0",
        "id": event["id"],
        "source": event["topic"],
        "type": event["eventType"],
        "time": event["eventTime"],
        "data": event["data"],
    }


def acs_report(
    status: str, number: int = 1, *, delivery: str = TOKEN, words: str | None = None
) -> Event:
    data = {
        "sender": "news@contoso.example",
        "recipient": ADDRESS,
        "internetMessageId": f"<{delivery}@contoso.example>",
        "messageId": "f1edbcfb-9d85-4275-ae62-d568141dbc89",
        "status": status,
        "deliveryStatusDetails": {"statusMessage": words, "recipientMailServerHostName": "mx"},
        "deliveryAttemptTimestamp": "2026-11-18T09:29:00.2855749+00:00",
    }
    return acs_event(event_grid.DELIVERY_REPORT, data, number)


# --- Mailgun ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mailgun:
    """An account with its webhook signing key."""

    key: str = "contoso-mailgun-signing-key"

    def post(self, event: Event, number: int = 1, at: datetime = NOW) -> WebhookRequest:
        token = f"{number:050x}"
        signed = f"{seconds(at)}{token}".encode()
        signature = {
            "timestamp": seconds(at),
            "token": token,
            "signature": hmac.new(self.key.encode(), signed, hashlib.sha256).hexdigest(),
        }
        body = as_json({"signature": signature, "event-data": event})
        return WebhookRequest(body=body, headers={"content-type": "application/json"})


def mailgun_event(event: str, *, delivery: str = TOKEN, **more: object) -> Event:
    changed = {name.replace("_", "-"): value for name, value in more.items()}
    return {
        "event": event,
        "id": "CCXMjJ7nQi2N3BPigGOdgQ",
        "timestamp": NOW.timestamp() - 0.25,
        "log-level": "info",
        "recipient": ADDRESS,
        "recipient-domain": "fabrikam.example",
        "message": {"headers": {"message-id": MESSAGE_ID.strip("<>"), "to": ADDRESS}, "size": 341},
        "user-variables": {"postroom_delivery": delivery},
        "tags": ["newsletter"],
    } | changed


# --- Postmark ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Postmark:
    """A server whose webhooks have a login, or a header if the login is empty."""

    login: str = "postmark:contoso-password"
    secret: str = "contoso-postmark-secret"

    @property
    def secrets(self) -> postmark.PostmarkSecrets:
        return postmark.PostmarkSecrets(logins=(self.login,), headers=(self.secret,))

    def post(self, event: Event) -> WebhookRequest:
        headers = {postmark.SECRET_HEADER: self.secret}
        if self.login:
            headers = {"authorization": f"Basic {base64.b64encode(self.login.encode()).decode()}"}
        return WebhookRequest(body=as_json(event), headers=headers)


def postmark_event(type_: str, *, delivery: str = TOKEN, **more: object) -> Event:
    return {
        "RecordType": type_,
        "ServerID": 23,
        "MessageStream": "broadcast",
        "MessageID": "883953f4-6105-42a2-a16a-77a8eac79483",
        "Tag": "newsletter",
        "Metadata": {"postroom_delivery": delivery},
    } | more


def postmark_bounce(code: int, name: str, details: str = "", *, id_: int = 692560173) -> Event:
    return postmark_event(
        "Bounce",
        ID=id_,
        Type=name,
        TypeCode=code,
        Name=name,
        Details=details,
        Description="The server was unable to deliver your message.",
        Email=ADDRESS,
        BouncedAt="2026-11-18T09:29:54.9070259Z",
        DumpAvailable=True,
        Inactive=code == 1,
        CanActivate=True,
    )
