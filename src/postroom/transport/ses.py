"""Amazon SES, version 2 of its API: SendBulkEmail with the template in the call.

SES merges by Handlebars and escapes nothing, so every value comes escaped from us, and what
Handlebars would read in our own text (braces, backslashes before them) is sent as a value, too.
A mail that does not fit into a call for many (1 MB, a long header, attachments) is sent alone, as
MIME. SES writes its own Message-ID; the tag `postroom_delivery` carries the delivery token.

API: https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendBulkEmail.html
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from postroom.clock import Clock
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, clip
from postroom.domain.trouble import Fault, TroubleKind, one_line
from postroom.mail.merge import Segment
from postroom.mail.mime import CompiledMail
from postroom.transport.port import OutgoingMail
from postroom.transport.provider.connection import HttpReply, HttpRequest, HttpTimeouts
from postroom.transport.provider.content import (
    PlaceholderTemplate,
    has_fields,
    mailbox_of,
    same_message,
    shared_headers,
    subject_of,
)
from postroom.transport.provider.lane import (
    AccountFault,
    CallDoubt,
    CallOutcomes,
    CallVerdict,
    ProviderTransport,
    ThrottleNotice,
    UnknownToProvider,
)
from postroom.transport.provider.verdicts import common_verdict, retry_after_s
from postroom.transport.sigv4 import SigningKey, signed_headers

URL_FORM = "ses:REGION"
ENTRIES_MAX = 50  # of one call
CALL_BYTES_MAX = 950_000  # of a call with its template: SES takes 1 MB
RAW_BYTES_MAX = 40 * 1024 * 1024  # of a mail as MIME
HEADER_CHARS_MAX = 870
HEADERS_MAX = 15
DELIVERY = "postroom_delivery"  # the tag with the delivery token
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
_ABOUT_US = re.compile(r"sender|from|reply", re.IGNORECASE)
# What Handlebars may read: two braces, a backslash before them, a brace that touches a field.
_SPECIAL = re.compile(r"[\\{]{2,}\}*|[\\{]\Z|\A\}+")

THROTTLED = "ACCOUNT_THROTTLED"
TRANSIENT = "TRANSIENT_FAILURE"
OUR_ACCOUNT = frozenset(
    {
        "MAIL_FROM_DOMAIN_NOT_VERIFIED",
        "CONFIGURATION_SET_NOT_FOUND",
        "CONFIGURATION_SET_SENDING_PAUSED",
        "ACCOUNT_SUSPENDED",
        "ACCOUNT_SENDING_PAUSED",
        "ACCOUNT_DAILY_QUOTA_EXCEEDED",
        "INVALID_SENDING_POOL_NAME",
        "TEMPLATE_NOT_FOUND",
    }
)
ABOUT_THE_ADDRESS = "INVALID_PARAMETER"
THROTTLING_ERRORS = frozenset({"TooManyRequestsException", "ThrottlingException", "Throttling"})
ACCOUNT_ERRORS = frozenset(
    {
        "AccountSuspendedException",
        "SendingPausedException",
        "MailFromDomainNotVerifiedException",
        "LimitExceededException",
        "NotFoundException",
    }
)


@dataclass(frozen=True)
class SesConfig:
    region: str
    key_id: str
    secret: str = field(repr=False)
    configuration_set: str = ""
    base_url: str = ""  # of a stub, in tests

    @property
    def url(self) -> str:
        return self.base_url or f"https://email.{self.region}.amazonaws.com"


def parse_ses_address(
    address: str, key_id: str, secret: str, configuration_set: str = ""
) -> SesConfig:
    """Parse `ses:REGION`; a ValueError says what is wrong, without the key."""
    region = address.strip().removeprefix("ses:")
    if not _REGION.fullmatch(region):
        raise ValueError(f"must look like {URL_FORM}, such as ses:eu-central-1")
    if not re.fullmatch(r"[!-~]+", key_id) or not re.fullmatch(r"[!-~]+", secret):
        raise ValueError(
            "needs an access key in POSTROOM_SES_KEY_ID and POSTROOM_SES_SECRET, or in files named "
            "by POSTROOM_SES_KEY_ID_FILE and POSTROOM_SES_SECRET_FILE"
        )
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,64}", configuration_set):
        raise ValueError("POSTROOM_SES_CONFIGURATION_SET has up to 64 letters, digits, - and _")
    return SesConfig(region, key_id, secret, configuration_set)


def ses_transport(
    config: SesConfig, clock: Clock, timeouts: HttpTimeouts | None = None
) -> ProviderTransport:
    provider = Ses(config, clock)
    timeouts = timeouts or HttpTimeouts()
    return ProviderTransport(provider, clock, config.url, (config.secret,), timeouts)


@dataclass
class Ses:
    config: SesConfig
    clock: Clock

    @property
    def server(self) -> str:
        return self.config.url.partition("//")[2]

    @property
    def mail_bytes_max(self) -> int:
        return RAW_BYTES_MAX

    def calls(self, mails: Sequence[OutgoingMail]) -> list[list[int]]:
        """Up to 50 entries and 1 MB per call; a mail that does not fit is sent alone."""
        calls: list[list[int]] = []
        for places in same_message(mails):
            if mails[places[0]].compiled.tail:
                calls += [[at] for at in places]
                continue
            call: list[int] = []
            template = HandlebarsTemplate(mails[places[0]].compiled)
            size = used = template.size
            for at in places:
                entry = len(msgspec.json.encode(self._entry(template, mails[at])))
                if size + entry > CALL_BYTES_MAX or not _fits_headers(mails[at]):
                    calls.append([at])
                    continue
                if len(call) == ENTRIES_MAX or used + entry > CALL_BYTES_MAX:
                    calls.append(call)
                    call, used = [], size
                call.append(at)
                used += entry
            calls += [call] if call else []
        return calls

    def request(self, mails: Sequence[OutgoingMail]) -> HttpRequest:
        compiled = mails[0].compiled
        if compiled.tail:
            return self._raw_request(mails[0])
        template = HandlebarsTemplate(compiled)
        entries = [self._entry(template, mail) for mail in mails]
        size = template.size + len(msgspec.json.encode(entries))
        if len(mails) == 1 and (size > CALL_BYTES_MAX or not _fits_headers(mails[0])):
            return self._raw_request(mails[0])
        call = {
            **self._envelope(compiled),
            "DefaultContent": {
                "Template": {
                    "TemplateContent": template.content,
                    "TemplateData": _as_text(template.literals),
                    "Headers": _headers(shared_headers(compiled)),
                }
            },
            "BulkEmailEntries": entries,
        }
        return self._signed("POST", "/v2/email/outbound-bulk-emails", msgspec.json.encode(call))

    def account_request(self) -> HttpRequest:
        """A harmless call, which shows whether the key is accepted and sending is enabled."""
        return self._signed("GET", "/v2/email/account")

    def verdict(self, mails: Sequence[OutgoingMail], reply: HttpReply) -> CallVerdict:
        answer = reply.json()
        if reply.status == 200:
            results = answer.get("BulkEmailEntryResults") if isinstance(answer, dict) else None
            if isinstance(results, list) and len(results) == len(mails):
                return CallOutcomes([_outcome(each) for each in results], words=THROTTLED)
            is_single = isinstance(answer, dict) and isinstance(answer.get("MessageId"), str)
            if isinstance(answer, dict) and is_single and len(mails) == 1:
                return CallOutcomes([_sent(answer)])
            return CallDoubt("an answer that cannot be read")
        kind = reply.headers.get("x-amzn-errortype", "").partition(":")[0]
        words = _message(answer)
        answer = f"{kind}: {words}" if kind and words else kind or words
        wait_s = retry_after_s(reply, self.clock.now())
        if kind in THROTTLING_ERRORS:
            return ThrottleNotice(wait_s, answer)
        if kind in ACCOUNT_ERRORS:
            return AccountFault(Fault(TroubleKind.ACCOUNT, one_line(answer)))
        return common_verdict(reply, answer, wait_s, is_own=bool(kind))

    def question(self, mail: OutgoingMail) -> HttpRequest | None:
        return None  # only its events show the outcome of a call

    def settled(self, reply: HttpReply) -> Outcome | UnknownToProvider | None:
        return None

    def _envelope(self, compiled: CompiledMail) -> dict[str, object]:
        envelope: dict[str, object] = {"FromEmailAddress": mailbox_of(compiled)}
        if compiled.parts.reply_to is not None:
            envelope["ReplyToAddresses"] = [compiled.parts.reply_to.address.typed]
        if self.config.configuration_set:
            envelope["ConfigurationSetName"] = self.config.configuration_set
        return envelope

    def _entry(self, template: HandlebarsTemplate, mail: OutgoingMail) -> dict[str, object]:
        data = _as_text(template.data(mail))
        return {
            "Destination": {"ToAddresses": [mail.recipient]},
            "ReplacementTags": _tags(mail),
            "ReplacementEmailContent": {"ReplacementTemplate": {"ReplacementTemplateData": data}},
            "ReplacementHeaders": _headers(_allowed(mail.own_headers)),
        }

    def _raw_request(self, mail: OutgoingMail) -> HttpRequest:
        source = base64.b64encode(mail.spliced(eight_bit=False).source).decode()
        call = {
            **self._envelope(mail.compiled),
            "Destination": {"ToAddresses": [mail.recipient]},
            "Content": {"Raw": {"Data": source}},
            "EmailTags": _tags(mail),
        }
        call.pop("ReplyToAddresses", None)  # it is in the source
        return self._signed("POST", "/v2/email/outbound-emails", msgspec.json.encode(call))

    def _signed(self, method: str, path: str, body: bytes = b"") -> HttpRequest:
        key = SigningKey(self.config.key_id, self.config.secret, self.config.region, "ses")
        headers = {"host": self.server, "content-type": "application/json"}
        signed = signed_headers(method, path, headers, body, key, self.clock.now())
        return HttpRequest(method, path, signed, body)


class HandlebarsTemplate:
    """A compiled mail as a template of SES, with its literal braces among the values."""

    def __init__(self, compiled: CompiledMail) -> None:
        self.literals: dict[str, str] = {}
        self._has_subject_fields = has_fields(compiled.subject)
        self._template = PlaceholderTemplate(
            compiled, lambda number: f"{{{{f{number}}}}}", self._protected
        )
        subject = "{{subject}}"
        self.content = {"Subject": subject, "Text": self._template.text}
        if self._template.html is not None:
            self.content["Html"] = self._template.html
        self.size = len(msgspec.json.encode(self.content)) + 4096  # and what else is in a call
        if not self._has_subject_fields:
            self.literals["subject"] = subject_of(compiled, {})

    def data(self, mail: OutgoingMail) -> dict[str, str]:
        """All values for one recipient; literals are repeated, so that none relies on a default."""
        fields = self._template.values(mail.merge_values)
        values = {name.strip("{}"): value for name, value in fields.items()}
        if self._has_subject_fields:
            values["subject"] = subject_of(mail.compiled, mail.merge_values)
        return self.literals | values

    def _protected(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments with everything that Handlebars would read as fields of their own."""
        protected: list[Segment] = []
        for segment in segments:
            if not isinstance(segment, str):
                protected.append(segment)
                continue
            position = 0
            for found in _SPECIAL.finditer(segment):
                protected += [segment[position : found.start()], self._literal(found[0])]
                position = found.end()
            protected.append(segment[position:])
        return [part for part in protected if part != ""]

    def _literal(self, text: str) -> str:
        name = next((name for name, known in self.literals.items() if known == text), None)
        if name is None:
            name = f"l{len(self.literals)}"
            self.literals[name] = text
        return f"{{{{{name}}}}}"


def _outcome(result: object) -> Outcome | None:
    """What the result of one entry means; None if it was refused only for now."""
    status = result.get("Status") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(status, str):
        return Unknown("an answer that cannot be read")
    if status == "SUCCESS":
        return _sent(result)
    words = clip(f"{status}: {result.get('Error') or ''}".rstrip(": "))
    if status == THROTTLED:
        return None
    if status == TRANSIENT:
        return Deferred(words, Scope.ADDRESS)
    if status in OUR_ACCOUNT:
        fault = Fault(TroubleKind.ACCOUNT, one_line(words))
        return Deferred(words, Scope.PROVIDER, reached=False, fault=fault)
    is_ours = _ABOUT_US.search(words) is not None
    is_address = status == ABOUT_THE_ADDRESS and "address" in words.lower() and not is_ours
    return Rejected(words, address_fault=is_address)


def _sent(result: dict[str, object]) -> Sent:
    return Sent(clip(f"accepted by SES: {result.get('MessageId') or ''}".rstrip(": ")))


def _message(answer: object) -> str:
    if not isinstance(answer, dict):
        return ""
    return str(answer.get("message") or answer.get("Message") or "")


def _tags(mail: OutgoingMail) -> list[dict[str, str]]:
    return [{"Name": DELIVERY, "Value": mail.token}]


def _headers(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in pairs]


def _allowed(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in pairs if name != "Message-ID"]


def _fits_headers(mail: OutgoingMail) -> bool:
    headers = [*shared_headers(mail.compiled), *_allowed(mail.own_headers)]
    return len(headers) <= HEADERS_MAX and all(
        0 < len(value) <= HEADER_CHARS_MAX for _, value in headers
    )


def _as_text(data: dict[str, str]) -> str:
    return msgspec.json.encode(data).decode()
