"""The commands and content of one mail, in the form that the server supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from postroom.domain.outcome import Rejected, Untried
from postroom.mail.rendition import SplicedMail
from postroom.transport.port import OutgoingMail


@dataclass(frozen=True, slots=True)
class ServerExtensions:
    """The extensions a server named in its EHLO reply."""

    pipelining: bool = False  # RFC 2920
    chunking: bool = False  # RFC 3030
    eight_bit: bool = False  # RFC 6152
    utf8: bool = False  # RFC 6531
    size: bool = False  # RFC 1870
    size_max: int = 0  # 0: the server names no limit
    starttls: bool = False  # RFC 3207
    auth: frozenset[str] = frozenset()  # RFC 4954


def parse_offers(lines: Sequence[str]) -> ServerExtensions:
    """Parse the extensions in an EHLO reply, whose first line is the server's name."""
    offered = {words[0].upper(): words[1:] for line in lines[1:] if (words := line.split())}
    mechanisms = set(offered.get("AUTH", ()))
    for keyword in offered:
        if keyword.startswith("AUTH="):  # an old form, from before RFC 4954
            mechanisms |= {keyword[5:], *offered[keyword]}
    limit = offered.get("SIZE", [])
    return ServerExtensions(
        pipelining="PIPELINING" in offered,
        chunking="CHUNKING" in offered,
        eight_bit="8BITMIME" in offered,
        utf8="SMTPUTF8" in offered,
        size="SIZE" in offered,
        size_max=int(limit[0]) if limit and re.fullmatch("[0-9]{1,18}", limit[0]) else 0,
        starttls="STARTTLS" in offered,
        auth=frozenset(mechanism.upper() for mechanism in mechanisms),
    )


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One mail as it is sent."""

    mail: bytes  # the MAIL command
    rcpt: bytes  # the RCPT command
    content: SplicedMail


def envelope_for(
    mail: OutgoingMail, offers: ServerExtensions, signed: SplicedMail | None = None
) -> Envelope | Rejected | Untried:
    """Return the mail in a form that this server accepts, or why it cannot be sent through it.

    `signed` is the mail if it was signed: after that not a byte of it may change.
    """
    sender = mail.sender
    recipient = mail.recipient
    both = sender + recipient
    if not recipient or not _is_safe(both):
        if not recipient or not _is_safe(recipient):
            return Rejected("the recipient's address has characters that no envelope allows")
        return Rejected("the sender's address has characters that no envelope allows", False)
    utf8 = not both.isascii()
    if utf8 and not offers.utf8:
        return Rejected("the address is not ASCII and the server does not offer SMTPUTF8", False)
    content = mail.spliced(eight_bit=offers.eight_bit) if signed is None else signed
    size = content.size
    if offers.size_max and size > offers.size_max:
        words = f"the email is {size} bytes, but the server accepts at most {offers.size_max}"
        # With attachments it is everybody's mail that is too large, and not only this one.
        return Untried(words, too_large=True) if content.tail else Rejected(words, False)
    options = f" SIZE={size}" if offers.size else ""
    if offers.eight_bit and not content.is_ascii:
        options += " BODY=8BITMIME"
    if utf8:
        options += " SMTPUTF8"
    return Envelope(
        f"MAIL FROM:<{sender}>{options}\r\n".encode(),
        f"RCPT TO:<{recipient}>\r\n".encode(),
        content,
    )


def _is_safe(address: str) -> bool:
    """Return whether the address can end neither the command nor the path inside it.

    Line ends, control characters and all spaces but the ordinary one are not printable.
    """
    return address.isprintable() and not (" " in address or "<" in address or ">" in address)


def dotted(source: bytes) -> tuple[bytes, bytes]:
    """Return the content as DATA sends it, with dots doubled at line starts, and its terminator."""
    if b"\r\n." in source:
        source = source.replace(b"\r\n.", b"\r\n..")
    if source.startswith(b"."):
        source = b"." + source
    if source and not source.endswith(b"\r\n"):
        return source, b"\r\n.\r\n"
    return source, b".\r\n"
