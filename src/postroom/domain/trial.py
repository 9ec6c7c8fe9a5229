"""A test mail: who asked for it, and what became of it, to be shown where it was asked for."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.outcome import Deferred, Outcome, Rejected, Sent, Unknown, is_fault

WATCHED_FOR = timedelta(minutes=10)  # how long a page asks again and again
KEPT_FOR = timedelta(days=1)


class TrialState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    REFUSED = "refused"
    DEFERRED = "deferred"  # tried again later
    UNKNOWN = "unknown"  # the connection broke after it was handed over; tried again later
    GIVEN_UP = "given_up"
    UNWRITABLE = "unwritable"  # the message cannot be made into a mail


OPEN = frozenset({TrialState.WAITING, TrialState.DEFERRED, TrialState.UNKNOWN})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The last test mail of one message that one user asked for."""

    ref: str
    user: str  # the user's key
    nonce: str  # tells one test from the next
    asked_at: datetime
    state: TrialState = TrialState.WAITING
    words: str = ""
    at: datetime | None = None  # when it got into that state

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def is_watched(self, now: datetime) -> bool:
        return self.is_open and now < self.asked_at + WATCHED_FOR


def state_after(outcome: Outcome, *, is_last: bool) -> TrialState | None:
    """None if it goes on waiting: for the mail server, or for another sender."""
    if is_fault(outcome):
        return None
    match outcome:
        case Sent():
            return TrialState.SENT
        case Rejected():
            return TrialState.REFUSED
        case Deferred() | Unknown() if is_last:
            return TrialState.GIVEN_UP
        case Deferred():
            return TrialState.DEFERRED
        case Unknown():
            return TrialState.UNKNOWN
    return None
