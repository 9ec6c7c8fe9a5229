"""A circuit breaker for the mail server, and the server's health as one sender sees it.

After a fault of our own provider, a single lane tries again, soon at first and then less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import get_args

from postroom.domain.outcome import Deferred, Outcome, is_fault
from postroom.domain.trouble import Fault, Trouble, TroubleKind, fault_of_words

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# By name, as metrics have them.
_OUTCOMES = {kind.__struct_config__.tag: kind for kind in get_args(Outcome)}


@dataclass
class Breaker:
    faults: int = 0
    closed_again_at: float = 0.0

    def failed(self, now_s: float) -> float:
        """Record a fault of the provider; returns how long to leave it alone."""
        if now_s < self.closed_again_at:
            return self.closed_again_at - now_s  # another lane noticed it first
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
        """How many lanes may send: after a fault only one, which tests the provider."""
        return 1 if self.faults else lanes


@dataclass
class MailHealth:
    """The outcomes of all emails of one sender, and what is wrong with the mail server now."""

    server: str = ""  # host:port
    trouble: Trouble | None = None
    faults: Counter[TroubleKind] = field(default_factory=Counter)  # since the start
    _outcomes: Counter[type] = field(default_factory=Counter)
    _last: Fault = field(default_factory=lambda: Fault(TroubleKind.BROKEN))

    @property
    def mails(self) -> Mapping[str, int]:
        """Count the emails since the start, by outcome."""
        return {name: self._outcomes[kind] for name, kind in _OUTCOMES.items()}

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Count the outcomes of a slice; they are examined one by one only if one was deferred."""
        kinds = list(map(type, outcomes))
        for kind in set(kinds):  # nearly always one: a Counter would cost several times as much
            self._outcomes[kind] += kinds.count(kind)
        if Deferred in kinds:
            for outcome in filter(is_fault, outcomes):
                fault = outcome.fault if isinstance(outcome, Deferred) else None
                words = outcome.words.removeprefix(f"{self.server}: ")
                self._last = fault or fault_of_words(words)

    def failed(
        self, breaker: Breaker, now: datetime, now_s: float, returns_after_s: float
    ) -> Trouble:
        """Open the breaker and describe the trouble.

        `now` is for people, `now_s` is monotonic. What was being sent is not tried again before
        `returns_after_s`.
        """
        faults_before = breaker.faults
        pause_s = breaker.failed(now_s)
        if self.trouble and breaker.faults == faults_before:  # another lane noticed it first
            return self.trouble
        self.faults[self._last.kind] += 1
        self.trouble = Trouble(
            self._last.kind,
            self.server,
            self._last.words,
            since=self.trouble.since if self.trouble else now,
            next_try_at=now + timedelta(seconds=max(pause_s, returns_after_s)),
            faults=breaker.faults,
        )
        return self.trouble

    def worked(self) -> Trouble | None:
        """Record that an email went through; returns the trouble that is over, if any."""
        trouble, self.trouble = self.trouble, None
        return trouble
