"""SES v2: SendBulkEmail, SendEmail (raw) and GetAccount; templates are read as Handlebars does.

https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendBulkEmail.html
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any

from postroom.transport.sigv4 import SigningKey, signed_headers
from tests.attached import attachments_in
from tests.provider_stubs.server import (
    AcceptedMail,
    BadCall,
    ProviderStub,
    StubReply,
    StubRequest,
    decoded,
    only_keys,
    require,
)

KEY_ID, SECRET, REGION = "AKIDTESTS", "the/secret+of+the/tests", "eu-central-1"
BULK = "/v2/email/outbound-bulk-emails"
SINGLE = "/v2/email/outbound-emails"
_SIGNED = re.compile(r"SignedHeaders=([a-z0-9;-]+), Signature=")
# An escaped mustache, a triple one, a plain one: in the order in which Handlebars' lexer looks.
_MUSTACHE = re.compile(r"(\\+)?(\{\{\{?)(\w*)(\}\}\}?)?")
ENTRY_STATUS = {
    "temp-fail": ("TRANSIENT_FAILURE", "Try again later."),
    "perm-fail": ("MESSAGE_REJECTED", "The message is refused."),
    "bad": ("INVALID_PARAMETER", "Illegal address"),
}


@dataclass
class SesStub(ProviderStub):
    configuration_set: str = ""
    secret: str = SECRET
    busy_entries: int = 0  # so many entries of the next calls are throttled
    account_status: str = ""  # what every entry is answered

    def answer(self, request: StubRequest) -> StubReply:
        if not is_signed(request, self.secret):
            headers = {"x-amzn-ErrorType": "SignatureDoesNotMatchException"}
            return StubReply(403, {"message": "The signature does not match."}, headers)
        if (request.method, request.path) == ("GET", "/v2/email/account"):
            return StubReply(200, {"SendingEnabled": True, "ProductionAccessEnabled": True})
        require(request.method == "POST", "no such resource")
        require(request.path in (BULK, SINGLE), "no such resource")
        return (self._bulk if request.path == BULK else self._single)(request)

    def refusal(self, words: str) -> StubReply:
        return StubReply(400, {"message": words}, {"x-amzn-ErrorType": "BadRequestException"})

    def _bulk(self, request: StubRequest) -> StubReply:
        call = decoded(request)
        check_bulk(call, self.configuration_set)
        require(len(request.body) <= 1024 * 1024, "over 1 MB")
        self.calls += 1
        entries = call["BulkEmailEntries"]
        recipients = [each["Destination"]["ToAddresses"][0] for each in entries]
        fault = self.faults.draw()
        if refused := self._fault_reply(fault):
            return refused
        if fault == "lost" and self.faults.heads():
            return self.lose(recipients)
        scripts = [self.script(address) for address in recipients]
        results = [
            self._enter(call, entry, script, f"ses-{self.calls}-{at}")
            for at, (entry, script) in enumerate(zip(entries, scripts, strict=True))
        ]
        if fault == "lost" or "drop-after-accept" in scripts:
            return self.lose(recipients)
        return StubReply(200, {"BulkEmailEntryResults": results})

    def _enter(
        self, call: dict[str, Any], entry: dict[str, Any], script: str, message_id: str
    ) -> dict[str, str]:
        if self.account_status:
            return {"Status": self.account_status, "Error": "for everybody"}
        if script in ENTRY_STATUS:
            status, words = ENTRY_STATUS[script]
            return {"Status": status, "Error": words}
        if self.busy_entries:
            self.busy_entries -= 1
            return {"Status": "ACCOUNT_THROTTLED", "Error": "Maximum sending rate exceeded."}
        self.accepted.append(_mail(call, entry, message_id))
        return {"Status": "SUCCESS", "MessageId": message_id}

    def _single(self, request: StubRequest) -> StubReply:
        call = decoded(request)
        allowed = {"FromEmailAddress", "Destination", "Content", "EmailTags"}
        only_keys(call, allowed | {"ConfigurationSetName"}, "call")
        self.calls += 1
        [recipient] = call["Destination"]["ToAddresses"]
        fault = self.faults.draw()
        if refused := self._fault_reply(fault):
            return refused
        source = base64.b64decode(call["Content"]["Raw"]["Data"], validate=True)
        mail = message_from_bytes(source, policy=policy.default)
        text = mail.get_body(("plain",))
        html = mail.get_body(("html",))
        self.accepted.append(
            AcceptedMail(
                call["EmailTags"][0]["Value"],
                recipient,
                str(mail["Subject"]),
                text.get_content() if text else "",
                html.get_content() if html else None,
                {name: str(value) for name, value in mail.items()},
                f"ses-{self.calls}",
                attachments_in(source),
            )
        )
        return StubReply(200, {"MessageId": f"ses-{self.calls}"})

    def _fault_reply(self, fault: str) -> StubReply | None:
        if fault == "throttled":
            headers = {"x-amzn-ErrorType": "TooManyRequestsException"}
            return StubReply(429, {"message": "Too many requests."}, headers)
        if fault == "error":
            headers = {"x-amzn-ErrorType": "InternalServiceErrorException"}
            return StubReply(500, {"message": "Try again."}, headers)
        return None

    def events(self, kind: str = "delivered") -> list[dict[str, Any]]:
        names = {"delivered": "Delivery", "bounced": "Bounce", "complained": "Complaint"}
        name = names.get(kind, kind.title())
        return [
            {
                "eventType": name,
                "mail": {
                    "timestamp": "2026-11-15T09:00:00.000Z",
                    "source": "history@contoso.edu",
                    "messageId": mail.provider_id,
                    "destination": [mail.recipient],
                    "tags": {"postroom_delivery": [mail.token]},
                },
                name.lower(): {
                    "timestamp": "2026-11-15T09:00:01.000Z",
                    "recipients": [mail.recipient],
                },
            }
            for mail in self.accepted
        ]


def is_signed(request: StubRequest, secret: str) -> bool:
    """Sign the request again as it was received, at the time that it names."""
    given = request.headers.get("authorization", "")
    found = _SIGNED.search(given)
    if found is None or not {"host", "x-amz-date"} <= set(found[1].split(";")):
        return False
    names = [name for name in found[1].split(";") if name != "x-amz-date"]
    headers = {name: request.headers[name] for name in names}
    now = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    key = SigningKey(KEY_ID, secret, REGION, "ses")
    signed = signed_headers(request.method, request.target, headers, request.body, key, now)
    return signed["authorization"] == given


def check_bulk(call: dict[str, Any], configuration_set: str) -> None:
    allowed = {"FromEmailAddress", "ReplyToAddresses", "DefaultContent", "BulkEmailEntries"}
    only_keys(call, allowed | {"ConfigurationSetName", "DefaultEmailTags"}, "call")
    require(call.get("ConfigurationSetName", "") == configuration_set, "ConfigurationSetName")
    require(call.get("FromEmailAddress", "").isascii(), "FromEmailAddress is not ASCII")
    template = call["DefaultContent"]["Template"]
    only_keys(template, {"TemplateContent", "TemplateData", "Headers"}, "Template")
    only_keys(template["TemplateContent"], {"Subject", "Text", "Html"}, "TemplateContent")
    require(isinstance(json.loads(template["TemplateData"]), dict), "TemplateData")
    entries = call["BulkEmailEntries"]
    require(1 <= len(entries) <= 50, "up to 50 entries")
    for entry in entries:
        keys = {"Destination", "ReplacementTags", "ReplacementEmailContent", "ReplacementHeaders"}
        only_keys(entry, keys, "entry")
        headers = template.get("Headers", []) + entry.get("ReplacementHeaders", [])
        require(len(headers) <= 15, "up to 15 headers")
        for header in headers:
            require(re.fullmatch(r"[!-9;-~]{1,126}", header["Name"]), "the name of a header")
            require(re.fullmatch(r"[ -~]{1,870}", header["Value"]), f"value of {header['Name']}")
            require(header["Name"].lower() != "message-id", "SES writes the Message-ID")
        for tag in entry.get("ReplacementTags", []):
            require(re.fullmatch(r"[A-Za-z0-9_.@-]{1,256}", tag["Value"]), "the value of a tag")


def rendered(template: str, data: Mapping[str, str]) -> str:
    """Fill in a template as Handlebars reads it, without escaping, and strictly."""

    def fill(found: re.Match[str]) -> str:
        slashes, opening, name, closing = found[1] or "", found[2], found[3], found[4] or ""
        if len(slashes) % 2:
            raise BadCall("an escaped mustache")
        if len(opening) != len(closing):
            raise BadCall(f"a mustache that cannot be read: {found[0][:40]}")
        if name not in data:
            raise BadCall(f"no value for {name!r}")
        return slashes[: len(slashes) // 2] + data[name]

    return _MUSTACHE.sub(fill, template)


def _mail(call: dict[str, Any], entry: dict[str, Any], message_id: str) -> AcceptedMail:
    template = call["DefaultContent"]["Template"]
    replacement = entry["ReplacementEmailContent"]["ReplacementTemplate"]
    data = json.loads(template["TemplateData"])
    data |= json.loads(replacement["ReplacementTemplateData"])
    content = template["TemplateContent"]
    headers = template.get("Headers", []) + entry.get("ReplacementHeaders", [])
    return AcceptedMail(
        entry["ReplacementTags"][0]["Value"],
        entry["Destination"]["ToAddresses"][0],
        rendered(content["Subject"], data),
        rendered(content["Text"], data),
        rendered(content["Html"], data) if "Html" in content else None,
        {header["Name"]: header["Value"] for header in headers},
        message_id,
    )
