"""One connection to an IMAP server with the folder selected (RFC 9051, RFC 3501).

Blocking, so it is called in a thread. Mails are named by UID, read with PEEK, and never expunged
together with somebody else's. Errors are those of imaplib and the operating system.
"""

from __future__ import annotations

import base64
import contextlib
import imaplib
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import BinaryIO, cast

from postroom.bounce_mailbox.imap_config import ImapConfig
from postroom.bounce_mailbox.port import FETCHED_BYTES_MAX, ReturnedMail
from postroom.domain.tls import Tls

SEARCH_BYTES_MAX = 16 * 1024 * 1024  # the UIDs of two million mails; imaplib allows one megabyte
KEPT = "PostroomUnknown"  # keyword of mails that stay because there is no folder for them
_UID = re.compile(rb"\bUID (\d+)")
_DATE = re.compile(rb'INTERNALDATE "([^"]{10,40})"')
_NOT_ASCII = re.compile(r"[^\x20-\x7e]+")
_DELIMITER = re.compile(rb'\([^)]*\) "(\\?.)" ')


class LoginRefused(Exception):
    """The server does not accept user and password, or offers no login on this connection."""


class NoSuchFolder(Exception):
    """The folder does not exist, or nothing may be changed in it."""


class _LongLines(imaplib.IMAP4):
    """imaplib with longer lines, because a search answers on one."""

    def readline(self) -> bytes:
        file = cast(BinaryIO, self.file)
        line = file.readline(SEARCH_BYTES_MAX + 1)
        if len(line) > SEARCH_BYTES_MAX:
            raise self.abort("the line is too long")
        return line


class _LongLinesOverTls(_LongLines, imaplib.IMAP4_SSL):
    pass


class ImapSession:
    def __init__(self, config: ImapConfig) -> None:
        self._config = config
        self._targets: dict[str, str | None] = {}  # folders to move to, as far as looked for
        self._imap = _connect(config)
        try:
            self._log_in()
            self.select()
        except BaseException:
            self.close()
            raise

    def break_off(self) -> None:
        """End the wait of the thread that uses the connection; that thread closes it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._imap.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._imap.shutdown()

    def log_out(self) -> None:
        with contextlib.suppress(imaplib.IMAP4.error, OSError):
            self._imap.logout()
        self.close()

    def select(self) -> None:
        """Select the folder again, to see what is new."""
        try:
            status, _data = self._imap.select(_quoted(self._config.folder))
        except imaplib.IMAP4.readonly:
            raise NoSuchFolder("nothing may be changed in it") from None
        if status != "OK":
            raise NoSuchFolder("it does not exist, or this user may not read it")
        _code, data = self._imap.response("UIDVALIDITY")
        self.uid_validity = int(data[-1]) if data and data[-1] else 0
        _code, flags = self._imap.response("PERMANENTFLAGS")
        self._takes_keywords = any(b"\\*" in each for each in flags or [] if each)

    def search(self) -> list[int]:
        """The UIDs of the mails that wait, in order."""
        return sorted(self._uids("UNDELETED", f"UNKEYWORD {KEPT}"))

    def fetch(self, uid: int) -> ReturnedMail | None:
        """The beginning of a mail, which stays unread; None if it is gone or refused."""
        asked = f"(UID INTERNALDATE BODY.PEEK[]<0.{FETCHED_BYTES_MAX}>)"
        try:
            status, data = self._imap.uid("FETCH", str(uid), asked)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error:  # BAD: the server cannot read this one
            return None
        if status != "OK":
            return None
        around = b" ".join(each[0] if isinstance(each, tuple) else each or b"" for each in data)
        contents = [each[1] for each in data if isinstance(each, tuple)]
        if not contents or str(uid).encode() not in _UID.findall(around):
            return None
        return ReturnedMail(contents[0][:FETCHED_BYTES_MAX], _received_at(around))

    # --- Putting away -----------------------------------------------------------------------

    def target(self, name: str) -> str | None:
        """The folder of this name that mails can be moved to, created if need be."""
        if name not in self._targets:
            candidates = (f"{self._config.folder}{self._delimiter()}{name}", name)
            self._targets[name] = next(filter(self._exists, candidates), None)
        return self._targets[name]

    def move(self, uids: Sequence[int], folder: str) -> set[int]:
        """Move mails; return those that stay."""
        if "MOVE" in self._imap.capabilities:  # RFC 6851
            return _refused(uids, lambda some: self._is_done("MOVE", some, _quoted(folder)))
        stay = _refused(uids, lambda some: self._is_done("COPY", some, _quoted(folder)))
        return stay | self.delete([uid for uid in uids if uid not in stay])

    def delete(self, uids: Sequence[int]) -> set[int]:
        """Delete these mails and no others; return those that stay."""
        if not uids:
            return set()
        mark = "+FLAGS.SILENT"
        stay = _refused(uids, lambda some: self._is_done("STORE", some, mark, r"(\Deleted)"))
        marked = set(uids) - stay
        if "UIDPLUS" in self._imap.capabilities:  # RFC 4315
            self._is_done("EXPUNGE", sorted(marked))
        elif self._uids("DELETED") <= marked:  # otherwise somebody may still want theirs back
            self._imap.expunge()
        return stay

    def mark_as_kept(self, uids: Sequence[int]) -> set[int]:
        """Mark mails that stay in the folder; return those that could not be marked."""
        if not self._takes_keywords:
            return set(uids)
        return _refused(
            uids, lambda some: self._is_done("STORE", some, "+FLAGS.SILENT", f"({KEPT})")
        )

    def _exists(self, folder: str) -> bool:
        name = _quoted(folder)
        if self._imap.status(name, "(MESSAGES)")[0] == "OK":
            return True
        if self._imap.create(name)[0] != "OK":
            return False
        self._imap.subscribe(name)  # so that mail programs show it
        return True

    def _delimiter(self) -> str:
        _status, data = self._imap.list('""', '""')
        for each in data or []:
            found = _DELIMITER.match(each) if isinstance(each, bytes) else None
            if found:
                return found[1][-1:].decode("ascii", "replace")
        return ""

    def _is_done(self, command: str, uids: Sequence[int], *arguments: str) -> bool:
        return self._imap.uid(command, ",".join(map(str, uids)), *arguments)[0] == "OK"

    def _uids(self, *criteria: str) -> set[int]:
        status, data = self._imap.uid("SEARCH", *criteria)
        if status != "OK":
            raise imaplib.IMAP4.error("the search was refused")
        return {int(uid) for each in data if each for uid in each.split()}

    # --- Login ------------------------------------------------------------------------------

    def _log_in(self) -> None:
        config, imap = self._config, self._imap
        if config.tls is Tls.REQUIRE:
            imap.starttls(_context(config))
        try:
            if "AUTH=PLAIN" in imap.capabilities:  # any character; RFC 4616
                user, password = config.username.encode(), config.password.encode()
                imap.authenticate("PLAIN", lambda _challenge: b"\0" + user + b"\0" + password)
            elif "LOGINDISABLED" in imap.capabilities:
                raise LoginRefused("it offers no login on this connection")
            else:
                imap.login(config.username, config.password)
        except imaplib.IMAP4.abort:
            raise
        except (imaplib.IMAP4.error, UnicodeError) as error:
            raise LoginRefused(_words(error).replace(config.password, "…")) from None
        _status, data = imap.capability()  # more than before the login
        imap.capabilities = tuple(str(data[-1] or b"", "ascii", "replace").upper().split())


def _connect(config: ImapConfig) -> imaplib.IMAP4:
    timeouts = config.timeouts
    if config.tls is Tls.IMPLICIT:
        imap: imaplib.IMAP4 = _LongLinesOverTls(
            config.host, config.port, ssl_context=_context(config), timeout=timeouts.connect_s
        )
    else:
        imap = _LongLines(config.host, config.port, timeout=timeouts.connect_s)
    imap.sock.settimeout(timeouts.reply_s)
    return imap


def _context(config: ImapConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.ca_file or None)


def _refused(uids: Sequence[int], act: Callable[[Sequence[int]], bool]) -> set[int]:
    """Act on all of them, or on each if the server refuses; return those it refuses."""
    if not uids or act(uids):
        return set()
    return {uid for uid in uids if len(uids) == 1 or not act([uid])}


def _words(error: Exception) -> str:
    texts: Iterable[object] = error.args
    return " ".join(
        each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in texts
    )


def _received_at(around: bytes) -> datetime:
    """The INTERNALDATE; long ago if there is none."""
    found = _DATE.search(around)
    with contextlib.suppress(ValueError):
        if found:
            return parsedate_to_datetime(found[1].decode("ascii", "replace")).astimezone(UTC)
    return datetime.fromtimestamp(0, UTC)


def _quoted(folder: str) -> str:
    r"""A folder as IMAP wants it: modified UTF-7 (RFC 3501 5.1.3), in quotes."""

    def encoded(found: re.Match[str]) -> str:
        packed = base64.b64encode(found[0].encode("utf-16-be")).decode().rstrip("=")
        return f"&{packed.replace('/', ',')}-"

    name = _NOT_ASCII.sub(encoded, folder.replace("&", "&-"))
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
