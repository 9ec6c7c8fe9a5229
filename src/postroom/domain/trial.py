"""A test email: who asked for it, and what happened to it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from postroom.domain.outcome import Deferred, Outcome, Rejected, Sent, Unknown, Untried, is_fault

WATCHED_FOR = timedelta(minutes=10)  # how long a page keeps polling
KEPT_FOR = timedelta(days=1)


class TrialState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    REFUSED = "refused"
    DEFERRED = "deferred"  # will be tried again
    UNKNOWN = "unknown"  # the connection broke after it was handed over; will be tried again
    GIVEN_UP = "given_up"
    UNWRITABLE = "unwritable"  # no email can be made from the message


OPEN = frozenset({TrialState.WAITING, TrialState.DEFERRED, TrialState.UNKNOWN})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The last test email of one message that one user asked for."""

    ref: str
    user: str  # the user's key
    nonce: str  # distinguishes one test from the next
    asked_at: datetime
    state: TrialState = TrialState.WAITING
    words: str = ""
    at: datetime | None = None  # since when it has been in that state

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def is_watched(self, now: datetime) -> bool:
        return self.is_open and now < self.asked_at + WATCHED_FOR


def state_after(outcome: Outcome, *, is_last: bool) -> TrialState | None:
    """The new state; None if it keeps waiting for the mail server or another sender."""
    if is_fault(outcome):
        return None
    match outcome:
        case Sent():
            return TrialState.SENT
        case Rejected() | Untried(too_large=True):
            return TrialState.REFUSED
        case Deferred() | Unknown() if is_last:
            return TrialState.GIVEN_UP
        case Deferred():
            return TrialState.DEFERRED
        case Unknown():
            return TrialState.UNKNOWN
    return None
