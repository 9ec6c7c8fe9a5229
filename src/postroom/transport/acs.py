"""Azure Communication Services Email: one call per mail, and an Operation-Id that we choose.

The id is derived from the delivery token, so a repeated call is the same operation, and a lost
reply is settled by asking for the operation: if it exists, the mail was sent; if not, the mail is
sent again; without an answer it is in doubt.

API: https://learn.microsoft.com/rest/api/communication/email (2023-03-31)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import urlsplit

import msgspec

from postroom.clock import Clock
from postroom.domain.outcome import Outcome, Rejected, Sent, clip
from postroom.mail.merge import fill
from postroom.transport.port import OutgoingMail
from postroom.transport.provider.connection import HttpReply, HttpRequest, HttpTimeouts
from postroom.transport.provider.content import attached_files, shared_headers, subject_of
from postroom.transport.provider.lane import (
    CallDoubt,
    CallOutcomes,
    CallVerdict,
    ProviderTransport,
    UnknownToProvider,
)
from postroom.transport.provider.verdicts import (
    BAD_REQUEST,
    TOO_LARGE,
    common_verdict,
    retry_after_s,
)

API_VERSION = "2023-03-31"
URL_FORM = "acs:https://NAME.communication.azure.com"
CALL_BYTES_MAX = 10 * 1024 * 1024  # with attachments, as base64
CALL_FRAME_BYTES = 64 * 1024  # of a call beside the content: headers, addresses
SIGNED_HEADERS = "x-ms-date;host;x-ms-content-sha256"
_OPERATIONS = uuid.UUID("6f0e3c52-7a55-5d0f-9d49-3a1f6a2c9b10")  # the namespace of our ids
_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_ABOUT_RECIPIENT = re.compile(r"recipient|email address|to address", re.IGNORECASE)
_ABOUT_US = re.compile(r"sender|from|reply", re.IGNORECASE)


@dataclass(frozen=True)
class AcsConfig:
    url: str  # the resource's endpoint, or a stub's in tests
    key: str = field(repr=False)  # base64


def parse_acs_address(address: str, key: str) -> AcsConfig:
    """Parse `acs:https://…`; a ValueError says what is wrong, without the key."""
    parts = urlsplit(address.strip().removeprefix("acs:"))
    is_endpoint = parts.scheme == "https" and _HOST.fullmatch(parts.netloc)
    if not is_endpoint or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"must look like {URL_FORM}")
    try:
        is_key = len(base64.b64decode(key, validate=True)) > 0
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise ValueError("needs the access key in POSTROOM_ACS_KEY or POSTROOM_ACS_KEY_FILE")
    return AcsConfig(f"https://{parts.netloc}", key)


def acs_transport(
    config: AcsConfig, clock: Clock, timeouts: HttpTimeouts | None = None
) -> ProviderTransport:
    provider = Acs(config, clock)
    timeouts = timeouts or HttpTimeouts()
    return ProviderTransport(provider, clock, config.url, (config.key,), timeouts)


def operation_id(token: str) -> str:
    """The id of the operation that sends a delivery: the same at every attempt."""
    return str(uuid.uuid5(_OPERATIONS, token))


def signed_headers(
    method: str, host: str, path: str, body: bytes, key: str, now: datetime
) -> dict[str, str]:
    """Sign a request with the access key.

    https://learn.microsoft.com/azure/communication-services/tutorials/hmac-header-tutorial
    """
    date = format_datetime(now, usegmt=True)
    content = base64.b64encode(hashlib.sha256(body).digest()).decode()
    to_sign = f"{method}\n{path}\n{date};{host};{content}"
    digest = hmac.digest(base64.b64decode(key), to_sign.encode(), "sha256")
    signature = base64.b64encode(digest).decode()
    return {
        "x-ms-date": date,
        "x-ms-content-sha256": content,
        "authorization": f"HMAC-SHA256 SignedHeaders={SIGNED_HEADERS}&Signature={signature}",
    }


@dataclass
class Acs:
    config: AcsConfig
    clock: Clock

    @property
    def server(self) -> str:
        return self.config.url.partition("//")[2]

    @property
    def mail_bytes_max(self) -> int:
        return CALL_BYTES_MAX - CALL_FRAME_BYTES

    def calls(self, mails: Sequence[OutgoingMail]) -> list[list[int]]:
        return [[place] for place in range(len(mails))]

    def request(self, mails: Sequence[OutgoingMail]) -> HttpRequest:
        [mail] = mails
        compiled = mail.compiled
        values = mail.merge_values
        content = {
            "subject": subject_of(compiled, values),
            "plainText": fill(compiled.text, values),
        }
        if compiled.html is not None:
            content["html"] = fill(compiled.html, values)
        message: dict[str, object] = {
            "senderAddress": compiled.parts.sender.address.typed,
            "recipients": {"to": [{"address": mail.recipient}]},
            "content": content,
            "headers": dict([*shared_headers(compiled), *mail.own_headers]),
            "userEngagementTrackingDisabled": True,
        }
        if attached := attached_files(compiled):
            message["attachments"] = [
                {"name": each.name, "contentType": each.media_type, "contentInBase64": content}
                for each, content in attached
            ]
        if (reply_to := compiled.parts.reply_to) is not None:
            box = {"address": reply_to.address.typed, "displayName": reply_to.name}
            message["replyTo"] = [box]
        return self._signed(
            "POST",
            "/emails:send",
            msgspec.json.encode(message),
            {"operation-id": operation_id(mail.token), "content-type": "application/json"},
        )

    def question(self, mail: OutgoingMail) -> HttpRequest | None:
        return self.status_request(operation_id(mail.token))

    def status_request(self, operation: str) -> HttpRequest:
        return self._signed("GET", f"/emails/operations/{operation}")

    def settled(self, reply: HttpReply) -> Outcome | UnknownToProvider | None:
        if reply.status == 404:
            return UnknownToProvider()
        answer = reply.json()
        status = answer.get("status") if isinstance(answer, dict) else None
        if reply.status != 200 or not isinstance(status, str):
            return None
        if status in ("Failed", "Canceled"):
            code, words = _error(reply)
            return Rejected(clip(f"{status}: {words or code}"), address_fault=False)
        return Sent(clip(f"accepted by Azure: {status}"))

    def verdict(self, mails: Sequence[OutgoingMail], reply: HttpReply) -> CallVerdict:
        if reply.status == 202:
            return CallOutcomes([Sent(f"accepted by Azure: {operation_id(mails[0].token)}")])
        code, words = _error(reply)
        if reply.status in (BAD_REQUEST, TOO_LARGE):
            answer = clip(words or code or f"HTTP {reply.status}")
            is_address = bool(_ABOUT_RECIPIENT.search(answer)) and not _ABOUT_US.search(answer)
            return CallOutcomes([Rejected(answer, address_fault=is_address)])
        if reply.status == 409:  # the operation exists already: ask for its status
            return CallDoubt(words or "a repeated operation")
        wait_s = retry_after_s(reply, self.clock.now())
        return common_verdict(reply, words, wait_s, is_own=bool(code))

    def _signed(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpRequest:
        path = f"{path}?api-version={API_VERSION}"
        now = self.clock.now()
        signed = signed_headers(method, self.server, path, body, self.config.key, now)
        return HttpRequest(method, path, {**(headers or {}), **signed}, body)


def _error(reply: HttpReply) -> tuple[str, str]:
    """Code and message of Azure's form of an error; empty if the reply has another."""
    answer = reply.json()
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return "", ""
    return str(error.get("code") or ""), str(error.get("message") or "")
