"""How to reach an SMTP server: the transport's configuration, and its smtp:// address."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from postroom.domain.tls import Tls, is_loopback

SUBMISSION_PORT = 587  # RFC 6409
SUBMISSIONS_PORT = 465  # RFC 8314: TLS from the first octet

MAILS_PER_CONNECTION_MAX = 1000  # relays disconnect after 2,500 to 5,000; reconnecting is cheap
WINDOW = 8  # unanswered mails with BDAT: hides the round trip, leaves few in doubt

URL_FORM = "smtp://[user:password@]host[:port][?tls=require|implicit|none]"
URL_OPTIONS = frozenset({"tls", "ehlo", "ca_file"})
HOST = re.compile(r"[A-Za-z0-9._:-]+")
EHLO_NAME = re.compile(r"[A-Za-z0-9.:\[\]_-]*")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for a server (RFC 5321 4.5.3.2; a shorter `final_s` makes duplicates)."""

    connect_s: float = 60.0
    greeting_s: float = 300.0
    command_s: float = 300.0
    data_s: float = 120.0
    block_s: float = 180.0
    final_s: float = 600.0
    quit_s: float = 2.0  # our own

    @property
    def least_s(self) -> float:
        """The shortest wait for a reply to a mail."""
        return min(self.command_s, self.data_s, self.block_s, self.final_s)


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """One SMTP server and how to use it; its repr never shows the password."""

    host: str
    port: int
    tls: Tls = Tls.REQUIRE
    username: str = ""
    password: str = field(default="", repr=False)
    ehlo_name: str = ""  # empty: this machine's full name, else its address (RFC 5321 4.1.4)
    ca_file: str = ""  # empty: the certificate authorities of the system
    mails_per_connection_max: int = MAILS_PER_CONNECTION_MAX
    window: int = WINDOW
    window_max: int = 0  # it may grow up to this if the server answers slowly
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        if not HOST.fullmatch(self.host):
            raise ValueError(f"The SMTP address needs a host name: {URL_FORM}")
        if not 1 <= self.port <= 65535:
            raise ValueError("The port of the SMTP server must be a number from 1 to 65535.")
        if not EHLO_NAME.fullmatch(self.ehlo_name):
            raise ValueError("The EHLO name must be a host name, such as mail.contoso.edu.")
        if self.username and self.tls is Tls.NONE and not is_loopback(self.host):
            raise ValueError(
                f"The password would be sent to {self.host} unencrypted: use ?tls=require or"
                " ?tls=implicit, or leave user and password out."
            )
        if self.mails_per_connection_max < 1 or self.window < 1:
            raise ValueError("Mails per connection and the window must be at least 1.")

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"


def parse_smtp_url(url: str) -> SmtpConfig:
    """Parse an smtp:// address; a ValueError says what is wrong.

    Without `tls=`, port 465 means implicit TLS, this machine means none, and any other host
    requires STARTTLS: mail leaves the machine unencrypted only with an explicit `tls=none`.
    """
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= URL_OPTIONS:
        raise ValueError("The only options of the SMTP address are tls, ehlo and ca_file.")
    host = parts.hostname or ""
    tls = _tls(options.get("tls"), host, parts.port)
    fallback = SUBMISSIONS_PORT if tls is Tls.IMPLICIT else SUBMISSION_PORT
    username = unquote(parts.username or "")
    password = unquote(parts.password or "")
    if bool(username) != bool(password):
        raise ValueError("The SMTP address has a user or a password, but not both.")
    return SmtpConfig(
        host=host,
        port=fallback if parts.port is None else parts.port,
        tls=tls,
        username=username,
        password=password,
        ehlo_name=options.get("ehlo", ""),
        ca_file=options.get("ca_file", ""),
    )


def _split(url: str) -> SplitResult:
    # No error repeats any part of the address, because it may contain a password.
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"The SMTP address must look like {URL_FORM}; in a password, write"
            " / ? # @ : % as %2F %3F %23 %40 %3A %25."
        ) from None
    if parts.scheme != "smtp":
        raise ValueError(f"The SMTP address must begin with smtp://, as in {URL_FORM}")
    if parts.path not in ("", "/") or parts.fragment:
        raise ValueError(
            "Only ?tls=… may follow the port of the SMTP address; in a password, write"
            " / ? # as %2F %3F %23."
        )
    return parts


def _tls(choice: str | None, host: str, port: int | None) -> Tls:
    if choice is not None:
        try:
            return Tls(choice)
        except ValueError:
            raise ValueError("tls= must be require, implicit or none.") from None
    if port == SUBMISSIONS_PORT:
        return Tls.IMPLICIT
    return Tls.NONE if is_loopback(host) else Tls.REQUIRE
