"""When a temporarily refused delivery is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class RetryRules:
    """The parts of a sender share one, so that a change of settings reaches all of them."""

    first_s: float = 60.0
    longest_s: float = 3600.0
    window_s: float = 24 * 3600.0  # give up if the next attempt would be later than this
    doubt_s: float = 0.0  # how long a delivery in doubt waits for the provider's own report
    jitter: float = 0.25  # so that deliveries refused together are not retried together
    chance: Callable[[], float] = random.random


def retry_after_s(attempt: int, rules: RetryRules) -> float:
    """Doubles with every attempt up to a limit, spread by the jitter."""
    return _delay_s(attempt, rules) * (1 + rules.jitter * (2 * rules.chance() - 1))


def retry_after_s_max(attempt: int, rules: RetryRules) -> float:
    """The longest possible delay; a wait that seems longer was written by another clock."""
    return _delay_s(attempt, rules) * (1 + rules.jitter)


def _delay_s(attempt: int, rules: RetryRules) -> float:
    return float(min(rules.first_s * 2 ** min(attempt - 1, 30), rules.longest_s))
