"""SendGrid's /v3/mail/send and /v3/scopes, as published; its substitutions are plain replacements.

https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send
https://www.twilio.com/docs/sendgrid/api-reference/mail-send/errors
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
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

KEY = "SG.the-key-of-the-tests"
RESERVED = {
    *("x-sg-id", "x-sg-eid", "received", "dkim-signature", "content-type", "to", "from"),
    *("content-transfer-encoding", "subject", "reply-to", "cc", "bcc"),
}
ADDRESS = re.compile(r"[!-~]+@[a-z0-9.-]+")
CALL_KEYS = {
    *("personalizations", "from", "reply_to", "subject", "content", "headers", "categories"),
    *("custom_args", "send_at", "batch_id", "asm", "mail_settings", "tracking_settings"),
    "attachments",
}
CALL_BYTES_MAX = 30 * 1024 * 1024
PERSONAL_KEYS = {"to", "cc", "bcc", "subject", "headers", "substitutions", "custom_args", "from"}


@dataclass
class SendGridStub(ProviderStub):
    key: str = KEY

    def answer(self, request: StubRequest) -> StubReply:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            echo = request.headers.get("authorization")  # no provider should, and one might
            return StubReply(401, _errors(f"The authorization grant is invalid: {echo}"))
        if (request.method, request.path) == ("GET", "/v3/scopes"):
            return StubReply(200, {"scopes": ["mail.send", "sender_verification_eligible"]})
        require((request.method, request.path) == ("POST", "/v3/mail/send"), "no such resource")
        return self._send(decoded(request))

    def refusal(self, words: str) -> StubReply:
        return StubReply(400, _errors(words))

    def _send(self, call: dict[str, Any]) -> StubReply:
        check_call(call)
        self.calls += 1
        people = call["personalizations"]
        recipients = [str(each["to"][0]["email"]) for each in people]
        scripts = [self.script(address) for address in recipients]
        fault = self.faults.draw()
        if fault == "throttled":
            reset = str(int(self.now_s) + 1)
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
            return StubReply(429, _errors("too many requests"), headers)
        if fault == "error":
            return StubReply(500, _errors("An internal error occurred"))
        if "temp-fail" in scripts:
            return StubReply(503, _errors("The service is not available"))
        if "bad" in scripts:
            where = f"personalizations.{scripts.index('bad')}.to.0.email"
            return StubReply(400, _errors("Does not contain a valid address.", where))
        if "perm-fail" in scripts:
            return StubReply(400, _errors("This call is refused."))
        if fault == "lost" and self.faults.heads():
            return self.lose(recipients)
        if call.get("mail_settings", {}).get("sandbox_mode", {}).get("enable"):
            return StubReply(200)
        self.accepted += [merged(call, each, self.calls, at) for at, each in enumerate(people)]
        if fault == "lost" or "drop-after-accept" in scripts:
            return self.lose(recipients)
        return StubReply(202, headers={"X-Message-Id": f"sg-{self.calls}"})

    def events(self, kind: str = "delivered") -> list[dict[str, Any]]:
        return [
            {
                "email": mail.recipient,
                "timestamp": int(self.now_s),
                "event": kind,
                "smtp-id": mail.headers.get("Message-ID", ""),
                "sg_event_id": f"{kind}-{mail.provider_id}",
                "sg_message_id": mail.provider_id,
                "postroom_delivery": mail.token,
                **({"response": "250 OK"} if kind == "delivered" else {}),
            }
            for mail in self.accepted
        ]


def check_call(call: dict[str, Any]) -> None:
    only_keys(call, CALL_KEYS, "call")
    people = call.get("personalizations")
    require(isinstance(people, list) and people, "You must have at least one personalization.")
    assert isinstance(people, list)
    require(len(people) <= 1000, "The personalization block is limited to 1000")
    require(ADDRESS.fullmatch(call.get("from", {}).get("email", "")), "from.email is required")
    require("asm" not in call, "asm would rewrite our unsubscribe links")
    tracking = call.get("tracking_settings", {})
    for name in ("click_tracking", "open_tracking", "subscription_tracking", "ganalytics"):
        require(tracking.get(name, {}).get("enable") is False, f"{name} is not off")
    content = call.get("content")
    require(isinstance(content, list) and content, "content is required")
    assert isinstance(content, list)
    types = [each.get("type") for each in content]
    require(types in (["text/plain"], ["text/plain", "text/html"]), "content: plain text first")
    require(all(each.get("value") for each in content), "content.value must not be empty")
    check_headers(call.get("headers", {}))
    check_attachments(call.get("attachments", []))
    for each in people:
        check_personalization(call, each)
    emails = [each["to"][0]["email"].lower() for each in people]
    require(len(set(emails)) == len(emails), "Each unique email address should be included once")


def check_personalization(call: dict[str, Any], each: dict[str, Any]) -> None:
    only_keys(each, PERSONAL_KEYS, "personalization")
    to = each.get("to")
    require(isinstance(to, list) and len(to) == 1, "one recipient each")
    assert isinstance(to, list)
    require(ADDRESS.fullmatch(to[0].get("email", "")), "Does not contain a valid address.")
    subject = each.get("subject", call.get("subject"))
    require(isinstance(subject, str) and subject, "The subject is required.")
    require(not re.search(r"[\r\n]", str(subject)), "no line breaks in the subject")
    for name in ("substitutions", "custom_args"):
        given = each.get(name, {})
        require(all(isinstance(value, str) for value in given.values()), f"{name}: texts only")
        size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
        require(size <= 10_000, f"{name} over 10,000 bytes")
    check_headers(each.get("headers", {}))


def check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        require(re.fullmatch(r"[!-9;-~]+", name) and name.lower() not in RESERVED, f"header {name}")
        require(re.fullmatch(r"[ -~]+", value), f"the value of {name} is not printable ASCII")


def merged(call: dict[str, Any], each: dict[str, Any], number: int, at: int) -> AcceptedMail:
    """One replacement after the other, so a value that looks like a placeholder would show."""
    contents = {part["type"]: part["value"] for part in call["content"]}
    subject: str = each.get("subject") or call["subject"]
    for placeholder, value in each.get("substitutions", {}).items():
        subject = subject.replace(placeholder, value)
        contents = {kind: text.replace(placeholder, value) for kind, text in contents.items()}
    return AcceptedMail(
        each["custom_args"]["postroom_delivery"],
        each["to"][0]["email"],
        subject,
        contents["text/plain"],
        contents.get("text/html"),
        {**call.get("headers", {}), **each.get("headers", {})},
        f"sg-{number}.{at}",
        tuple(
            (each["filename"], each["type"], base64.b64decode(each["content"], validate=True))
            for each in call.get("attachments", [])
        ),
    )


def check_attachments(files: list[dict[str, Any]]) -> None:
    for each in files:
        require(
            each.keys() == {"content", "type", "filename", "disposition"}
            and each["disposition"] == "attachment"
            and not re.search(r"[;\r\n]", each["type"]),
            "attachments",
        )
    require(sum(len(each["content"]) for each in files) < CALL_BYTES_MAX, "over 30 MB")


def _errors(message: str, where: str | None = None) -> dict[str, Any]:
    return {"errors": [{"message": message, "field": where, "help": None}]}
