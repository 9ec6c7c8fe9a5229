"""Counting what happened in the worst second, wherever it begins."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


def most_in_a_second(times: Iterable[float]) -> int:
    ordered = sorted(times)
    return max((bisect_left(ordered, t + 1.0) - at for at, t in enumerate(ordered)), default=0)
