"""Many seeded runs: crashes, stalls, failing storage, a bad line, people who meddle."""

from __future__ import annotations

import os

import pytest

from postroom.domain.message import OnDoubt
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.weather import WEATHERS, run_each, weather_of

RUNS = int(os.environ.get("SIMULATION_SEEDS", "600"))  # mutants are caught by far fewer
CHUNK = 100
PINNED = (59, 123, 183, 1533, 2103, 3765)  # seeds that once found something


def run(seed: int) -> Mailing:
    on_doubt = OnDoubt.HOLD if seed % 2 else OnDoubt.RESEND
    mailing = Mailing(seed, on_doubt=on_doubt, **weather_of(seed))
    mailing.run()
    return mailing


@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
def test_the_promises_hold_whatever_happens_when(first: int) -> None:
    run_each(range(first, first + CHUNK), run)


@pytest.mark.parametrize("seed", PINNED)
def test_seeds_that_once_found_a_bug_pass(seed: int) -> None:
    with small_sizes():
        run(seed)


@pytest.mark.slow
def test_the_weather_is_really_bad() -> None:
    """The runs must meet what they claim to meet, or they prove nothing."""
    crashes = stalls = twice = held = skipped = cancelled = on_the_wire = 0
    with small_sizes():
        for seed in range(40 * len(WEATHERS)):
            mailing = run(seed)
            crashes += sum(mailing.world.crashes.values())
            stalls += mailing.world.stalls
            on_the_wire += mailing.on_the_wire
            cancelled += mailing.cancelled
            books = mailing.final.books
            held += books.held
            skipped += books.skipped
            twice += sum(count > 1 for count in mailing.post.arrived.values())
            if min(crashes, stalls, twice, held, skipped, cancelled, on_the_wire) > 5:
                return
    pytest.fail(f"{crashes=} {stalls=} {twice=} {held=} {skipped=} {cancelled=} {on_the_wire=}")
