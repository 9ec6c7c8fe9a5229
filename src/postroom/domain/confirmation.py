"""Confirmation emails that were not accepted: the attempts so far, and what happens next."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

import msgspec

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.domain.retry import RetryRules, retry_after_s

_STATUS = re.compile(r"\d{3}(?:[ -]\d\.\d{1,3}\.\d{1,3})?(?= |$)")  # RFC 5321, RFC 3463


class ConfirmationState(StrEnum):
    """The state of the attempts to send somebody a confirmation email."""

    WAITING = "waiting"  # not accepted so far; it will be tried again
    REFUSED = "refused"  # refused for good
    GIVEN_UP = "given_up"  # the retry window is over, or it cannot be sent at all


class ConfirmationAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the subscriber until the email is accepted, or they confirm or unsubscribe."""

    state: ConfirmationState
    count: int
    first_at: datetime
    last_at: datetime
    words: str  # the server's, or ours
    retry_at: datetime | None = None  # while it waits

    @property
    def has_ended(self) -> bool:
        """Whether there are no more attempts, unless the person signs up again."""
        return self.state is not ConfirmationState.WAITING

    def wait_s(self, now: datetime, rules: RetryRules) -> float:
        """Seconds until the next attempt; 0 if it is due, or there will be none.

        A wait longer than the rules allow was written by a wrong clock, and counts as due.
        """
        wait_s = (self.retry_at - now).total_seconds() if self.retry_at else 0.0
        return wait_s if 0 < wait_s <= rules.longest_s * (1 + rules.jitter) else 0.0


def is_untried(outcome: Outcome) -> bool:
    """Whether the server never answered for this email, so that no attempt is counted."""
    match outcome:
        case Untried() | Deferred(scope=Scope.PROVIDER, reached=False):
            return True
    return False


def after_attempt(
    outcome: Outcome, before: ConfirmationAttempts | None, *, rules: RetryRules, now: datetime
) -> ConfirmationAttempts | None:
    """The attempts including this one; None once the email is accepted."""
    if is_untried(outcome):
        return before
    if before and before.has_ended:  # of an earlier sign-up
        before = None
    match outcome:
        case Sent():
            return None
        case Rejected(words=words):
            return _next(ConfirmationState.REFUSED, words, before, now)
        case Deferred(words=words) | Unknown(words=words):
            tried = _next(ConfirmationState.WAITING, words, before, now)
            retry_at = now + timedelta(seconds=retry_after_s(tried.count, rules))
            if retry_at > tried.first_at + timedelta(seconds=rules.window_s):
                return msgspec.structs.replace(tried, state=ConfirmationState.GIVEN_UP)
            return msgspec.structs.replace(tried, retry_at=retry_at)
        case Untried():
            return before
        case _:
            assert_never(outcome)


def given_up(
    words: str, before: ConfirmationAttempts | None, now: datetime
) -> ConfirmationAttempts:
    """The attempts, ended because the email cannot be sent at all."""
    return _next(ConfirmationState.GIVEN_UP, words, before, now)


def _next(
    state: ConfirmationState, words: str, before: ConfirmationAttempts | None, now: datetime
) -> ConfirmationAttempts:
    return ConfirmationAttempts(
        state=state,
        count=before.count + 1 if before else 1,
        first_at=before.first_at if before else now,
        last_at=now,
        words=words,
    )


def status_of(words: str) -> str:
    """The code at the start of a reply; the rest may name an address, so it is not logged."""
    found = _STATUS.match(words)
    return found[0] if found else ""
