"""Opens a session with an SMTP server: connect, greeting, EHLO, TLS, AUTH."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
import ssl

from postroom.domain.tls import Tls
from postroom.domain.trouble import (
    Fault,
    TroubleKind,
    fault_of_error,
    fault_of_words,
    one_line,
    sentence,
)
from postroom.transport.smtp.config import SmtpConfig
from postroom.transport.smtp.envelope import ServerExtensions, parse_offers
from postroom.transport.smtp.protocol import CLOSED, ConnectionLost, Reply, SmtpProtocol

READY = 220
OK = 250
LOGGED_IN = 235
CHALLENGE = 334


class ServerUnavailable(Exception):
    """The server cannot be used now; the fault says why, without user or password."""

    def __init__(self, config: SmtpConfig, fault: Fault) -> None:
        super().__init__(str(sentence(fault.kind, config.server, fault.words)))
        self.fault = fault


def tls_context(config: SmtpConfig) -> ssl.SSLContext | None:
    """Create a context that verifies certificate and host name; None without encryption."""
    if config.tls is Tls.NONE:
        return None
    try:
        return ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"The CA file {config.ca_file} cannot be used: {error}") from error


async def open_session(
    config: SmtpConfig, context: ssl.SSLContext | None
) -> tuple[SmtpProtocol, ServerExtensions]:
    """Open a connection that is ready for its first MAIL; return it with what the server offers."""
    line = await _connect(config, context if config.tls is Tls.IMPLICIT else None)
    try:
        greeting = await line.reply(config.timeouts.greeting_s)
        if greeting.code != READY:
            raise ServerUnavailable(config, fault_of_words(greeting.words))
        offers = await _hello(line, config)
        if config.tls is Tls.REQUIRE and context is not None:
            await _start_tls(line, config, context, offers)
            offers = await _hello(line, config)  # RFC 3207: forget what was said before TLS
        if config.username:
            await _log_in(line, config, offers)
    except ConnectionLost as broken:
        raise ServerUnavailable(config, fault_of_words(str(broken))) from None
    except BaseException:
        line.hang_up("the session could not be opened")
        raise
    return line, offers


async def _connect(config: SmtpConfig, context: ssl.SSLContext | None) -> SmtpProtocol:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.timeouts.connect_s):
            _, line = await loop.create_connection(
                lambda: SmtpProtocol(config.timeouts),
                config.host,
                config.port,
                ssl=context,
                server_hostname=config.host if context else None,
            )
    except (OSError, UnicodeError) as error:
        raise ServerUnavailable(config, fault_of_error(error)) from None
    return line


async def _hello(line: SmtpProtocol, config: SmtpConfig) -> ServerExtensions:
    name = (config.ehlo_name or _own_name(line)).encode("ascii")
    reply = await line.command(b"EHLO %b\r\n" % name, config.timeouts.command_s)
    if reply.code == OK:
        return parse_offers(reply.lines)
    if reply.code >= 500:
        reply = await line.command(b"HELO %b\r\n" % name, config.timeouts.command_s)
    if reply.code != OK:
        raise ServerUnavailable(config, fault_of_words(reply.words))
    return ServerExtensions()


def _own_name(line: SmtpProtocol) -> str:
    """This machine's full name, or its address in brackets (RFC 5321 4.1.4)."""
    name = socket.gethostname()
    if "." in name.strip(".") and name.isascii():
        return name
    address = str(line.transport.get_extra_info("sockname")[0]).partition("%")[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


async def _start_tls(
    line: SmtpProtocol, config: SmtpConfig, context: ssl.SSLContext, offers: ServerExtensions
) -> None:
    if not offers.starttls:
        raise ServerUnavailable(config, Fault(TroubleKind.NO_STARTTLS))
    reply = await line.command(b"STARTTLS\r\n", config.timeouts.command_s)
    if reply.code != READY:
        raise ServerUnavailable(config, Fault(TroubleKind.TLS, one_line(reply.words)))
    if not line.quiet:
        # Unencrypted data that would be read as if it came over TLS is an attack (RFC 3207, 4).
        unasked = "the server sent data between STARTTLS and TLS"
        raise ServerUnavailable(config, Fault(TroubleKind.TLS, unasked))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.timeouts.connect_s):
            transport = await loop.start_tls(
                line.transport, line, context, server_hostname=config.host
            )
    except OSError as error:  # a timeout is one
        fault = fault_of_error(error)
        if fault.kind in (TroubleKind.CONNECT, TroubleKind.SILENT):  # it ended in the handshake
            fault = Fault(TroubleKind.TLS, fault.words or "no answer in time")
        raise ServerUnavailable(config, fault) from None
    if transport is None:
        raise ServerUnavailable(config, Fault(TroubleKind.TLS, CLOSED))
    line.transport = transport


async def _log_in(line: SmtpProtocol, config: SmtpConfig, offers: ServerExtensions) -> None:
    if line.transport.get_extra_info("ssl_object") is None:
        peer = line.transport.get_extra_info("peername")[0]
        if not ipaddress.ip_address(peer.partition("%")[0]).is_loopback:
            raise ServerUnavailable(config, Fault(TroubleKind.UNPROTECTED))
    user = config.username.encode()
    password = config.password.encode()
    if "PLAIN" in offers.auth:
        secrets = [b"AUTH PLAIN " + base64.b64encode(b"\0%b\0%b" % (user, password))]
    elif "LOGIN" in offers.auth:
        secrets = [b"AUTH LOGIN", base64.b64encode(user), base64.b64encode(password)]
    else:
        raise ServerUnavailable(config, Fault(TroubleKind.NO_LOGIN))
    for secret in secrets:
        reply = await line.command(secret + b"\r\n", config.timeouts.command_s)
        if reply.code != CHALLENGE:
            break
    if reply.code != LOGGED_IN:
        raise ServerUnavailable(
            config, Fault(TroubleKind.LOGIN, _without_secrets(secrets, reply, config))
        )


def _without_secrets(secrets: list[bytes], reply: Reply, config: SmtpConfig) -> str:
    """Return the reply without the user name, or only its code if it repeats a secret."""
    hidden = [config.password.encode(), *(secret.split()[-1] for secret in secrets)]
    if any(secret in reply.text for secret in hidden):
        return str(reply.code)
    user = re.compile(rf"(?<!\w){re.escape(config.username)}(?!\w)")
    return one_line(user.sub("…", reply.words))
