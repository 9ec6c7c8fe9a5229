"""The outcome of handing an email to a transport. A server's reply is never an exception."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from postroom.domain.texts import clipped
from postroom.domain.trouble import Fault

WORDS_CHARS_MAX = 200  # of a server's reply: enough to read, small enough for a ledger row


class Scope(StrEnum):
    """What has to wait after a temporary refusal."""

    ADDRESS = "address"  # this mailbox: greylisted, full, busy
    DOMAIN = "domain"  # everybody at that domain: the server asks us to slow down
    PROVIDER = "provider"  # our own relay or account is in trouble


class Sent(msgspec.Struct, frozen=True, tag="sent", gc=False):
    """The server took responsibility (250 to the final dot, RFC 5321 6.1)."""

    words: str = ""


class Deferred(msgspec.Struct, frozen=True, tag="deferred"):
    """Not accepted this time; try again later."""

    words: str = ""
    scope: Scope = Scope.ADDRESS
    reached: bool = True  # the server answered for this very email
    fault: Fault | None = None  # why no session could be opened; otherwise see `words`


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Refused for good, for the mailbox (`address_fault`) or for us (5.7.x)."""

    words: str = ""
    address_fault: bool = True


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """Handed over, but the connection broke before the reply, so nobody knows."""

    words: str = ""


class Untried(msgspec.Struct, frozen=True, tag="untried"):
    """Never handed over: the sender was stopping, had lost its lease, or the email is too large."""

    words: str = ""
    too_large: bool = False  # for the server, because of what all emails of the message share


Outcome = Sent | Deferred | Rejected | Unknown | Untried


def is_fault(outcome: Outcome) -> bool:
    """Whether our own provider is in trouble, which affects all other emails as well."""
    return isinstance(outcome, Deferred) and outcome.scope is Scope.PROVIDER


def clip(words: str) -> str:
    """Shorten a server's reply to one printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    return clipped(line, WORDS_CHARS_MAX)
