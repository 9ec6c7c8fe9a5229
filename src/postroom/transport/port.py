"""The transport port: a lane takes a slice of mails and returns one outcome for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.domain.outcome import Outcome


class Mail(Protocol):
    """One mail for one recipient, ready to send."""

    @property
    def position(self) -> int:
        """Its position in the batch, by which the watch and the ledger know it."""
        ...

    @property
    def sender(self) -> str:
        """The envelope sender."""
        ...

    @property
    def recipient(self) -> str:
        """The envelope recipient, spelt as the subscriber typed it."""
        ...

    @property
    def needs_utf8(self) -> bool:
        """Whether the local part is not ASCII, which needs a server with SMTPUTF8 (RFC 6531)."""
        ...

    def source(self, *, eight_bit: bool) -> bytes:
        """The whole mail with CRLF line ends, not dot-stuffed; ASCII only unless `eight_bit`."""
        ...


class Permit:
    """A watch for mails that need no journal, because a second copy does no harm."""

    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: Sequence[int]) -> None:
        return

    def returned(self, positions: Sequence[int]) -> None:
        return

    def answered(self, position: int, outcome: Outcome) -> None:
        return

    async def waits_s(self, recipients: Sequence[str]) -> dict[int, float]:
        """By position, how long to wait for mails that a rate limit keeps back too long."""
        return {}


class HandOverWatch(Protocol):
    """Follows a slice while it is sent: the permission to send, and the journal."""

    def may_hand_over(self) -> bool:
        """Called before every hand-over; once it is False, the rest of the slice is Untried."""
        ...

    def handing_over(self, positions: Sequence[int]) -> None:
        """Called just before the content of these mails is written to the connection."""
        ...

    def returned(self, positions: Sequence[int]) -> None:
        """Called when the server said it has not accepted these; they may be sent again."""
        ...

    def answered(self, position: int, outcome: Outcome) -> None:
        """Called as soon as the outcome of one mail is known."""
        ...


class Lane(Protocol):
    """Sends one slice at a time over its own connection."""

    async def send(self, mails: Sequence[Mail], watch: HandOverWatch) -> list[Outcome]:
        """One outcome per mail, in order. Never raises for what a server says or does."""
        ...

    async def close(self) -> None: ...


class Transport(Protocol):
    def lane(self) -> Lane:
        """A new lane; it connects when it is first used."""
        ...

    async def close(self) -> None: ...
