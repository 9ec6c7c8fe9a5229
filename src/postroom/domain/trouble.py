"""Trouble with the mail server: its kinds, and a sentence and advice for each.

The pages, `postroom doctor`, the log and the web service all use the sentences from here.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _, clipped

THROTTLING = 421  # RFC 5321: the service is not available, the connection is closed
ABOUT_OUR_ACCOUNT = frozenset({454, 530, 534, 535, 538})  # AUTH and TLS, RFC 4954 and 3207
WORDS_CHARS_MAX = 160
_CHARS_READ_MAX = 4000  # of what a server said: a word without an @ is searched in quadratic time
# OpenSSL's reasons when the other side does not answer in TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
_REPLY = re.compile(r"([0-9]{3})(?:[ -]|$)")
_ERRNO = re.compile(r"\[Errno ([0-9]+)\]")
_ADDRESS = re.compile(r"[^\s<>\"'(),;:@]+@[^\s<>\"'(),;:@]+")


class TroubleKind(StrEnum):
    NAME = "name"  # no such host
    CONNECT = "connect"  # nothing is listening there, or there is no route
    SILENT = "silent"
    NOT_TLS = "not_tls"  # implicit TLS on a port without TLS
    TLS = "tls"
    CERTIFICATE = "certificate"
    NO_STARTTLS = "no_starttls"
    UNPROTECTED = "unprotected"  # the password would be sent unencrypted
    NO_LOGIN = "no_login"  # no login method that we support
    LOGIN = "login"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"  # the connection broke
    KEY = "key"  # a provider rejects the API key, or what it may do
    ACCOUNT = "account"  # a provider has paused, suspended or not verified our account
    OUTBOX = "outbox"  # the test mailbox cannot be written


class Fault(msgspec.Struct, frozen=True):
    """Why a transport could not send; the words are the server's or the operating system's."""

    kind: TroubleKind
    words: str = ""


class Trouble(msgspec.Struct, frozen=True):
    """What keeps one sender from sending, until the next email that goes through."""

    kind: TroubleKind
    server: str  # host:port, never a user or a password
    words: str
    since: datetime
    next_try_at: datetime
    faults: int  # in a row

    def log_fields(self) -> dict[str, object]:
        names = {"server": self.server, "kind": self.kind.value, "words": self.words}
        return {**names, "since": self.since.isoformat(timespec="seconds"), "faults": self.faults}

    @property
    def sentence(self) -> Text:
        return sentence(self.kind, self.server, self.words)

    @property
    def advice(self) -> Text:
        return ADVICE[self.kind]


def sentence(kind: TroubleKind, server: str, words: str = "") -> Text:
    """Describe what is wrong in one sentence, with the server's reply."""
    named = {"server": server}
    texts = {
        TroubleKind.NAME: _("The mail server {server} cannot be found", **named),
        TroubleKind.CONNECT: _("Cannot connect to the mail server {server}", **named),
        TroubleKind.SILENT: _("The mail server {server} does not answer", **named),
        TroubleKind.NOT_TLS: _("The mail server {server} does not speak TLS on this port", **named),
        TroubleKind.TLS: _("The TLS handshake with the mail server {server} failed", **named),
        TroubleKind.CERTIFICATE: _(
            "The certificate of the mail server {server} is not trusted", **named
        ),
        TroubleKind.NO_STARTTLS: _("The mail server {server} does not offer STARTTLS", **named),
        TroubleKind.UNPROTECTED: _(
            "The connection to the mail server {server} is not encrypted, so no password is sent",
            **named,
        ),
        TroubleKind.NO_LOGIN: _(
            "The mail server {server} offers neither AUTH PLAIN nor AUTH LOGIN", **named
        ),
        TroubleKind.LOGIN: _("The mail server {server} rejects the login", **named),
        TroubleKind.THROTTLED: _("The mail server {server} asks to try again later", **named),
        TroubleKind.REFUSED: _(
            "The mail server {server} is not accepting emails right now", **named
        ),
        TroubleKind.BROKEN: _("The connection to the mail server {server} was lost", **named),
        TroubleKind.KEY: _("{server} rejects the API key", **named),
        TroubleKind.ACCOUNT: _("{server} does not let this account send", **named),
        TroubleKind.OUTBOX: _("The test mailbox cannot be written to"),
    }
    what = texts[kind]
    return _("{what}: {words}", what=what, words=words) if words else _("{what}.", what=what)


_HOST_AND_PORT = _("Check the host and port in POSTROOM_TRANSPORT, and any firewall in between.")
_LATER = _(
    "This usually resolves itself. If not, send more slowly, or ask the operator of the server."
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
        "Use the host name that the certificate is for, or set POSTROOM_SMTP_CA_FILE to a file "
        "with the authority that issued it."
    ),
    TroubleKind.NO_STARTTLS: _(
        "Check the port. Only if the server is on a network you trust, add “?tls=none” to "
        "POSTROOM_TRANSPORT: emails are then sent unencrypted, and no password is sent."
    ),
    TroubleKind.UNPROTECTED: _("Leave “?tls=none” out of POSTROOM_TRANSPORT."),
    TroubleKind.NO_LOGIN: _(
        "Check the port in POSTROOM_TRANSPORT. Some servers offer a login only with TLS."
    ),
    TroubleKind.LOGIN: _("Check the user name and the password in POSTROOM_TRANSPORT."),
    TroubleKind.THROTTLED: _LATER,
    TroubleKind.REFUSED: _LATER,
    TroubleKind.BROKEN: _LATER,
    TroubleKind.KEY: _(
        "Check the key in the settings, its permissions, and that the sender’s domain is verified "
        "with the provider. Nothing is sent until then, and no email is lost."
    ),
    TroubleKind.ACCOUNT: _(
        "Check the account in the provider’s console: its limits, whether sending is paused, and "
        "whether the sender’s domain is verified. No email is lost."
    ),
    TroubleKind.OUTBOX: _("Check the storage. The disk may be full."),
}


def fault_of_error(error: OSError | UnicodeError) -> Fault:
    """Describe an error of the operating system or OpenSSL, without numbers and brackets."""
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
    # Asyncio joins the errors of several addresses into one text; the first is enough.
    found = _ERRNO.search(str(error))
    number = error.errno or (int(found[1]) if found else 0)
    words = os.strerror(number).lower() if number > 0 else one_line(str(error))
    return Fault(TroubleKind.CONNECT, words)


def fault_of_words(words: str) -> Fault:
    """Classify by the code of the server's reply; without a code, the connection broke."""
    found = _REPLY.match(words)
    if found is None:
        return Fault(TroubleKind.BROKEN, one_line(words))
    code = int(found[1])
    kind = TroubleKind.LOGIN if code in ABOUT_OUR_ACCOUNT else TroubleKind.REFUSED
    return Fault(TroubleKind.THROTTLED if code == THROTTLING else kind, one_line(words))


def one_line(words: str) -> str:
    """Make the text one short printable line without addresses."""
    beginning = words[:_CHARS_READ_MAX]
    line = " ".join("".join(c if c.isprintable() else " " for c in beginning).split())
    return clipped(_ADDRESS.sub("…", line), WORDS_CHARS_MAX)
