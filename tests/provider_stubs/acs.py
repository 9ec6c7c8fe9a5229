"""Azure Communication Services Email (2023-03-31): /emails:send and /emails/operations/{id}.

An operation that is known already is not carried out again. Signatures are checked as in
https://learn.microsoft.com/azure/communication-services/tutorials/hmac-header-tutorial.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.provider_stubs.server import (
    AcceptedMail,
    ProviderStub,
    StubReply,
    StubRequest,
    decoded,
    only_keys,
    require,
)

KEY = base64.b64encode(b"the access key of the tests").decode()
MESSAGE_KEYS = {
    *("headers", "senderAddress", "content", "recipients", "attachments", "replyTo"),
    "userEngagementTrackingDisabled",
}


@dataclass
class AcsStub(ProviderStub):
    key: str = KEY
    operations: dict[str, str] = field(default_factory=dict)
    asked: int = 0  # how often the status of an operation was asked

    def answer(self, request: StubRequest) -> StubReply:
        if not is_signed(request, self.key):
            return StubReply(401, _error("Denied", "Denied by the resource provider."))
        require(request.query.get("api-version") == "2023-03-31", "api-version")
        if request.method == "GET" and request.path.startswith("/emails/operations/"):
            return self._status(request.path.rpartition("/")[2])
        require((request.method, request.path) == ("POST", "/emails:send"), "no such resource")
        return self._send(request)

    def refusal(self, words: str) -> StubReply:
        return StubReply(400, _error("InvalidRequest", words))

    def _status(self, operation: str) -> StubReply:
        self.asked += 1
        if operation not in self.operations:
            return StubReply(404, _error("NotFound", "No such operation."))
        return StubReply(200, {"id": operation, "status": self.operations[operation]})

    def _send(self, request: StubRequest) -> StubReply:
        message = decoded(request)
        check_message(message)
        operation = request.headers.get("operation-id", "")
        require(str(uuid.UUID(operation)) == operation, "Operation-Id is no UUID")
        require(len(request.body) <= 10 * 1024 * 1024, "over 10 MB")
        self.calls += 1
        recipient = message["recipients"]["to"][0]["address"]
        script = self.script(recipient)
        fault = self.faults.draw()
        if fault == "throttled":
            return StubReply(429, _error("TooManyRequests", "slow down"), {"Retry-After": "1"})
        if fault == "error":
            return StubReply(500, _error("InternalServerError", "try again"))
        if script == "temp-fail":
            return StubReply(503, _error("ServiceUnavailable", "try again"), {"Retry-After": "1"})
        if script == "perm-fail":
            return StubReply(400, _error("InvalidRequest", "The content is refused."))
        if script == "bad":
            return StubReply(400, _error("InvalidRequest", "Invalid format for email address."))
        if fault == "lost" and self.faults.heads():
            return self.lose([recipient])
        accepted = StubReply(202, {"id": operation, "status": "Running"})
        if operation not in self.operations:
            self.operations[operation] = "Succeeded"
            self.accepted.append(_mail(message, operation))
        if fault == "lost" or script == "drop-after-accept":
            return self.lose([recipient])
        return accepted

    def events(self, kind: str = "delivered") -> list[dict[str, Any]]:
        status = {"delivered": "Delivered", "bounced": "Bounced"}.get(kind, kind.title())
        return [
            {
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{mail.provider_id}")),
                "subject": f"sender/history@contoso.edu/message/{mail.provider_id}",
                "eventType": "Microsoft.Communication.EmailDeliveryReportReceived",
                "dataVersion": "1.0",
                "metadataVersion": "1",
                "eventTime": "2026-11-15T09:00:00Z",
                "data": {
                    "sender": "history@contoso.edu",
                    "recipient": mail.recipient,
                    "messageId": mail.provider_id,
                    "internetMessageId": mail.headers.get("Message-ID", ""),
                    "status": status,
                    "deliveryStatusDetails": {"statusMessage": ""},
                    "deliveryAttemptTimeStamp": "2026-11-15T09:00:00Z",
                },
            }
            for mail in self.accepted
        ]


def is_signed(request: StubRequest, key: str) -> bool:
    headers = request.headers
    content = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
    signed = f"{headers.get('x-ms-date')};{headers.get('host')};{content}"
    to_sign = f"{request.method}\n{request.target}\n{signed}".encode()
    digest = hmac.new(base64.b64decode(key), to_sign, hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    expected = "HMAC-SHA256 SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=" + signature
    is_dated = re.fullmatch(
        r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", headers["x-ms-date"]
    )
    has_hash = headers.get("x-ms-content-sha256") == content
    return bool(is_dated) and has_hash and headers.get("authorization") == expected


def check_message(message: dict[str, Any]) -> None:
    only_keys(message, MESSAGE_KEYS, "message")
    for name in ("senderAddress", "content", "recipients"):
        require(message.get(name), f"{name} is required")
    to = message["recipients"].get("to")
    require(isinstance(to, list) and 1 <= len(to) <= 50, "recipients.to")
    require(all(each.get("address") for each in to), "address is required")
    require(message["content"].get("subject"), "content.subject is required")
    require(message["content"].keys() <= {"subject", "plainText", "html"}, "content")
    for name, value in message.get("headers", {}).items():
        require(re.fullmatch(r"[!-9;-~]+", name), f"header {name}")
        require(re.fullmatch(r"[ -~]+", value), f"the value of {name} is not printable ASCII")


def _mail(message: dict[str, Any], operation: str) -> AcceptedMail:
    content = message["content"]
    headers = message["headers"]
    return AcceptedMail(
        headers["Message-ID"].strip("<>").partition("@")[0],
        message["recipients"]["to"][0]["address"],
        content["subject"],
        content["plainText"],
        content.get("html"),
        headers,
        operation,
        tuple(
            (
                each["name"],
                each["contentType"],
                base64.b64decode(each["contentInBase64"], validate=True),
            )
            for each in message.get("attachments", [])
        ),
    )


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
