"""From a host name to a line that takes mail: connect, greet, EHLO, TLS, AUTH."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import ssl

from postroom.transport.smtp_config import SmtpConfig, Tls
from postroom.transport.smtp_envelope import Offers, parse_offers
from postroom.transport.smtp_protocol import LineBroken, Reply, SmtpProtocol
from postroom.transport.smtp_trouble import trouble_words

READY = 220
OK = 250
LOGGED_IN = 235
CHALLENGE = 334


class Unavailable(Exception):
    """The server cannot be used now; the words say why, and never hold the password."""


def tls_context(config: SmtpConfig) -> ssl.SSLContext | None:
    """Verifies certificate and host name; None where the line stays in clear."""
    if config.tls is Tls.NONE:
        return None
    try:
        return ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"The CA file {config.ca_file} cannot be used: {error}") from error


async def open_session(
    config: SmtpConfig, context: ssl.SSLContext | None
) -> tuple[SmtpProtocol, Offers]:
    """A line ready for its first MAIL, and what the server offers on it."""
    line = await _connect(config, context if config.tls is Tls.IMPLICIT else None)
    try:
        await _greeting(line, config)
        offers = await _hello(line, config)
        if config.tls is Tls.REQUIRE and context is not None:
            await _start_tls(line, config, context, offers)
            offers = await _hello(line, config)  # RFC 3207: what was said in clear is forgotten
        if config.username:
            await _log_in(line, config, offers)
    except LineBroken as broken:
        raise Unavailable(f"{config.server} is not ready: {broken}") from None
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
        raise Unavailable(
            f"cannot connect to {config.server}: {trouble_words(error, config)}"
        ) from None
    return line


async def _greeting(line: SmtpProtocol, config: SmtpConfig) -> None:
    greeting = await line.reply(config.timeouts.greeting_s)
    if greeting.code != READY:
        raise Unavailable(f"{config.server} takes no mail now: {greeting.words}")


async def _hello(line: SmtpProtocol, config: SmtpConfig) -> Offers:
    name = (config.ehlo_name or _own_name(line)).encode("ascii")
    reply = await line.command(b"EHLO %b\r\n" % name, config.timeouts.command_s)
    if reply.code == OK:
        return parse_offers(reply.lines)
    if reply.code >= 500:
        reply = await line.command(b"HELO %b\r\n" % name, config.timeouts.command_s)
    if reply.code != OK:
        raise Unavailable(f"{config.server} refuses our greeting: {reply.words}")
    return Offers()


def _own_name(line: SmtpProtocol) -> str:
    """This machine's full name, or else its address in brackets (RFC 5321 4.1.4)."""
    name = socket.gethostname()
    if "." in name.strip(".") and name.isascii():
        return name
    address = str(line.transport.get_extra_info("sockname")[0]).partition("%")[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


async def _start_tls(
    line: SmtpProtocol, config: SmtpConfig, context: ssl.SSLContext, offers: Offers
) -> None:
    if not offers.starttls:
        raise Unavailable(
            f"{config.server} does not offer STARTTLS; if mail may travel in clear, say tls=none"
        )
    reply = await line.command(b"STARTTLS\r\n", config.timeouts.command_s)
    if reply.code != READY:
        raise Unavailable(f"{config.server} refuses STARTTLS: {reply.words}")
    if not line.quiet:
        # Words in clear that would pass as said under TLS are an attack (RFC 3207, 4).
        raise Unavailable(f"{config.server} spoke between STARTTLS and TLS; not trusted")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.timeouts.connect_s):
            transport = await loop.start_tls(
                line.transport, line, context, server_hostname=config.host
            )
    except OSError as error:  # a timeout is one
        raise Unavailable(f"no TLS with {config.server}: {trouble_words(error, config)}") from None
    if transport is None:
        raise Unavailable(f"no TLS with {config.server}: the connection closed")
    line.secure(transport)


async def _log_in(line: SmtpProtocol, config: SmtpConfig, offers: Offers) -> None:
    if not _is_private(line):
        raise Unavailable(f"the line to {config.server} is not private; no password goes over it")
    user, password = config.username.encode(), config.password.encode()
    if "PLAIN" in offers.auth:
        secrets = [b"AUTH PLAIN " + base64.b64encode(b"\0%b\0%b" % (user, password))]
    elif "LOGIN" in offers.auth:
        secrets = [b"AUTH LOGIN", base64.b64encode(user), base64.b64encode(password)]
    else:
        raise Unavailable(f"{config.server} offers neither AUTH PLAIN nor AUTH LOGIN")
    for secret in secrets:
        reply = await line.command(secret + b"\r\n", config.timeouts.command_s)
        if reply.code != CHALLENGE:
            break
    if reply.code != LOGGED_IN:
        raise Unavailable(f"{config.server} refuses the login: {_without(secrets, reply, config)}")


def _is_private(line: SmtpProtocol) -> bool:
    if line.transport.get_extra_info("ssl_object") is not None:
        return True
    peer = line.transport.get_extra_info("peername")[0]
    return ipaddress.ip_address(peer.partition("%")[0]).is_loopback


def _without(secrets: list[bytes], reply: Reply, config: SmtpConfig) -> str:
    """The server's words, unless it repeats what we said to it."""
    hidden = [config.password.encode(), *(secret.split()[-1] for secret in secrets)]
    repeated = any(secret in reply.text for secret in hidden)
    return str(reply.code) if repeated else reply.words
