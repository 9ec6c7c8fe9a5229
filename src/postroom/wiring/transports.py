"""The transports, one entry each; POSTROOM_TRANSPORT chooses.

To add a transport, write its entry and list it in TRANSPORTS (CONTRIBUTING.md has the recipe).
"""

from __future__ import annotations

from dataclasses import replace

from postroom.clock import Clock
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.tls import is_loopback
from postroom.domain.trouble import ADVICE
from postroom.settings import Settings
from postroom.storage.port import Storage
from postroom.transport.capabilities import Capabilities, DoubtSettling, as_markdown
from postroom.transport.outbox import OutboxTransport
from postroom.transport.port import Transport
from postroom.transport.smtp.config import SUBMISSIONS_PORT
from postroom.transport.smtp.envelope import ServerExtensions
from postroom.transport.smtp.session import ServerUnavailable, open_session, tls_context
from postroom.transport.smtp.transport import (
    SmtpConnection,
    SmtpTransport,
    Timeouts,
    Tls,
    parse_smtp_url,
)
from postroom.wiring.providers import AcsEntry, SendGridEntry, SesEntry
from postroom.wiring.transport_entry import TransportEntry

WINDOW_GROWS = 4  # at most this many times the configured window, if the server answers slowly
EXAMINE_S = 10.0  # longest wait for an answer while a person waits
_TLS_WORDS = {Tls.REQUIRE: "with STARTTLS", Tls.IMPLICIT: "with TLS", Tls.NONE: "unencrypted"}


class OutboxEntry(TransportEntry):
    form = "outbox:"
    capabilities = Capabilities(
        batch_max=1,
        bytes_max=None,
        per_recipient_headers=True,
        own_message_id=True,
        signs_dkim=False,
        idempotent_repeat=False,
        doubt=DoubtSettling.NONE,
        utf8_local_part=True,
        feedback_by="no feedback: nothing leaves the machine",
    )
    leaves_the_machine = False
    description = "the test mailbox: emails are kept here, and nothing leaves this machine"

    def __init__(self, settings: Settings) -> None:
        if settings.transport.get_secret_value() != self.form:
            raise _unknown_address()

    def open(self, storage: Storage, clock: Clock) -> Transport:
        return OutboxTransport(storage, clock)

    async def examine(self) -> Check:
        return Check(CheckResult.NOTE, "transport", self.description)


class SmtpEntry(TransportEntry):
    form = "smtp://host:port"
    capabilities = Capabilities(
        batch_max=1,
        bytes_max=None,
        per_recipient_headers=True,
        own_message_id=True,
        signs_dkim=False,
        idempotent_repeat=False,
        doubt=DoubtSettling.NONE,
        utf8_local_part=True,
        feedback_by="bounces by email",
    )

    def __init__(self, settings: Settings) -> None:
        config = parse_smtp_url(settings.transport.get_secret_value())
        self._config = replace(
            config,
            window=settings.smtp_window,
            window_max=settings.smtp_window * WINDOW_GROWS,
            mails_per_connection_max=settings.smtp_mails_per_connection,
            ehlo_name=config.ehlo_name or settings.smtp_ehlo_name,
            ca_file=config.ca_file or settings.smtp_ca_file,
        )
        self.server = self._config.server
        self.host = self._config.host
        self.ehlo_name = self._config.ehlo_name
        self._settings = settings

    def open(self, storage: Storage, clock: Clock) -> Transport:
        if not self._settings.dkim_keys:
            return SmtpTransport(self._config)
        # Imported here, because it costs 8 MB that a process without keys does not need.
        from postroom.mail.dkim import DkimSigner
        from postroom.wiring.dkim import dkim_keys_of

        keys = dkim_keys_of(self._settings)
        return SmtpTransport(self._config, DkimSigner(keys).sign)

    @property
    def description(self) -> str:
        user = f", as {self._config.username}" if self._config.username else ""
        return f"SMTP to {self.server}, {_TLS_WORDS[self._config.tls]}{user}"

    async def examine(self) -> Check:
        """Connect, start TLS and log in as a sender would."""
        reached = await self._reach("transport")
        if isinstance(reached, Check):
            return reached
        return Check(CheckResult.RIGHT, "transport", f"{self.description} answers")

    async def examine_tls(self) -> Check:
        reached = await self._reach("tls")
        if isinstance(reached, Check):
            return reached
        if self._config.tls is not Tls.NONE:
            text = f"{self.server} accepts emails {_TLS_WORDS[self._config.tls]}"
            return Check(CheckResult.RIGHT, "tls", text)
        if is_loopback(self.host):
            text = f"{self.server} is this machine; make sure that it relays with TLS"
            return Check(CheckResult.NOTE, "tls", text)
        text = f"emails go to {self.server} unencrypted, and it does not offer STARTTLS"
        advice = "Use a mail server with TLS; Gmail requires it."
        if reached.starttls:
            text = f"emails go to {self.server} unencrypted, although it offers STARTTLS"
            advice = "Leave “?tls=none” out of POSTROOM_TRANSPORT."
        return Check(CheckResult.WRONG, "tls", text, advice)

    async def _reach(self, about: str) -> ServerExtensions | Check:
        """What the server offers, or why it cannot be reached."""
        config = replace(self._config, timeouts=Timeouts(EXAMINE_S, EXAMINE_S, EXAMINE_S))
        try:
            line, offers = await open_session(config, tls_context(config))
        except ServerUnavailable as trouble:
            advice = str(ADVICE[trouble.fault.kind])
            if config.port == SUBMISSIONS_PORT and config.tls is not Tls.IMPLICIT:
                advice = (
                    "Port 465 uses TLS from the start. Add ?tls=implicit to POSTROOM_TRANSPORT."
                )
            return Check(CheckResult.WRONG, about, str(trouble), advice)
        except ValueError as error:
            return Check(CheckResult.WRONG, about, str(error), "See POSTROOM_TRANSPORT.")
        await SmtpConnection(line, offers, config).quit()
        return offers


TRANSPORTS: dict[str, type[TransportEntry]] = {
    "outbox": OutboxEntry,
    "smtp": SmtpEntry,
    "sendgrid": SendGridEntry,
    "acs": AcsEntry,
    "ses": SesEntry,
}


def capabilities_table() -> str:
    """The table of docs/transports.md."""
    return as_markdown({entry.form: entry.capabilities for entry in TRANSPORTS.values()})


def transport_of(settings: Settings) -> TransportEntry:
    """The entry that the address in POSTROOM_TRANSPORT names; ValueError if there is none."""
    scheme, _, _ = settings.transport.get_secret_value().partition(":")
    if scheme not in TRANSPORTS:
        raise _unknown_address()
    return TRANSPORTS[scheme](settings)


def _unknown_address() -> ValueError:
    return ValueError("must be " + " or ".join(entry.form for entry in TRANSPORTS.values()))
