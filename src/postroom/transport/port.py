"""The transport port: a lane sends a slice of mails and returns one outcome for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from postroom.domain.outcome import Outcome
from postroom.mail.mime import CompiledMail
from postroom.mail.rendition import SplicedMail

new_lane_id = itertools.count().__next__  # for lanes that wrap no other lane


class OutgoingMail(Protocol):
    """One mail for one recipient, ready to send: as bytes, or as the parts it is made of."""

    @property
    def position(self) -> int:
        """Its position in the batch, as the watch and the ledger number it."""

    @property
    def token(self) -> str:
        """The delivery token (domain/delivery_token.py), by which reports identify the mail."""

    @property
    def message_id(self) -> str:
        """With its angle brackets; the same at every attempt."""

    @property
    def sender(self) -> str:
        """The envelope sender."""

    @property
    def recipient(self) -> str:
        """Envelope recipient, in the spelling the subscriber typed."""

    def spliced(self, *, eight_bit: bool) -> SplicedMail:
        """The whole mail with CRLF line ends, not dot-stuffed; ASCII only unless `eight_bit`."""

    @property
    def compiled(self) -> CompiledMail:
        """What all mails of the message share: the same object for the mails of one slice."""

    @property
    def merge_values(self) -> Mapping[str, str]:
        """The values of all merge fields, unescaped, with `email` and `unsubscribe_url`."""

    @property
    def own_headers(self) -> Sequence[tuple[str, str]]:
        """The headers of this recipient alone, without To and Date: Message-ID and unsubscribe."""


class HandOverRecord(Protocol):
    """Records what happens to a slice while it is sent; the ack journal is one."""

    def handing_over(self, positions: Sequence[int]) -> None:
        """Called just before the content of these mails is written to the connection."""

    def returned(self, positions: Sequence[int]) -> None:
        """Called when the server has not accepted these; they may be sent again."""

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        """Called as soon as outcomes are known, by position: all from one read together."""


class HandOverWatch(HandOverRecord, Protocol):
    """Follows a slice while it is sent: the permission to send, and the ack journal."""

    def may_hand_over(self) -> bool:
        """Asked before each write of mails; once it is False, the rest of the slice is Untried."""


class GuardedWatch:
    """A record with its own permission to hand over."""

    def __init__(self, record: HandOverRecord, may_hand_over: Callable[[], bool]) -> None:
        self.may_hand_over = may_hand_over
        self.handing_over = record.handing_over
        self.returned = record.returned
        self.answered = record.answered


class Permit:
    """The watch of single mails: they need no journal, because a second copy is harmless."""

    def may_hand_over(self) -> bool:
        return True

    def handing_over(self, positions: Sequence[int]) -> None:
        return

    def returned(self, positions: Sequence[int]) -> None:
        return

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        return

    async def waits_s(self, recipients: Sequence[str]) -> dict[int, float]:
        """Return by position how long to delay mails that should not wait in a lane."""
        return {}


class Lane(Protocol):
    """Sends one slice at a time over its own connection."""

    @property
    def id(self) -> int:
        """Identifies the lane in its process; a lane that wraps another one has the same id."""

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        """One outcome per mail, in order. Never raises for what a server says or does."""

    async def close(self) -> None: ...


class Transport(Protocol):
    def lane(self) -> Lane:
        """A new lane; it connects when it is first used."""

    async def close(self) -> None: ...
