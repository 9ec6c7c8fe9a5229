"""The transport port: a lane takes a slice of mails and answers with one outcome for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.domain.outcome import Outcome


class Mail(Protocol):
    """One mail for one recipient, ready to go."""

    @property
    def position(self) -> int:
        """Its place in the batch: how the watch and the ledger call it."""
        ...

    @property
    def sender(self) -> str:
        """Envelope sender."""
        ...

    @property
    def recipient(self) -> str:
        """Envelope recipient, in the spelling typed by its owner."""
        ...

    @property
    def needs_utf8(self) -> bool:
        """A non-ASCII local part: goes only through a server that offers SMTPUTF8 (RFC 6531)."""
        ...

    def source(self, *, eight_bit: bool) -> bytes:
        """The whole mail with CRLF line ends, not dot-stuffed; pure ASCII unless `eight_bit`."""
        ...


class NoWatch:
    """For a mail that needs no journal: a second copy harms nobody."""

    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: Sequence[int]) -> None:
        return

    def returned(self, positions: Sequence[int]) -> None:
        return

    def answered(self, position: int, outcome: Outcome) -> None:
        return


class Permit(NoWatch):
    """For such mails as well: whether they may go, and when they would have a turn."""

    async def waits_s(self, recipients: Sequence[str]) -> dict[int, float]:
        """By place, how long the turns are off that are not worth waiting for in a lane."""
        return {}


class HandOverWatch(Protocol):
    """Who looks on while a slice goes out: the right to send, and the ack journal."""

    def may_hand_over(self) -> bool:
        """Asked before every hand-over; once it says no, the rest of the slice is Untried."""
        ...

    def handing_over(self, positions: Sequence[int]) -> None:
        """Called just before the content of these mails is written to the line."""
        ...

    def returned(self, positions: Sequence[int]) -> None:
        """Called when the server said that it has not taken these; they may go out again."""
        ...

    def answered(self, position: int, outcome: Outcome) -> None:
        """Called as soon as the outcome of one mail is known."""
        ...


class Lane(Protocol):
    """One way out with its own connection; carries one slice at a time."""

    async def send(self, mails: Sequence[Mail], watch: HandOverWatch) -> list[Outcome]:
        """One outcome a mail, in the order given. Never raises for what a server says or does."""
        ...

    async def close(self) -> None: ...


class Transport(Protocol):
    def lane(self) -> Lane:
        """A new lane; it connects when it is first used."""
        ...

    async def close(self) -> None: ...
