"""The transports to HTTP providers, one entry each.

The HTTP client is imported only by an installation that uses one of them.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from typing import TYPE_CHECKING

from postroom.clock import Clock, WallClock
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.trouble import ADVICE, TroubleKind, sentence
from postroom.settings import Settings
from postroom.storage.port import Storage
from postroom.transport.capabilities import Capabilities, DoubtSettling
from postroom.transport.port import Transport
from postroom.wiring.transport_entry import TransportEntry

if TYPE_CHECKING:
    from postroom.transport.provider.connection import CallResult, HttpReply, HttpRequest
    from postroom.transport.provider.lane import ProviderTransport

EXAMINE_S = 10.0  # longest wait for an answer while a person waits
ABOUT = "transport"


class ProviderEntry(TransportEntry):
    """What the entries of all providers have in common."""

    def open(self, storage: Storage, clock: Clock) -> Transport:
        return self.transport(clock)

    @abstractmethod
    def transport(self, clock: Clock) -> ProviderTransport: ...

    @abstractmethod
    def probe(self, clock: Clock) -> HttpRequest:
        """A harmless request that needs the key."""

    @abstractmethod
    def finding(self, reply: HttpReply) -> Check | None:
        """What the answer to the probe says; None if it says nothing."""

    async def examine(self) -> Check:
        """Make a harmless call with the key."""
        from postroom.transport.provider.connection import HttpReply, NotSent

        clock = WallClock()
        result = await _call(self.transport(clock), self.probe(clock))
        if isinstance(result, NotSent):
            words = str(sentence(result.fault.kind, self.server, result.fault.words))
            return Check(CheckResult.WRONG, ABOUT, words, str(ADVICE[result.fault.kind]))
        found = self.finding(result) if isinstance(result, HttpReply) else None
        if found is None:
            words = f"{self.description}: the answer cannot be read"
            return Check(CheckResult.WRONG, ABOUT, words, str(ADVICE[TroubleKind.REFUSED]))
        return found

    def _right(self, more: str = "") -> Check:
        return Check(CheckResult.RIGHT, ABOUT, f"{self.description} accepts the key{more}")

    def _refused(self, words: str) -> Check:
        text = str(sentence(TroubleKind.KEY, self.server, words))
        return Check(CheckResult.WRONG, ABOUT, text, str(ADVICE[TroubleKind.KEY]))


class SendGridEntry(ProviderEntry):
    form = "sendgrid:"
    capabilities = Capabilities(
        batch_max=1000,
        bytes_max=20 * 1024**2,
        per_recipient_headers=True,
        own_message_id=True,
        signs_dkim=True,
        idempotent_repeat=False,
        doubt=DoubtSettling.EVENT,
        utf8_local_part=False,
        feedback_by="Event Webhook",
    )

    def __init__(self, settings: Settings) -> None:
        from postroom.transport.sendgrid import parse_sendgrid_address

        key = settings.sendgrid_key.get_secret_value()
        self.config = parse_sendgrid_address(settings.transport.get_secret_value(), key)
        self.settles_doubts = bool(settings.sendgrid_webhook_key)
        self.server = self.config.url.partition("//")[2]

    @property
    def description(self) -> str:
        mode = " in sandbox mode: nothing is delivered" if self.config.sandbox else ""
        return f"SendGrid at {self.server}, {self.config.batch} emails per call{mode}"

    def transport(self, clock: Clock) -> ProviderTransport:
        from postroom.transport.sendgrid import sendgrid_transport

        return sendgrid_transport(self.config, clock)

    def probe(self, clock: Clock) -> HttpRequest:
        from postroom.transport.sendgrid import SendGrid

        return SendGrid(self.config, clock).scopes_request()

    def finding(self, reply: HttpReply) -> Check | None:
        if reply.status in (401, 403):
            return self._refused(f"HTTP {reply.status}")
        answer = reply.json()
        scopes = answer.get("scopes") if isinstance(answer, dict) else None
        if reply.status != 200 or not isinstance(scopes, list):
            return None
        if "mail.send" not in scopes:
            return self._refused("the key may not send mail (mail.send)")
        return self._right()


class AcsEntry(ProviderEntry):
    form = "acs:https://NAME.communication.azure.com"
    capabilities = Capabilities(
        batch_max=1,
        bytes_max=10 * 1024**2,
        per_recipient_headers=True,
        own_message_id=True,
        signs_dkim=True,
        idempotent_repeat=True,
        doubt=DoubtSettling.STATUS_CALL,
        utf8_local_part=False,
        feedback_by="Event Grid",
    )

    def __init__(self, settings: Settings) -> None:
        from postroom.transport.acs import parse_acs_address

        key = settings.acs_key.get_secret_value()
        self.config = parse_acs_address(settings.transport.get_secret_value(), key)
        self.server = self.config.url.partition("//")[2]

    @property
    def description(self) -> str:
        return f"Azure Communication Services at {self.server}"

    def transport(self, clock: Clock) -> ProviderTransport:
        from postroom.transport.acs import acs_transport

        return acs_transport(self.config, clock)

    def probe(self, clock: Clock) -> HttpRequest:
        """Ask for an operation that does not exist: a wrong key is refused before that."""
        from postroom.transport.acs import Acs

        return Acs(self.config, clock).status_request(str(uuid.uuid4()))

    def finding(self, reply: HttpReply) -> Check | None:
        if reply.status in (401, 403):
            return self._refused(f"HTTP {reply.status}")
        return self._right() if reply.status in (200, 404) else None


class SesEntry(ProviderEntry):
    form = "ses:REGION"
    capabilities = Capabilities(
        batch_max=50,
        bytes_max=40 * 1024**2,
        per_recipient_headers=True,
        own_message_id=False,
        signs_dkim=True,
        idempotent_repeat=False,
        doubt=DoubtSettling.EVENT,
        utf8_local_part=False,
        feedback_by="events of a configuration set, by SNS",
    )

    def __init__(self, settings: Settings) -> None:
        from postroom.transport.ses import parse_ses_address

        self.config = parse_ses_address(
            settings.transport.get_secret_value(),
            settings.ses_key_id,
            settings.ses_secret.get_secret_value(),
            settings.ses_configuration_set,
        )
        self.settles_doubts = bool(settings.sns_topics and settings.ses_configuration_set)
        self.server = self.config.url.partition("//")[2]

    @property
    def description(self) -> str:
        events = self.config.configuration_set or "no configuration set"
        return f"Amazon SES at {self.server} ({events})"

    def transport(self, clock: Clock) -> ProviderTransport:
        from postroom.transport.ses import ses_transport

        return ses_transport(self.config, clock)

    def probe(self, clock: Clock) -> HttpRequest:
        from postroom.transport.ses import Ses

        return Ses(self.config, clock).account_request()

    def finding(self, reply: HttpReply) -> Check | None:
        kind = reply.headers.get("x-amzn-errortype", "").partition(":")[0]
        if kind == "AccessDeniedException":
            advice = "Allow ses:GetAccount to let “postroom doctor” read the state of the account."
            text = f"{self.description} accepts the key, but does not show the account"
            return Check(CheckResult.NOTE, ABOUT, text, advice)
        if reply.status in (401, 403):
            return self._refused(kind or f"HTTP {reply.status}")
        account = reply.json()
        if reply.status != 200 or not isinstance(account, dict):
            return None
        if account.get("SendingEnabled") is False:
            text = str(sentence(TroubleKind.ACCOUNT, self.server, "sending is disabled"))
            return Check(CheckResult.WRONG, ABOUT, text, str(ADVICE[TroubleKind.ACCOUNT]))
        if account.get("ProductionAccessEnabled") is False:
            advice = "Ask Amazon for production access in the SES console."
            text = f"{self.description}: the account is in the sandbox, for verified addresses only"
            return Check(CheckResult.NOTE, ABOUT, text, advice)
        return self._right()


async def _call(transport: ProviderTransport, request: HttpRequest) -> CallResult:
    from postroom.transport.provider.connection import HttpTimeouts

    transport.timeouts = HttpTimeouts(EXAMINE_S, EXAMINE_S, EXAMINE_S)
    client = transport.client()
    try:
        return await client.call(request)
    finally:
        await client.close()
