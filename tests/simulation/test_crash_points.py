"""SQLite's loop: crash at I/O 1, 2, 3 … until a run meets none."""

from __future__ import annotations

import pytest

from postroom.domain.message import OnDoubt
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.world import Faults


@pytest.mark.parametrize("machines_burn", [0.0, 1.0], ids=["journal kept", "machine gone"])
@pytest.mark.parametrize("on_doubt", OnDoubt)
def test_a_crash_at_any_single_point_loses_nobody(on_doubt: OnDoubt, machines_burn: float) -> None:
    survived = 0
    with small_sizes():
        for point in range(1, 10_000):
            faults = Faults(crash_at=point)
            mailing = Mailing(1, on_doubt=on_doubt, faults=faults, machines_burn=machines_burn)
            mailing.run(calm_after=1_000_000)
            if not mailing.world.crashes:
                break
            survived += 1
    assert survived > 200, "the simulation hardly did anything"


def test_a_run_without_faults_mails_everybody_once_and_leaves_no_doubt() -> None:
    with small_sizes():
        mailing = Mailing(7, on_doubt=OnDoubt.RESEND, faults=Faults())
        mailing.run()
    assert set(mailing.post.arrived.values()) == {1}
    assert len(mailing.post.arrived) == len(mailing.first)
