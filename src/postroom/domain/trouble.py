"""Trouble with the mail server: its kinds, and each of them in plain words.

The pages, `postroom doctor`, the log and the web service all say it with the sentences made here.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _

THROTTLING = 421  # RFC 5321: the service is not available, the connection is closed
ABOUT_OUR_ACCOUNT = frozenset({454, 530, 534, 535, 538})  # AUTH and TLS, RFC 4954 and 3207
WORDS_CHARS_MAX = 160
# What OpenSSL says when the other side answers in something else than TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
_REPLY = re.compile(r"([0-9]{3})(?:[ -]|$)")
_ERRNO = re.compile(r"\[Errno ([0-9]+)\]")
_ADDRESS = re.compile(r"[^\s<>\"'(),;:@]+@[^\s<>\"'(),;:@]+")


class TroubleKind(StrEnum):
    NAME = "name"  # no such host
    CONNECT = "connect"  # nothing listens there, or no way there
    SILENT = "silent"
    NOT_TLS = "not_tls"  # TLS from the first octet, at a port that speaks in clear
    TLS = "tls"
    CERTIFICATE = "certificate"
    NO_STARTTLS = "no_starttls"
    UNPROTECTED = "unprotected"  # a password would travel in clear
    NO_LOGIN = "no_login"  # no way to log in that we know
    LOGIN = "login"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"  # the connection broke
    OUTBOX = "outbox"  # the test mailbox cannot be written


class Fault(msgspec.Struct, frozen=True):
    """What a transport met when no mail could get out; the words are the server's, or the OS's."""

    kind: TroubleKind
    words: str = ""


class Trouble(msgspec.Struct, frozen=True):
    """What keeps one sender from sending, until the next mail that goes through."""

    kind: TroubleKind
    server: str  # host:port, never a user or a password
    words: str
    since: datetime
    next_try_at: datetime
    faults: int  # in a row

    def log_fields(self) -> dict[str, object]:
        since = self.since.isoformat(timespec="seconds")
        return {
            "server": self.server,
            "kind": self.kind.value,
            "words": self.words,
            "since": since,
            "faults": self.faults,
        }

    @property
    def sentence(self) -> Text:
        return sentence(self.kind, self.server, self.words)

    @property
    def advice(self) -> Text:
        return ADVICE[self.kind]


def sentence(kind: TroubleKind, server: str, words: str = "") -> Text:
    """One sentence: what is wrong, and in whose words."""
    what = _what(kind, server)
    return _("{what}: {words}", what=what, words=words) if words else _("{what}.", what=what)


def _what(kind: TroubleKind, server: str) -> Text:
    texts = {
        TroubleKind.NAME: _("The mail server {server} cannot be found", server=server),
        TroubleKind.CONNECT: _("Cannot connect to the mail server {server}", server=server),
        TroubleKind.SILENT: _("The mail server {server} does not answer", server=server),
        TroubleKind.NOT_TLS: _(
            "The mail server {server} does not speak TLS on this port", server=server
        ),
        TroubleKind.TLS: _("The mail server {server} and we cannot agree on TLS", server=server),
        TroubleKind.CERTIFICATE: _(
            "The certificate of the mail server {server} is not trusted", server=server
        ),
        TroubleKind.NO_STARTTLS: _(
            "The mail server {server} does not offer STARTTLS", server=server
        ),
        TroubleKind.UNPROTECTED: _(
            "The connection to the mail server {server} is not encrypted, so no password is sent",
            server=server,
        ),
        TroubleKind.NO_LOGIN: _(
            "The mail server {server} offers neither AUTH PLAIN nor AUTH LOGIN", server=server
        ),
        TroubleKind.LOGIN: _("The mail server {server} refuses our login", server=server),
        TroubleKind.THROTTLED: _(
            "The mail server {server} asks us to come back later", server=server
        ),
        TroubleKind.REFUSED: _("The mail server {server} takes no emails now", server=server),
        TroubleKind.BROKEN: _(
            "The connection to the mail server {server} breaks off", server=server
        ),
        TroubleKind.OUTBOX: _("The test mailbox cannot be written"),
    }
    return texts[kind]


_HOST_AND_PORT = _("Check host and port in POSTROOM_TRANSPORT, and the firewall in between.")
_LATER = _(
    "It usually passes by itself. If it does not, send more slowly, or ask whoever runs the server."
)
ADVICE: dict[TroubleKind, Text] = {
    TroubleKind.NAME: _("Check the host name in POSTROOM_TRANSPORT, and the DNS of this machine."),
    TroubleKind.CONNECT: _HOST_AND_PORT,
    TroubleKind.SILENT: _HOST_AND_PORT,
    TroubleKind.NOT_TLS: _(
        "Leave “?tls=implicit” out of POSTROOM_TRANSPORT, or use the port for TLS, usually 465."
    ),
    TroubleKind.TLS: _("Check the port and “tls” in POSTROOM_TRANSPORT."),
    TroubleKind.CERTIFICATE: _(
        "Use the host name that the certificate is for, or name the authority that issued it in "
        "POSTROOM_SMTP_CA_FILE."
    ),
    TroubleKind.NO_STARTTLS: _(
        "Check the port. If emails may travel unencrypted, add “?tls=none” to POSTROOM_TRANSPORT."
    ),
    TroubleKind.UNPROTECTED: _("Leave “?tls=none” out of POSTROOM_TRANSPORT."),
    TroubleKind.NO_LOGIN: _(
        "Check the port in POSTROOM_TRANSPORT; some servers offer a login only under TLS."
    ),
    TroubleKind.LOGIN: _("Check the user name and the password in POSTROOM_TRANSPORT."),
    TroubleKind.THROTTLED: _LATER,
    TroubleKind.REFUSED: _LATER,
    TroubleKind.BROKEN: _LATER,
    TroubleKind.OUTBOX: _("Check the storage: is the disk full?"),
}


def fault_of_error(error: OSError | UnicodeError) -> Fault:
    """What the operating system or OpenSSL could not do, without numbers and brackets."""
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return Fault(TroubleKind.NAME)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Fault(TroubleKind.CERTIFICATE, one_line(error.verify_message))
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in _NOT_TLS:
            return Fault(TroubleKind.NOT_TLS)
        return Fault(TroubleKind.TLS, one_line(reason.replace("_", " ").lower()))
    if isinstance(error, TimeoutError):
        return Fault(TroubleKind.SILENT)
    return Fault(TroubleKind.CONNECT, _os_words(error))


def fault_of_words(words: str) -> Fault:
    """By the code of the server's reply; without one, the connection broke."""
    found = _REPLY.match(words)
    if found is None:
        return Fault(TroubleKind.BROKEN, one_line(words))
    code = int(found[1])
    if code == THROTTLING:
        kind = TroubleKind.THROTTLED
    else:
        kind = TroubleKind.LOGIN if code in ABOUT_OUR_ACCOUNT else TroubleKind.REFUSED
    return Fault(kind, one_line(words))


def one_line(words: str) -> str:
    """Short, printable, and without anybody's address."""
    line = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    line = _ADDRESS.sub("…", line)
    return line if len(line) <= WORDS_CHARS_MAX else line[: WORDS_CHARS_MAX - 1] + "…"


def _os_words(error: OSError) -> str:
    """Asyncio joins the errors of several addresses in one text: the first of them will do."""
    found = _ERRNO.search(str(error))
    number = error.errno or (int(found[1]) if found else 0)
    return os.strerror(number).lower() if number > 0 else one_line(str(error))
