"""How to reach a mailbox over IMAP: its configuration, and its imap:// address."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from postroom.domain.tls import Tls, is_loopback

IMAP_PORT = 143
IMAPS_PORT = 993  # RFC 8314
URL_FORM = "imap://user:password@host[:port][/FOLDER][?tls=implicit|require|none]"
URL_OPTIONS = frozenset({"tls", "ca_file", "processed"})
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True)
class ImapTimeouts:
    """How long to wait for a server, in seconds."""

    connect_s: float = 20.0
    reply_s: float = 30.0  # a part of a reply
    call_s: float = 120.0  # everything that belongs to one call of the port


@dataclass(frozen=True, slots=True)
class ImapConfig:
    """One folder on one IMAP server; its repr never shows the password."""

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    folder: str = "INBOX"
    tls: Tls = Tls.IMPLICIT
    ca_file: str = ""  # empty: the certificate authorities of the system
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host):
            raise ValueError(f"The address needs a host name: {URL_FORM}")
        if not 1 <= self.port <= 65535:
            raise ValueError("The port of the IMAP server must be a number from 1 to 65535.")
        if not self.username or not self.password:
            raise ValueError(f"The address needs a user and a password: {URL_FORM}")
        if not all(text.isprintable() for text in (self.username, self.password, self.folder)):
            raise ValueError("User, password and folder must not contain control characters.")
        if self.tls is Tls.NONE and not is_loopback(self.host):
            raise ValueError(
                f"The password would be sent to {self.host} unencrypted: use ?tls=implicit or"
                " ?tls=require."
            )

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"


def parse_imap_url(url: str) -> ImapConfig:
    """Parse an imap:// address; a ValueError says what is wrong, without any part of it."""
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= URL_OPTIONS:
        raise ValueError("The only options of the IMAP address are tls, ca_file and processed.")
    try:
        tls = Tls(options.get("tls", Tls.IMPLICIT))
    except ValueError:
        raise ValueError("tls= must be implicit, require or none.") from None
    fallback = IMAPS_PORT if tls is Tls.IMPLICIT else IMAP_PORT
    return ImapConfig(
        host=parts.hostname or "",
        port=fallback if parts.port is None else parts.port,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        folder=unquote(parts.path.strip("/")) or "INBOX",
        tls=tls,
        ca_file=options.get("ca_file", ""),
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"The IMAP address must look like {URL_FORM}; in user and password, write"
            " / ? # @ : % as %2F %3F %23 %40 %3A %25."
        ) from None
    if parts.scheme != "imap" or parts.fragment:
        raise ValueError(f"The IMAP address must look like {URL_FORM}")
    return parts
