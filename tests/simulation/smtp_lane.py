"""A lane that speaks the real SMTP dialogue with a simulated server, which may say 421.

The server reads one mail after the other, each an I/O of the world; what it takes has arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from postroom.domain.outcome import Outcome
from postroom.storage.port import StorageError
from postroom.transport.port import HandOverWatch, OutgoingMail
from postroom.transport.smtp.config import Timeouts
from postroom.transport.smtp.envelope import ServerExtensions
from postroom.transport.smtp.exchange import RSET, BdatExchange
from postroom.transport.smtp.slice import Slice
from tests.simulation.post import Post

WINDOW = 2
CONNECTIONS_MAX = 3
OFFERS = ServerExtensions(pipelining=True, chunking=True)
COMMANDS = 4  # RSET, MAIL, RCPT, BDAT


class Wire:
    """The connection of one exchange."""

    def __init__(self, exchange: BdatExchange) -> None:
        self._exchange = exchange
        self.unread: deque[str] = deque()  # recipients of the mails that were written
        self.writable = True

    def write(self, data: bytes) -> None:
        for mail in data.split(RSET)[1:]:
            self.unread.append(mail.split(b"RCPT TO:<")[1].split(b">")[0].decode())

    def hang_up(self, words: str) -> None:
        self._exchange.lost(words)

    def expect_close(self, words: str) -> None:
        self.unread.clear()  # the server reads no further


class SmtpLane:
    id = 0

    def __init__(self, post: Post) -> None:
        self._post = post

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        slice_ = Slice(mails, watch)
        for _ in range(CONNECTIONS_MAX):
            await self._carry(slice_)
        slice_.defer_waiting("the server keeps closing")
        return slice_.total()

    async def close(self) -> None:
        return

    async def _carry(self, slice_: Slice) -> None:
        """Over one connection, as far as it goes."""
        exchange = BdatExchange(slice_, OFFERS, Timeouts(), len(slice_.mails), WINDOW)
        wire = Wire(exchange)
        exchange.begin(wire)
        while wire.unread and not exchange.done:
            try:
                replies = await self._post.converse(wire.unread.popleft(), COMMANDS)
            except StorageError:  # a simulated failure of this I/O is a broken line
                exchange.lost("the line failed")
                return
            for reply in replies:
                exchange.replied(*reply)
            exchange.caught_up()
        if not exchange.done:
            exchange.lost("the server closed the connection")
