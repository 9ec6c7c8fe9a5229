"""One client of the sink: how commands are understood and answered."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from postroom_bench.sink import Sink

MAIL_OK = b"250 2.1.0 Ok\r\n"
RCPT_OK = b"250 2.1.5 Ok\r\n"
START_INPUT = b"354 End data with <CR><LF>.<CR><LF>\r\n"
QUEUED = b"250 2.0.0 Ok: queued\r\n"
OK = b"250 2.0.0 Ok\r\n"
NO_RECIPIENT = b"554 5.5.1 No valid recipients\r\n"
BAD_SEQUENCE = b"503 5.5.1 Bad sequence of commands\r\n"
NESTED_MAIL = b"503 5.5.1 Nested MAIL command\r\n"
UNKNOWN_COMMAND = b"500 5.5.2 Unknown command\r\n"
LOGGED_IN = b"235 2.7.0 Authentication successful\r\n"
NOT_LOGGED_IN = b"535 5.7.8 Authentication credentials invalid\r\n"
LOGIN_REQUIRED = b"530 5.7.0 Authentication required\r\n"
TOO_MANY_MAILS = b"421 4.7.0 Too many mails in one connection\r\n"

AT_RCPT = {
    b"temp-fail": b"450 4.2.0 Try again later\r\n",
    b"perm-fail": b"550 5.1.1 No such user\r\n",
    b"full": b"452 4.2.2 Mailbox full\r\n",
    b"rate": b"451 4.7.1 Slow down\r\n",
}
AT_CONTENT = {
    b"policy": b"550 5.7.1 Refused by policy\r\n",
    b"busy": b"421 4.3.2 Shutting down\r\n",
}
DROPS = (b"drop-at-rcpt", b"drop-in-data", b"drop-after-dot")
SCRIPTS = (*AT_RCPT, *AT_CONTENT, *DROPS, b"slow")


@dataclass(frozen=True)
class SinkOptions:
    pipelining: bool = True
    chunking: bool = False
    eight_bit: bool = True
    utf8: bool = False
    ehlo: bool = True  # False: only HELO is known
    size_max: int = 0
    keep_contents: bool = False
    keep_commands: bool = False
    greeting: str = "220 sink ESMTP"
    data_without_recipient: bool = False  # answer DATA with 354 although no recipient was taken
    reset_on_refusal: bool = False  # forget the transaction when DATA or BDAT is refused
    mails_per_connection_max: int = 0
    delay_s: float = 0.0  # before every reply: the way there and back
    slow_s: float | None = None  # slow…@ is answered after that; None: on release()
    users: dict[str, str] = field(default_factory=dict)
    mechanisms: str = "PLAIN LOGIN"
    tls: ssl.SSLContext | None = None
    implicit_tls: bool = False
    receive_buffer_bytes: int = 0


class SinkConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.transport: asyncio.Transport
        self._held = bytearray()  # received, not yet understood
        self._scanned = 0  # how much of it holds no end of content
        self._out: list[bytes] = []
        self._is_slow = False  # a slow…@ mail holds the line up until release()
        self._secure = False
        self._handshake: asyncio.Task[None] | None = None
        self._logged_in = not sink.options.users
        self._login: list[bytes] | None = None
        self._content: bytes = b""  # b"DATA" or b"BDAT" while content is expected
        self._size = 0
        self._carried = 0
        self._forget()

    def _forget(self) -> None:
        self._sender: bytes | None = None
        self._recipient = b""
        self._script = b""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._secure = transport.get_extra_info("ssl_object") is not None
        if size := self.sink.options.receive_buffer_bytes:
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self.sink.connections.add(self)
        self.sink.connected += 1
        greeting = self.sink.options.greeting
        self._reply(f"{greeting}\r\n".encode())
        self._flush()
        if not greeting.startswith("220"):
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.sink.connections.discard(self)
        if self._carried:
            self.sink.count_carriers(-1)
        if not self.sink.connections:
            self.sink.is_empty.set()

    def abort(self) -> None:
        """Drop the client, in the middle of a handshake as well."""
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._held += data
        if self._handshake is None:
            self._go_on()

    def release(self) -> None:
        if self._is_slow and not self.transport.is_closing():
            self._is_slow = False
            self._reply(QUEUED)
            self._go_on()

    # How input is understood.

    def _go_on(self) -> None:
        if self._content and self._script != b"drop-in-data" and not self._has_content():
            return
        data, start = bytes(self._held), 0
        while not self._is_slow and not self.transport.is_closing():
            if self._content:
                end, after = self._content_end(data, start)
                if end < 0:
                    break
                self._take(data, start, end)
                start = after
                continue
            newline = data.find(b"\r\n", start)
            if newline < 0:
                break
            self._command(data[start:newline])
            start = newline + 2
        del self._held[:start]
        self._scanned = 0
        self._flush()
        if self._content and self._held and self._script == b"drop-in-data":
            self.transport.abort()

    def _has_content(self) -> bool:
        """Whether the end of a content has come; looks at every octet once."""
        if self._content == b"BDAT":
            return len(self._held) >= self._size
        found = self._held.find(b"\r\n.\r\n", max(0, self._scanned - 4)) >= 0
        self._scanned = len(self._held)
        return found or self._held.startswith(b".\r\n")

    def _content_end(self, data: bytes, start: int) -> tuple[int, int]:
        """Where the content ends and where the next command begins; -1 if not yet."""
        if self._content == b"BDAT":
            end = start + self._size
            return (end, end) if end <= len(data) else (-1, -1)
        if data.startswith(b".\r\n", start):
            return start, start + 3
        end = data.find(b"\r\n.\r\n", start)
        return (end + 2, end + 5) if end >= 0 else (-1, -1)

    def _take(self, data: bytes, start: int, end: int) -> None:
        kind, self._content = self._content, b""
        script = self._script
        if not self._recipient:
            self._reply(NO_RECIPIENT)
            if self.sink.options.reset_on_refusal or kind == b"DATA":
                self._forget()
            return
        if script in AT_CONTENT:
            self._reply(AT_CONTENT[script])
        elif script == b"drop-in-data":
            self._flush()
            self.transport.abort()
        else:
            self._record(data, start, end, dotted=kind == b"DATA")
            self._answer_taken(script)
        self._forget()
        if script == b"busy":
            self._close()

    def _record(self, data: bytes, start: int, end: int, *, dotted: bool) -> None:
        content = b""
        if self.sink.options.keep_contents:
            content = data[start:end]
            if dotted:
                content = undotted(content)
        message_id = find_message_id(data, start, end)
        self.sink.take(self._recipient, message_id, content, self._sender or b"", end - start)
        if not self._carried:
            self.sink.count_carriers(+1)
        self._carried += 1

    def _answer_taken(self, script: bytes) -> None:
        if script == b"drop-after-dot":
            self._flush()
            self.transport.abort()
        elif script == b"slow":
            self._is_slow = True
            self.sink.is_waiting.set()
            if self.sink.options.slow_s is not None:
                asyncio.get_running_loop().call_later(self.sink.options.slow_s, self.release)
        else:
            self._reply(QUEUED)

    # How commands are answered.

    def _command(self, line: bytes) -> None:
        if self.sink.options.keep_commands:
            self.sink.commands.append(line)
        if self._login is not None:
            self._go_on_with_login(line)
            return
        verb = line[:4].upper()
        if verb == b"RSET":
            self._forget()
            self._reply(OK)
        elif verb == b"MAIL":
            self._mail(line)
        elif verb == b"RCPT":
            self._rcpt(line[line.find(b"<") + 1 : line.rfind(b">")])
        elif verb == b"BDAT":
            self._content, self._size = b"BDAT", int(line.split()[1])
        elif verb == b"DATA":
            self._data()
        else:
            self._rare_command(verb, line)

    def _mail(self, line: bytes) -> None:
        most = self.sink.options.mails_per_connection_max
        if most and self._carried >= most:
            self._reply(TOO_MANY_MAILS)
            self._close()
        elif not self._logged_in:
            self._reply(LOGIN_REQUIRED)
        elif self._sender is not None:
            self._reply(NESTED_MAIL)
        else:
            self._sender = line[line.find(b"<") + 1 : line.find(b">")]
            self._reply(MAIL_OK)

    def _rcpt(self, recipient: bytes) -> None:
        script = self.sink.script(recipient)
        if self._sender is None:
            self._reply(BAD_SEQUENCE)
        elif script in AT_RCPT:
            self._reply(AT_RCPT[script])
        elif script == b"drop-at-rcpt":
            self._flush()
            self.transport.abort()
        else:
            self._recipient, self._script = recipient, script
            self._reply(RCPT_OK)

    def _data(self) -> None:
        if self._recipient or self.sink.options.data_without_recipient:
            self._content = b"DATA"
            self._reply(START_INPUT)
        else:
            self._reply(NO_RECIPIENT)
            if self.sink.options.reset_on_refusal:
                self._forget()

    def _rare_command(self, verb: bytes, line: bytes) -> None:
        argument = line[5:].decode().strip()
        match verb:
            case b"EHLO" if self.sink.options.ehlo:
                self._reply(self.sink.offers(secure=self._secure))
            case b"HELO" | b"NOOP":
                self._reply(OK)
            case b"STAR" if self.sink.options.tls and not self._secure:
                self._start_tls(self.sink.options.tls)
            case b"AUTH":
                self._start_login(argument.split())
            case b"QUIT":
                self._reply(b"221 2.0.0 Bye\r\n")
                self._close()
            case b"XSTA":
                self._reply(self.sink.statistics())
            case b"XCOU":
                self._reply(self.sink.count())
            case b"XDUM":
                self.sink.dump(line[6:].decode())
                self._reply(OK)
            case b"XRES":
                self.sink.reset()
                self._reply(OK)
            case _:
                self._reply(UNKNOWN_COMMAND)

    def _start_tls(self, context: ssl.SSLContext) -> None:
        self._reply(b"220 2.0.0 Ready to start TLS\r\n")
        self._flush()
        self._held.clear()
        loop = asyncio.get_running_loop()
        self._handshake = loop.create_task(self._shake_hands(loop, context))

    async def _shake_hands(self, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext) -> None:
        try:
            transport = await loop.start_tls(self.transport, self, context, server_side=True)
        except (OSError, asyncio.CancelledError):
            self.transport.abort()
            self.connection_lost(None)
        else:
            self.transport, self._secure = cast(asyncio.Transport, transport), True
            self._handshake = None
            self._go_on()

    def _start_login(self, words: list[str]) -> None:
        mechanism, initial = words[0].upper(), [word.encode() for word in words[1:]]
        if mechanism not in self.sink.options.mechanisms.split():
            self._reply(b"504 5.5.4 Unrecognized authentication type\r\n")
        elif mechanism == "PLAIN" and initial:
            _, user, password = base64.b64decode(initial[0]).split(b"\0")
            self._log_in(user, password)
        else:
            self._login = []
            self._reply(b"334 VXNlcm5hbWU6\r\n")

    def _go_on_with_login(self, line: bytes) -> None:
        assert self._login is not None
        self._login.append(base64.b64decode(line))
        if len(self._login) == 1:
            self._reply(b"334 UGFzc3dvcmQ6\r\n")
        else:
            user, password = self._login
            self._login = None
            self._log_in(user, password)

    def _log_in(self, user: bytes, password: bytes) -> None:
        self._logged_in = self.sink.options.users.get(user.decode()) == password.decode()
        self._reply(LOGGED_IN if self._logged_in else NOT_LOGGED_IN)

    # How replies go out.

    def _reply(self, reply: bytes) -> None:
        self._out.append(reply)

    def _flush(self) -> None:
        if not self._out or self.transport.is_closing():
            return
        data = b"".join(self._out)
        self._out.clear()
        if self.sink.options.delay_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self.sink.options.delay_s, self.transport.write, data)
        else:
            self.transport.write(data)

    def _close(self) -> None:
        self._flush()
        loop = asyncio.get_running_loop()
        loop.call_later(self.sink.options.delay_s, self.transport.close)


def undotted(content: bytes) -> bytes:
    """The content of DATA without the dots that were doubled (RFC 5321 4.5.2)."""
    content = content.replace(b"\r\n.", b"\r\n")
    return content[1:] if content.startswith(b".") else content


def find_message_id(data: bytes, start: int, end: int) -> bytes:
    if not data.startswith(b"Message-ID:", start):
        start = data.find(b"\nMessage-ID:", start, end) + 1
        if not start:
            return b""
    return data[start + 11 : data.find(b"\r\n", start)].strip()
