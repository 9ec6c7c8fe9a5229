"""The SMTP transport: a lane keeps its connection, replaces it when needed, and reports every mail.

If a connection breaks during a slice, the mails that were not handed over are sent over a new one.
A mail that was handed over and not answered is Unknown; nothing is handed over twice here.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from time import monotonic, thread_time

from postroom.domain.outcome import Outcome
from postroom.domain.tls import Tls
from postroom.transport.port import HandOverWatch, OutgoingMail, new_lane_id
from postroom.transport.smtp.config import SmtpConfig, Timeouts, parse_smtp_url
from postroom.transport.smtp.envelope import ServerExtensions
from postroom.transport.smtp.exchange import (
    WRITE_BYTES_MAX,
    BdatExchange,
    DataExchange,
    Exchange,
    StepwiseExchange,
)
from postroom.transport.smtp.protocol import ConnectionLost, SmtpProtocol
from postroom.transport.smtp.session import ServerUnavailable, open_session, tls_context
from postroom.transport.smtp.signing import Sign, SliceSigner
from postroom.transport.smtp.slice import Slice
from postroom.transport.smtp.window import Window

__all__ = ["SmtpConfig", "SmtpTransport", "Timeouts", "Tls", "parse_smtp_url"]

FRUITLESS_MAX = 2  # connections in a row that break before the server answered for a mail
LEARNED_S = 900.0  # how long a learned limit holds: a server that only restarted has none
WORKS_S = 600.0  # a server that answered this recently works: a 421 is about one recipient
IDLE_S_MAX = 2.0  # a longer idle connection is tested before use: firewalls drop them silently


class SmtpTransport:
    """One SMTP server; every lane has its own connection to it.

    With `sign`, what it returns for the source of a mail is sent in front of it.
    """

    def __init__(self, config: SmtpConfig, sign: Sign | None = None) -> None:
        self._config = config
        self._context = tls_context(config)
        self._signer = SliceSigner(sign) if sign is not None else None
        self._lanes: list[SmtpLane] = []

    def lane(self) -> SmtpLane:
        lane = SmtpLane(self._config, self._context, self._signer)
        self._lanes.append(lane)
        return lane

    async def close(self) -> None:
        while self._lanes:
            await self._lanes.pop().close()
        if self._signer is not None:
            self._signer.close()


class SmtpConnection:
    """A session with the server, and the number of mails it has carried."""

    def __init__(self, line: SmtpProtocol, offers: ServerExtensions, config: SmtpConfig) -> None:
        self.line = line
        self._offers = offers
        self._config = config
        self._transaction_open = False
        self.carried = 0

    async def carry(self, slice_: Slice, mails_max: int, window: Window) -> Exchange:
        """Send the waiting mails of the slice until the connection ends or is used up."""
        common = (slice_, self._offers, self._config.timeouts, mails_max - self.carried)
        # Large mails go one at a time: only one is in doubt if a sender dies, and it keeps the
        # connection busy.
        is_large = len(slice_.mails[0].compiled.tail) > WRITE_BYTES_MAX
        exchange: Exchange
        if self._offers.chunking and self._offers.pipelining:
            exchange = BdatExchange(*common, 1 if is_large else window.mails)
        else:
            exchange = (DataExchange if self._offers.pipelining else StepwiseExchange)(*common)
        exchange.transaction_open = self._transaction_open
        since_s = monotonic()
        worked_s = thread_time()
        await self.line.carry(exchange)
        if exchange.quickest_s is not None and not is_large:
            busy = (thread_time() - worked_s) / (monotonic() - since_s)
            window.learn(exchange.quickest_s, busy)
        self._transaction_open = exchange.transaction_open
        self.carried += exchange.taken
        return exchange

    async def is_fit(self) -> bool:
        """Whether the connection can carry the next mail; hands nothing over."""
        if not self.line.quiet:
            return False
        if self.line.idle_s < IDLE_S_MAX:
            return True
        try:
            reply = await self.line.command(b"RSET\r\n", self._config.timeouts.command_s)
        except ConnectionLost:
            return False
        return reply.code == 250

    async def quit(self) -> None:
        """Send QUIT, wait briefly for the answer, and close."""
        quit_s = self._config.timeouts.quit_s
        try:
            await self.line.command(b"QUIT\r\n", quit_s)
        except ConnectionLost:
            pass
        finally:
            await self.line.close(quit_s)


class SmtpLane:
    """Sends one slice at a time and keeps its connection for the next."""

    def __init__(
        self,
        config: SmtpConfig,
        context: ssl.SSLContext | None,
        signer: SliceSigner | None = None,
    ) -> None:
        self.id = new_lane_id()
        self._config = config
        self._context = context
        self._signer = signer
        self._connection: SmtpConnection | None = None
        self._mails_max = config.mails_per_connection_max
        self._learned_at = 0.0
        self._answered_at = -WORKS_S
        self._window = Window(config)

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        was_answered = monotonic() < self._answered_at + WORKS_S
        slice_ = Slice(mails, watch, was_answered=was_answered)
        try:
            await self._deliver(slice_)
            slice_.leave_waiting()
            if slice_.answered:
                self._answered_at = monotonic()
        except BaseException:
            self._drop()  # cancelled, or the watch failed: the state of the connection is unknown
            raise
        return slice_.total()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.quit()

    async def _deliver(self, slice_: Slice) -> None:
        """Send over one connection after another until the slice is done or the server fails."""
        fruitless = 0
        while slice_.waiting and not slice_.stopped:
            if self._signer is not None:
                await self._signer.sign_waiting(slice_)
            try:
                connection = await self._fit_connection()
            except ServerUnavailable as trouble:
                slice_.defer_waiting(str(trouble), trouble.fault)
                return
            answered = slice_.answered
            exchange = await connection.carry(slice_, self._mails_max, self._window)
            if not connection.line.broken:
                continue
            if exchange.cut_after:  # stay below the number at which the server ends with 421
                carried = connection.carried - exchange.taken + exchange.cut_after
                self._mails_max = min(self._mails_max, max(carried, self._config.window))
                self._learned_at = monotonic()
            self._connection = None
            fruitless = 0 if slice_.answered > answered else fruitless + 1
            if fruitless:
                self._window.start_over()
            # A server that was silent for minutes is not tried again within the same slice.
            if (connection.line.timed_out or fruitless == FRUITLESS_MAX) and not slice_.stopped:
                slice_.defer_waiting(f"{self._config.server}: {connection.line.broken}")

    async def _fit_connection(self) -> SmtpConnection:
        """Return the connection of the last slice if it still works, else a new one."""
        connection = self._connection
        if monotonic() > self._learned_at + LEARNED_S:
            self._mails_max = self._config.mails_per_connection_max
        if connection is not None and connection.carried >= self._mails_max:
            await self.close()
        elif connection is not None and await connection.is_fit():
            return connection
        self._drop()
        line, offers = await open_session(self._config, self._context)
        self._connection = SmtpConnection(line, offers, self._config)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.line.hang_up("dropped by us")
