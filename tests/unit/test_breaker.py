"""The breaker: how long a provider in trouble is left alone, and how it is tried again."""

from __future__ import annotations

from postroom.domain.breaker import Breaker


def test_a_breaker_is_closed_until_something_fails() -> None:
    breaker = Breaker()
    assert breaker.pause_s(100.0) == 0
    assert breaker.lanes(4) == 4


def test_pauses_double_up_to_a_minute() -> None:
    breaker, now_s, pauses = Breaker(), 1000.0, []
    for _ in range(9):
        pauses.append(breaker.failed(now_s))
        assert breaker.pause_s(now_s) == pauses[-1]
        now_s += pauses[-1]
        assert breaker.pause_s(now_s) == 0
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_lanes_that_find_out_together_count_as_one() -> None:
    breaker = Breaker()
    assert breaker.failed(1000.0) == 1.0
    assert breaker.failed(1000.4) == 0.6000000000000227
    assert breaker.faults == 1


def test_after_a_fault_one_lane_asks() -> None:
    breaker = Breaker()
    breaker.failed(1000.0)
    assert breaker.lanes(16) == 1


def test_once_it_worked_everything_is_as_before() -> None:
    breaker = Breaker()
    breaker.failed(1000.0)
    breaker.failed(1001.0)
    breaker.worked()
    assert breaker == Breaker()
    assert breaker.failed(2000.0) == 1.0
