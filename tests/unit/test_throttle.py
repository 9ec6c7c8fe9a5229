"""A throttle: a burst at once, then the average, and never more memory than agreed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.throttle import NO_WAIT, Rate, Throttle

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def thousand_a_second() -> Throttle:
    return Throttle(Rate(1000, SECOND, 2000), callers_max=10)


def taken(throttle: Throttle, calls: int, now: datetime, caller: str = "a") -> int:
    return sum(throttle.wait(caller, now) == NO_WAIT for _ in range(calls))


def test_a_burst_is_taken_at_once_and_not_one_call_more() -> None:
    assert taken(thousand_a_second(), 3000, NOW) == 2000


def test_after_a_burst_calls_are_taken_at_the_average() -> None:
    throttle = thousand_a_second()
    taken(throttle, 2000, NOW)
    assert taken(throttle, 3000, NOW + SECOND) == 1000


def test_the_wait_told_is_exactly_long_enough() -> None:
    throttle = Throttle(Rate(20, timedelta(hours=1), 20), callers_max=10)
    taken(throttle, 20, NOW)
    wait = throttle.wait("a", NOW)
    assert wait == timedelta(minutes=3)
    assert throttle.wait("a", NOW + wait - timedelta(microseconds=1)) > NO_WAIT
    assert throttle.wait("a", NOW + wait) == NO_WAIT


def test_a_call_that_must_wait_is_not_counted() -> None:
    throttle = thousand_a_second()
    taken(throttle, 2000, NOW)
    assert {throttle.wait("a", NOW) for _ in range(100)} == {timedelta(milliseconds=1)}


def test_one_caller_does_not_slow_down_another() -> None:
    throttle = thousand_a_second()
    taken(throttle, 2000, NOW)
    assert taken(throttle, 2000, NOW, caller="b") == 2000


def test_a_clock_set_back_locks_nobody_out_for_longer_than_a_burst_takes() -> None:
    throttle = thousand_a_second()
    taken(throttle, 2000, NOW + timedelta(days=1))
    assert throttle.wait("a", NOW) == timedelta(milliseconds=1)


def test_beyond_the_limit_the_caller_counted_longest_ago_is_forgotten() -> None:
    throttle = Throttle(Rate(1, SECOND, 1), callers_max=2)
    for caller in ("a", "b", "c"):
        assert throttle.wait(caller, NOW) == NO_WAIT
    assert len(throttle) == 2
    assert throttle.wait("c", NOW) > NO_WAIT
    assert throttle.wait("a", NOW) == NO_WAIT


@pytest.mark.parametrize("burst", [1, 7])
@given(pauses_us=st.lists(st.integers(0, 400_000), max_size=60))
def test_in_no_stretch_of_time_more_is_taken_than_burst_and_average(
    burst: int, pauses_us: list[int]
) -> None:
    throttle = Throttle(Rate(10, SECOND, burst), callers_max=1)
    now = NOW
    times = []
    for pause_us in pauses_us:
        now += timedelta(microseconds=pause_us)
        if throttle.wait("a", now) == NO_WAIT:
            times.append(now)
    for first, start in enumerate(times):
        for last, end in enumerate(times[first:], first):
            assert last - first + 1 <= burst + (end - start) / timedelta(milliseconds=100)
