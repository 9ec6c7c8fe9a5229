"""What became of one hand-over to a transport. Nothing a server says is an exception."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from postroom.domain.trouble import Fault

WORDS_CHARS_MAX = 200  # of a server's reply: enough to read, small enough for a ledger row


class Scope(StrEnum):
    """Who is to wait after a temporary refusal."""

    ADDRESS = "address"  # this mailbox: greylisted, full, busy
    DOMAIN = "domain"  # everyone at that domain: the server asks us to slow down
    PROVIDER = "provider"  # our own relay or account is in trouble


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """The server took responsibility (250 to the final dot, RFC 5321 6.1)."""

    words: str = ""


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """Not taken this time; try again later."""

    words: str = ""
    scope: Scope = Scope.ADDRESS
    reached: bool = True  # the server answered for this very mail; else it never got that far
    fault: Fault | None = None  # why no session could be opened; else the words tell


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Refused for good. `address_fault` tells a dead mailbox from a refusal of us (5.7.x)."""

    words: str = ""
    address_fault: bool = True


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """Handed over, but the line broke before the answer: nobody can tell."""

    words: str = ""


class Untried(msgspec.Struct, frozen=True, tag="untried"):
    """Never handed over: the sender was stopping, or no longer had the right to send."""

    words: str = ""


Outcome = Sent | Deferred | Rejected | Unknown | Untried


def is_fault(outcome: Outcome) -> bool:
    """Our own provider is in trouble: nobody else's mails would fare better now."""
    return isinstance(outcome, Deferred) and outcome.scope is Scope.PROVIDER


def clip(words: str) -> str:
    """A server's words in one printable line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return line if len(line) <= WORDS_CHARS_MAX else line[: WORDS_CHARS_MAX - 1] + "…"
