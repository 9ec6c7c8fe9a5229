"""Back-off: doubling, bounded, spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.retry import RetryRules, retry_after_s


@pytest.mark.parametrize(
    ("attempt", "pause_s"), [(1, 60), (2, 120), (6, 1920), (7, 3600), (8, 3600), (10_000, 3600)]
)
def test_pauses_double_up_to_an_hour(attempt: int, pause_s: float) -> None:
    assert retry_after_s(attempt, RetryRules(chance=lambda: 0.5)) == pause_s


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 45.0), (0.5, 60.0), (1.0, 75.0)])
def test_chance_moves_a_pause_by_a_quarter_at_most(chance: float, pause_s: float) -> None:
    assert retry_after_s(1, RetryRules(chance=lambda: chance)) == pause_s


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_never_shorter_than_the_first_nor_longer_than_the_longest(
    attempt: int, chance: float
) -> None:
    assert 45 <= retry_after_s(attempt, RetryRules(chance=lambda: chance)) <= 4500
