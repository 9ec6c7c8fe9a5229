"""A breaker: after a fault of our own provider, try again soon, then seldom, with one lane only."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


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
