"""SendGrid's v3 Web API: one call per slice, a personalization for each recipient.

The content is sent once, with unguessable placeholders for the fields; each personalization has
the values, escaped by us, and its own unsubscribe headers. All of SendGrid's tracking is off, so
that links and headers stay as we wrote them. `postroom_delivery` in the custom arguments brings
the delivery token back with every event.

API: https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import msgspec

from postroom.clock import Clock
from postroom.domain.outcome import Outcome, Rejected, Sent, clip
from postroom.domain.tls import is_loopback
from postroom.mail.merge import fill
from postroom.transport.port import OutgoingMail
from postroom.transport.provider.connection import HttpReply, HttpRequest, HttpTimeouts
from postroom.transport.provider.content import (
    PlaceholderTemplate,
    attached_files,
    has_fields,
    same_message,
    shared_headers,
    subject_of,
)
from postroom.transport.provider.lane import (
    CallOutcomes,
    CallVerdict,
    NamedRefusals,
    ProviderTransport,
    UnknownToProvider,
)
from postroom.transport.provider.verdicts import (
    BAD_REQUEST,
    TOO_MANY,
    common_verdict,
    retry_after_s,
)

HOSTS = {"": "https://api.sendgrid.com", "eu": "https://api.eu.sendgrid.com"}
URL_FORM = "sendgrid:[?region=eu&sandbox=1&batch=100]"
BATCH = 100  # a lost reply puts the whole call in doubt
BATCH_MAX = 1000  # personalizations of a call
CALL_BYTES_MAX = 15 * 1024 * 1024  # of a call
MAIL_BYTES_MAX = 20 * 1024 * 1024  # with attachments; SendGrid itself says less than 30 MB
SUBSTITUTIONS_BYTES_MAX = 10_000  # of one personalization, keys and values
DELIVERY = "postroom_delivery"  # the custom argument with the delivery token
RATE_LIMIT_RESET = "x-ratelimit-reset"  # seconds since 1970
_PLACE = re.compile(r"personalizations[.\[](\d+)\b")
_ADDRESS_FIELD = re.compile(r"personalizations[.\[]\d+\]?\.to\b")


@dataclass(frozen=True)
class SendGridConfig:
    key: str = field(repr=False)
    region: str = ""
    sandbox: bool = False  # requests are checked, and no mail is sent
    batch: int = BATCH
    base_url: str = ""  # of a mock on this machine

    @property
    def url(self) -> str:
        return self.base_url or HOSTS[self.region]


def parse_sendgrid_address(address: str, key: str) -> SendGridConfig:
    """Parse `sendgrid:?…`; a ValueError says what is wrong, without the key."""
    rest = address.strip().removeprefix("sendgrid:")
    options = dict(parse_qsl(rest.removeprefix("?"), keep_blank_values=True))
    is_form = not rest or (rest.startswith("?") and options)
    if not is_form or not options.keys() <= {"region", "sandbox", "batch", "url"}:
        raise ValueError(f"must look like {URL_FORM}")
    url = options.get("url", "")
    if url and not (url.startswith("http://") and is_loopback(urlsplit(url).hostname or "")):
        raise ValueError("url= is for a mock on this machine, such as http://127.0.0.1:3000")
    if (region := options.get("region", "")) not in HOSTS:
        raise ValueError("region= must be eu, or left out")
    if (sandbox := options.get("sandbox", "0")) not in ("0", "1"):
        raise ValueError("sandbox= must be 0 or 1")
    batch = options.get("batch", str(BATCH))
    if not re.fullmatch("[0-9]{1,4}", batch) or not 1 <= int(batch) <= BATCH_MAX:
        raise ValueError(f"batch= must be a number from 1 to {BATCH_MAX}")
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError("needs an API key in POSTROOM_SENDGRID_KEY or POSTROOM_SENDGRID_KEY_FILE")
    return SendGridConfig(key, region, sandbox == "1", int(batch), url.rstrip("/"))


def sendgrid_transport(
    config: SendGridConfig, clock: Clock, timeouts: HttpTimeouts | None = None
) -> ProviderTransport:
    provider = SendGrid(config, clock)
    timeouts = timeouts or HttpTimeouts()
    return ProviderTransport(provider, clock, config.url, (config.key,), timeouts)


@dataclass
class SendGrid:
    config: SendGridConfig
    clock: Clock
    nonce: Callable[[], str] = lambda: secrets.token_hex(8)

    @property
    def server(self) -> str:
        return self.config.url.partition("//")[2]

    @property
    def mail_bytes_max(self) -> int:
        return MAIL_BYTES_MAX

    def calls(self, mails: Sequence[OutgoingMail]) -> list[list[int]]:
        """One message per call, no address twice; mails with many values of their own go alone."""
        calls: list[list[int]] = []
        for places in same_message(mails):
            template = self._template(mails[places[0]])
            size = _size(template) + len(mails[places[0]].compiled.tail)
            alone = [at for at in places if _is_too_much(template, mails[at])]
            calls += [[at] for at in alone]
            together = [at for at in places if at not in set(alone)]
            room = min(self.config.batch, max(1, (CALL_BYTES_MAX - size) // 20_000))
            calls += _without_duplicates([mails[at].recipient for at in together], together, room)
        return calls

    def request(self, mails: Sequence[OutgoingMail]) -> HttpRequest:
        compiled = mails[0].compiled
        parts = compiled.parts
        template = self._template(mails[0])
        is_merged = len(mails) == 1 and _is_too_much(template, mails[0])
        values = mails[0].merge_values
        text = fill(compiled.text, values) if is_merged else template.text
        html = fill(compiled.html, values) if is_merged and compiled.html else template.html
        call: dict[str, object] = {
            "personalizations": [
                self._personalization(mail, {} if is_merged else template.values(mail.merge_values))
                for mail in mails
            ],
            "from": _mailbox(parts.sender.address.typed, parts.sender.name),
            "subject": subject_of(compiled, values),
            "content": [
                {"type": "text/plain", "value": text},
                *([{"type": "text/html", "value": html}] if html is not None else []),
            ],
            "tracking_settings": {
                "click_tracking": {"enable": False, "enable_text": False},
                "open_tracking": {"enable": False},
                "subscription_tracking": {"enable": False},
                "ganalytics": {"enable": False},
            },
        }
        if parts.reply_to is not None:
            call["reply_to"] = _mailbox(parts.reply_to.address.typed, parts.reply_to.name)
        if headers := dict(shared_headers(compiled)):
            call["headers"] = headers
        if attached := attached_files(compiled):  # once per call, for any number of mails
            call["attachments"] = [
                {
                    "filename": each.name,
                    "type": each.media_type,
                    "content": content,
                    "disposition": "attachment",
                }
                for each, content in attached
            ]
        if self.config.sandbox:
            call["mail_settings"] = {"sandbox_mode": {"enable": True}}
        return HttpRequest("POST", "/v3/mail/send", self._headers(), msgspec.json.encode(call))

    def scopes_request(self) -> HttpRequest:
        """A harmless call, which shows whether the key is accepted and what it may do."""
        return HttpRequest("GET", "/v3/scopes", self._headers())

    def verdict(self, mails: Sequence[OutgoingMail], reply: HttpReply) -> CallVerdict:
        if reply.status == 202 or (reply.status == 200 and self.config.sandbox):
            words = "accepted by SendGrid" if reply.status == 202 else "checked in sandbox mode"
            message_id = clip(reply.headers.get("x-message-id", ""))[:80]
            sent: Outcome = Sent(f"{words}: {message_id}" if message_id else words)
            return CallOutcomes([sent] * len(mails))
        errors = _errors(reply)
        if reply.status == BAD_REQUEST and (named := _named(errors, len(mails))):
            return NamedRefusals(named)
        words = "; ".join(text for text, _ in errors)
        if reply.status == BAD_REQUEST and _is_about_the_message(errors):
            refused: Outcome = Rejected(clip(words), address_fault=False)
            return CallOutcomes([refused] * len(mails))
        return common_verdict(reply, words, self._wait_s(reply), is_own=bool(errors))

    def question(self, mail: OutgoingMail) -> HttpRequest | None:
        return None  # only its events show the outcome of a call

    def settled(self, reply: HttpReply) -> Outcome | UnknownToProvider | None:
        return None

    def _template(self, mail: OutgoingMail) -> PlaceholderTemplate:
        nonce = self.nonce()
        return PlaceholderTemplate(mail.compiled, lambda number: f"-{nonce}.{number}-")

    def _personalization(
        self, mail: OutgoingMail, substitutions: Mapping[str, str]
    ) -> dict[str, object]:
        personal: dict[str, object] = {
            "to": [{"email": mail.recipient}],
            "headers": dict(mail.own_headers),
            "custom_args": {DELIVERY: mail.token},
        }
        if has_fields(mail.compiled.subject):  # merged by us, because it is clipped afterwards
            personal["subject"] = subject_of(mail.compiled, mail.merge_values)
        if substitutions:
            personal["substitutions"] = substitutions
        return personal

    def _headers(self) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.config.key}",
            "content-type": "application/json",
            "user-agent": "postroom",
        }

    def _wait_s(self, reply: HttpReply) -> float:
        reset = reply.headers.get(RATE_LIMIT_RESET, "")
        if reply.status != TOO_MANY or not re.fullmatch("[0-9]{1,12}", reset):
            return retry_after_s(reply, self.clock.now())
        return max(0.0, int(reset) - self.clock.now().timestamp())


def _mailbox(address: str, name: str) -> dict[str, str]:
    return {"email": address, "name": name} if name else {"email": address}


def _size(template: PlaceholderTemplate) -> int:
    return len(template.text.encode()) + len((template.html or "").encode())


def _is_too_much(template: PlaceholderTemplate, mail: OutgoingMail) -> bool:
    substitutions = template.values(mail.merge_values)
    return len(msgspec.json.encode(substitutions)) > SUBSTITUTIONS_BYTES_MAX


def _without_duplicates(
    recipients: Sequence[str], places: Sequence[int], room: int
) -> list[list[int]]:
    """Fill calls in order; an address that is in a call already goes into the next one."""
    calls: list[tuple[set[str], list[int]]] = []
    for recipient, at in zip(recipients, places, strict=True):
        key = recipient.lower()
        call = next((each for each in calls if key not in each[0] and len(each[1]) < room), None)
        if call is None:
            call = (set(), [])
            calls.append(call)
        call[0].add(key)
        call[1].append(at)
    return [taken for _, taken in calls]


def _errors(reply: HttpReply) -> list[tuple[str, str]]:
    """The message and the field of each error; empty if they are not of SendGrid's form."""
    answer = reply.json()
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if not isinstance(errors, list):
        return []
    return [
        (str(each.get("message") or ""), str(each.get("field") or ""))
        for each in errors
        if isinstance(each, dict)
    ]


def _named(errors: Sequence[tuple[str, str]], count: int) -> dict[int, Rejected]:
    """The places that the errors name, if every error names one."""
    named: dict[int, Rejected] = {}
    for words, where in errors:
        found = _PLACE.match(where)
        if not found or int(found[1]) >= count:
            return {}
        is_address = _ADDRESS_FIELD.match(where) is not None
        named.setdefault(int(found[1]), Rejected(clip(words), address_fault=is_address))
    return named


def _is_about_the_message(errors: Sequence[tuple[str, str]]) -> bool:
    """Whether the errors name something that all mails of the call share."""
    return bool(errors) and all(
        where and not where.startswith("personalizations") for _, where in errors
    )
