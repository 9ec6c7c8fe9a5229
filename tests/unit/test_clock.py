"""A wall clock that somebody sets is noticed; one that runs on is not."""

from __future__ import annotations

import pytest

from postroom.clock import StepWatch, WallClock
from tests.clock import MovableClock


@pytest.mark.parametrize("seconds", [-3 * 3600, -5, 5, 7200])
def test_a_clock_that_is_set_is_noticed_once(seconds: float) -> None:
    clock = MovableClock()
    watch = StepWatch(clock)
    clock.move(60)
    assert watch.stepped_s() == 0
    clock.set(seconds)
    clock.move(1)
    assert watch.stepped_s() == pytest.approx(seconds)
    assert watch.stepped_s() == 0


def test_a_clock_that_is_slewed_is_not_set() -> None:
    clock = MovableClock()
    watch = StepWatch(clock)
    for _ in range(1000):
        clock.set(-0.1)
        assert watch.stepped_s() == 0


def test_the_monotonic_clock_of_this_machine_runs_on() -> None:
    clock = WallClock()
    readings = [clock.monotonic() for _ in range(3)]
    assert readings == sorted(readings)
