"""When a temporarily refused delivery is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryRules:
    first_s: float = 60.0
    longest_s: float = 3600.0
    window_s: float = 24 * 3600.0  # give up when the next try would come later than this
    jitter: float = 0.25  # so that a thousand refused together do not come back together
    chance: Callable[[], float] = random.random


def retry_after_s(attempt: int, rules: RetryRules) -> float:
    """Doubles with every attempt up to a bound, spread by the jitter."""
    return _calm_s(attempt, rules) * (1 + rules.jitter * (2 * rules.chance() - 1))


def retry_after_s_max(attempt: int, rules: RetryRules) -> float:
    """The longest that it can be. A wait that seems longer was written by another clock."""
    return _calm_s(attempt, rules) * (1 + rules.jitter)


def _calm_s(attempt: int, rules: RetryRules) -> float:
    calm: float = min(rules.first_s * 2 ** min(attempt - 1, 30), rules.longest_s)
    return calm
