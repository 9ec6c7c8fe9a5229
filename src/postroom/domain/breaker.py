"""A breaker: after a fault of our own provider, try again soon, then seldom, with one lane only.

And the mail server's health as one sender sees it: what people and metrics are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.domain.outcome import (
    Deferred,
    Outcome,
    Rejected,
    Sent,
    Unknown,
    Untried,
    is_fault,
)
from postroom.domain.trouble import Fault, Trouble, TroubleKind, fault_of_words

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_OUTCOMES = {
    "sent": Sent,
    "deferred": Deferred,
    "rejected": Rejected,
    "unknown": Unknown,
    "untried": Untried,
}
_NO_WORDS = Fault(TroubleKind.BROKEN)


@dataclass
class Breaker:
    faults: int = 0
    closed_again_at: float = 0.0

    def failed(self, now_s: float) -> float:
        """The provider is in trouble; how long to leave it alone."""
        if now_s < self.closed_again_at:
            return self.closed_again_at - now_s  # another lane found out already
        self.faults += 1
        pause_s: float = min(FIRST_PAUSE_S * 2 ** (self.faults - 1), LONGEST_PAUSE_S)
        self.closed_again_at = now_s + pause_s
        return pause_s

    def worked(self) -> None:
        self.faults = 0
        self.closed_again_at = 0.0

    def pause_s(self, now_s: float) -> float:
        return max(0.0, self.closed_again_at - now_s)

    def lanes(self, lanes: int) -> int:
        """After a fault a single lane tries whether the provider is back."""
        return 1 if self.faults else lanes


@dataclass
class MailHealth:
    """What became of all mails of one sender, and what is wrong with the mail server now."""

    server: str = ""  # host:port
    trouble: Trouble | None = None
    faults: Counter[TroubleKind] = field(default_factory=Counter)  # since the start
    _outcomes: Counter[type] = field(default_factory=Counter)
    _last: Fault = _NO_WORDS

    @property
    def mails(self) -> Mapping[str, int]:
        """How many, by outcome, since the start."""
        return {name: self._outcomes[kind] for name, kind in _OUTCOMES.items()}

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Of one slice. Only where a mail was deferred are they looked at one by one."""
        kinds = list(map(type, outcomes))
        for kind in set(kinds):  # nearly always one: a Counter would cost several times as much
            self._outcomes[kind] += kinds.count(kind)
        if Deferred in kinds:
            for outcome in filter(is_fault, outcomes):
                self._last = self._fault_of(outcome)

    def failed(
        self, breaker: Breaker, now: datetime, now_s: float, returns_after_s: float
    ) -> Trouble:
        """Open the breaker. What was being sent is tried again after so long at the earliest.

        `now` is for people, `now_s` is monotonic.
        """
        known, had = breaker.faults, self.trouble
        pause_s = breaker.failed(now_s)
        if had and breaker.faults == known:  # another lane found out already
            return had
        self.faults[self._last.kind] += 1
        self.trouble = Trouble(
            self._last.kind,
            self.server,
            self._last.words,
            since=had.since if had else now,
            next_try_at=now + timedelta(seconds=max(pause_s, returns_after_s)),
            faults=breaker.faults,
        )
        return self.trouble

    def worked(self) -> Trouble | None:
        """A mail went through; what was wrong until then."""
        trouble, self.trouble = self.trouble, None
        return trouble

    def _fault_of(self, outcome: Outcome) -> Fault:
        fault = outcome.fault if isinstance(outcome, Deferred) else None
        return fault or fault_of_words(outcome.words.removeprefix(f"{self.server}: "))
