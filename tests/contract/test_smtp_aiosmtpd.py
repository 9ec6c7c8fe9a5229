"""The SMTP transport against aiosmtpd: a server written by others, strict about the standards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from postroom.domain.outcome import Deferred, Rejected, Scope, Sent
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from tests.letters import Letter, Witness, letters


class Mailbox:
    """An aiosmtpd handler that keeps what it gets."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.logged_in: list[bool] = []  # the client, for each mail

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds it by this name
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        rcpt_options: list[str],
    ) -> str:
        if address.startswith("unknown"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(  # noqa: N802 - aiosmtpd finds it by this name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        self.envelopes.append(envelope)
        self.logged_in.append(bool(session.authenticated))
        assert isinstance(envelope.content, bytes)
        if b"spam" in envelope.content:
            return "554 5.7.1 no spam"
        return "250 2.0.0 taken"


@asynccontextmanager
async def aiosmtpd(make: Callable[[], SMTP]) -> AsyncIterator[SmtpConfig]:
    """A server in this event loop; gives the settings that reach it."""
    servers: list[SMTP] = []

    def factory() -> SMTP:
        servers.append(make())
        return servers[-1]

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(factory, "127.0.0.1", 0)
    try:
        yield SmtpConfig("127.0.0.1", listening.sockets[0].getsockname()[1], Tls.NONE)
    finally:
        listening.close()
        for server in servers:
            if server._handler_coroutine is not None:
                server._handler_coroutine.cancel()
                await asyncio.gather(server._handler_coroutine, return_exceptions=True)


def strict_server(mailbox: Mailbox, **options: Any) -> Callable[[], SMTP]:
    return lambda: SMTP(mailbox, hostname="conformance", **options)


async def test_a_strict_server_takes_each_mail_as_it_was_written() -> None:
    mailbox = Mailbox()
    body = b".a dot\r\n..two\r\n.\r\n" + "Grüße\r\n".encode()
    mails = [Letter(number, f"student{number}@contoso.edu", body=body) for number in range(5)]
    async with aiosmtpd(strict_server(mailbox)) as config:
        transport = SmtpTransport(config)
        outcomes = await transport.lane().send(mails, Witness())
        await transport.close()
    assert outcomes == [Sent("250 2.0.0 taken")] * 5
    for mail, envelope in zip(mails, mailbox.envelopes, strict=True):
        assert (envelope.mail_from, envelope.rcpt_tos) == (mail.sender, [mail.recipient])
        assert envelope.content == mail.source(eight_bit=True)


async def test_a_strict_server_refuses_mail_by_mail() -> None:
    mailbox = Mailbox()
    mails = letters("a@contoso.edu", "unknown@contoso.edu", "b@contoso.edu", "c@contoso.edu")
    mails[2] = Letter(12, "b@contoso.edu", body=b"spam\r\n")
    async with aiosmtpd(strict_server(mailbox)) as config:
        transport = SmtpTransport(config)
        outcomes = await transport.lane().send(mails, Witness())
        await transport.close()
    assert outcomes == [
        Sent("250 2.0.0 taken"),
        Rejected("550 5.1.1 no such user", True),
        Rejected("554 5.7.1 no spam", False),
        Sent("250 2.0.0 taken"),
    ]
    assert [envelope.rcpt_tos for envelope in mailbox.envelopes] == [
        ["a@contoso.edu"],
        ["b@contoso.edu"],
        ["c@contoso.edu"],
    ]


async def test_a_strict_server_takes_a_non_ascii_address_where_it_offers_to() -> None:
    mailbox = Mailbox()
    mails = [Letter(1, "jürgen@contoso.edu")]
    async with aiosmtpd(strict_server(mailbox, enable_SMTPUTF8=True)) as config:
        transport = SmtpTransport(config)
        outcomes = await transport.lane().send(mails, Witness())
        await transport.close()
    assert outcomes == [Sent("250 2.0.0 taken")]
    assert mailbox.envelopes[0].rcpt_tos == ["jürgen@contoso.edu"]
    assert mailbox.envelopes[0].smtp_utf8


def authenticate(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(success=data == LoginPassword(b"lists", b"hush"), handled=False)


@pytest.mark.parametrize("excluded", [[], ["PLAIN"], ["LOGIN"]])
@pytest.mark.parametrize(("password", "lets_in"), [("hush", True), ("wrong", False)])
async def test_a_strict_server_is_logged_in_to(
    excluded: list[str], password: str, lets_in: bool
) -> None:
    mailbox = Mailbox()
    options = {
        "authenticator": authenticate,
        "auth_require_tls": False,
        "auth_exclude_mechanism": excluded,
    }
    async with aiosmtpd(strict_server(mailbox, **options)) as config:
        transport = SmtpTransport(replace(config, username="lists", password=password))
        outcomes = await transport.lane().send(letters("a@contoso.edu"), Witness())
        await transport.close()
    if lets_in:
        assert outcomes == [Sent("250 2.0.0 taken")]
        assert mailbox.logged_in == [True]
    else:
        assert isinstance(outcomes[0], Deferred)
        assert outcomes[0].scope is Scope.PROVIDER
        assert not mailbox.envelopes
