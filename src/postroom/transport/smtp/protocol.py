"""The connection to an SMTP server: one reused buffer, parsed replies, and timeouts."""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections import deque
from typing import NamedTuple, cast

from postroom.transport.smtp.config import Timeouts
from postroom.transport.smtp.exchange import Exchange
from postroom.transport.smtp.reply import words_of

BUFFER_BYTES = 64 * 1024
LINE_BYTES_MAX = 4 * 1024  # RFC 5321 says 512; a much longer line is an attack
LARGE_BYTES = 256 * 1024  # of one write: a larger one is written piece by piece
REPLY_LINES_MAX = 100  # an EHLO reply has about 20

REPLY_LINE = re.compile(rb"[2-5][0-9][0-9](?:[ -]|$)")

SINGLE = (b"250 ", b"354 ")  # the common replies, of one line

QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only
# POLLRDHUP is Linux only; errors and hang-ups are always reported.
HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)

CLOSED = "the server closed the connection"
CLOSING_S_MAX = 5.0  # from a 421 to the close; most servers close at once


class ConnectionLost(ConnectionError):
    """The connection can no longer be used; the text says why."""


class Reply(NamedTuple):
    """One reply, of one or more lines."""

    code: int
    text: bytes

    @property
    def lines(self) -> list[str]:
        """The text of each line, without the code."""
        return [line[4:] for line in self.text.decode("utf-8", "replace").splitlines()]

    @property
    def words(self) -> str:
        return words_of(self.text)


class SmtpProtocol(asyncio.BufferedProtocol):
    """One connection: single commands to set it up, then slices through an exchange."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self.transport: asyncio.Transport
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._lines: list[bytes] = []  # of a reply not yet complete
        self._exchange: Exchange | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._reply: Reply | None = None
        self._expecting = True  # a reply outside of an exchange; first the greeting
        self._lost = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._progress_at = self._loop.time()
        self._unsent = 0
        self._owes_ack = False
        self._takes_data = True  # False while the write buffer is over its mark
        self._unwritten: deque[memoryview] = deque()  # of large writes, and what comes after them
        self._hang_ups: select.poll | None = None
        self.broken = ""  # why, once it is
        self._last_words = ""  # of a server that is about to close
        self.timed_out = False

    # Used by a session.

    async def command(self, line: bytes, timeout_s: float) -> Reply:
        """Send one command and wait for its reply; ConnectionLost if there is none."""
        self._expecting = True
        if not self.broken:
            self.transport.write(line)
        return await self.reply(timeout_s)

    async def reply(self, timeout_s: float) -> Reply:
        """Wait for the next reply."""
        if self._reply is None and not self.broken:
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
            except TimeoutError:
                self.timed_out = True
                self.hang_up(f"the server did not answer for {timeout_s:g} s")
            finally:
                self._waiter = None
        reply, self._reply = self._reply, None
        if reply is None:
            raise ConnectionLost(self.broken)
        return reply

    @property
    def quiet(self) -> bool:
        """Whether the connection is up and the server has sent nothing unasked.

        Polls the socket as well: what the event loop has not read yet can only be the end of the
        connection or a last reply.
        """
        if self.broken or self._filled or self._lines:
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    @property
    def idle_s(self) -> float:
        """Seconds since the server last sent something."""
        return self._loop.time() - self._progress_at

    async def carry(self, exchange: Exchange) -> None:
        """Run an exchange until it is done or the connection breaks."""
        self._exchange = exchange
        self._waiter = self._loop.create_future()
        self._progress_at = self._loop.time()
        self._unsent = 0
        try:
            exchange.begin(self)
            self._check_progress()
            if exchange.done:
                self._wake()
            await self._waiter
        finally:
            self._exchange = self._waiter = None
            if self._timer is not None:
                self._timer.cancel()

    async def close(self, timeout_s: float) -> None:
        """Close the transport and wait until it is closed."""
        self.broken = self.broken or "closed by us"
        self.transport.close()
        await asyncio.wait((self._lost,), timeout=timeout_s)
        self.transport.abort()

    # Used by an exchange.

    @property
    def writable(self) -> bool:
        """False also once the server has closed: its last reply must be read before a write fails,
        or a 421 is lost and mails are in doubt for no reason.
        """
        if self._hang_ups is None:
            self._hang_ups = select.poll()
            self._hang_ups.register(self.transport.get_extra_info("socket"), HANG_UP)
        return self._takes_data and not self._unwritten and not self._hang_ups.poll(0)

    def write(self, data: bytes) -> None:
        """Write it, or keep it until the connection has room, without a copy of a large one.

        The buffer of the transport would copy it, and all lanes write the same attachments.
        """
        self._owes_ack = False  # the data carries it
        if self._unwritten or len(data) > LARGE_BYTES:
            self._unwritten.append(memoryview(data))
            self._write_pieces()
        else:
            self.transport.write(data)

    def _write_pieces(self) -> None:
        while self._unwritten and self._takes_data and not self.broken:
            data = self._unwritten.popleft()
            if len(data) > LARGE_BYTES:
                self._unwritten.appendleft(data[LARGE_BYTES:])
            self.transport.write(data[:LARGE_BYTES])  # may call pause_writing

    def hang_up(self, words: str) -> None:
        if not self.broken:
            self._break(words)
        self.transport.abort()

    def expect_close(self, words: str) -> None:
        self._last_words = words
        self._loop.call_later(CLOSING_S_MAX, self.hang_up, words)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._progress_at = self._loop.time()
        self._owes_ack = True
        try:
            self._parse(self._filled + nbytes)
            self._catch_up()
            if self._owes_ack and self._exchange is not None and not self._exchange.done:
                self._acknowledge()
        except Exception as error:  # noqa: BLE001 - of the watch or a mail: raised by carry()
            self._fail(error)

    def eof_received(self) -> None:
        self.hang_up(CLOSED)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.broken:
            self._break(f"the connection broke: {error}" if error else CLOSED)
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._takes_data = False

    def resume_writing(self) -> None:
        self._takes_data = True
        self._progress_at = self._loop.time()
        self._write_pieces()
        try:
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - of the watch or a mail: raised by carry()
            self._fail(error)

    def _catch_up(self) -> None:
        if self._exchange is not None and not self.broken:
            self._exchange.caught_up()
            if self._exchange.done:
                self._wake()

    # Parsing replies.

    def _parse(self, end: int) -> None:
        buffer = self._buffer
        start = 0
        while not self.broken:
            if self._exchange is not None and not self._lines:
                start = self._exchange.skim(buffer, start, end)
            newline = buffer.find(b"\n", start, end)
            if newline < 0:
                break
            if self._exchange and not self._lines and buffer.startswith(SINGLE, start):
                code = 250 if buffer[start] == SINGLE[0][0] else 354
                self._exchange.replied(code, buffer[start:newline])  # the common case
            else:
                self._line_received(bytes(buffer[start:newline]))
            start = newline + 1
        rest = end - start
        if start:
            buffer[:rest] = buffer[start:end]
        self._filled = rest
        if rest > LINE_BYTES_MAX and not self.broken:
            self.hang_up(f"the server sent a line of more than {LINE_BYTES_MAX} bytes")

    def _acknowledge(self) -> None:
        """Acknowledge the server's replies at once.

        A server with Nagle's algorithm, such as Postfix, holds back small replies until earlier
        ones are acknowledged, which our kernel delays by up to 40 ms; if it closes the connection
        meanwhile, the replies it held back are lost, and their mails are in doubt.
        """
        if QUICK_ACK is not None and not self.broken:
            socket_ = self.transport.get_extra_info("socket")
            socket_.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def _line_received(self, line: bytes) -> None:
        line = line.rstrip(b"\r")
        if not REPLY_LINE.match(line):
            self.hang_up(f"the server does not speak SMTP: {words_of(line[:80])}")
        elif len(line) > LINE_BYTES_MAX or len(self._lines) == REPLY_LINES_MAX:
            self.hang_up("the server sent an endless reply")
        else:
            self._lines.append(line)
            if line[3:4] != b"-":
                text = b"\n".join(self._lines)
                self._lines = []
                self._replied(int(line[:3]), text)

    def _replied(self, code: int, text: bytes) -> None:
        if self._exchange is not None:
            self._exchange.replied(code, text)
        elif self._expecting:
            self._expecting = False
            self._reply = Reply(code, text)
            self._wake()
        else:
            self.hang_up(f"the server sent an unexpected reply: {words_of(text)}")

    # Timeouts and the end of a wait.

    def _check_progress(self) -> None:
        """Disconnect if nothing happened for as long as RFC 5321 allows."""
        if self._exchange is None or self._exchange.done or self.broken:
            return
        now = self._loop.time()
        unsent = self.transport.get_write_buffer_size() + sum(map(len, self._unwritten))
        if unsent != self._unsent:
            self._unsent = unsent
            self._progress_at = now  # the server still reads
        patience_s = self._timeouts.block_s if unsent else self._exchange.patience_s
        if now < self._progress_at + patience_s:
            # The next step may have a shorter timeout: check again after the shortest of all.
            again_at = min(self._progress_at + patience_s, now + self._timeouts.least_s)
            self._timer = self._loop.call_at(again_at, self._check_progress)
            return
        self.timed_out = True
        silence = "took no data" if unsent else "did not answer"
        self.hang_up(f"the server {silence} for {patience_s:g} s")

    def _break(self, words: str) -> None:
        self.broken = self._last_words or words
        self._unwritten.clear()
        if self._exchange is not None:
            try:
                self._exchange.lost(self.broken)
            except Exception as error:  # noqa: BLE001 - of the watch: raised by carry()
                self._fail(error)
        self._wake()

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.broken = self.broken or "an internal error"
        self.transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
