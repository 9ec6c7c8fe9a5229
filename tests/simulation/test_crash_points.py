"""SQLite's loop: crash at I/O 1, 2, 3 … until a run meets none."""

from __future__ import annotations

from itertools import count, product

from postroom.domain.message import OnDoubt
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.world import Faults

JOURNAL_KEPT, MACHINE_GONE = 0.0, 1.0
POINTS_MIN = 200
# Whether emails are held or sent again matters after a sender died, and so does its journal.
# After any other process died, all of these would be the same run.
KINDS = tuple(product(OnDoubt, [JOURNAL_KEPT, MACHINE_GONE]))


def test_a_crash_at_any_single_point_loses_nobody() -> None:
    killed: dict[str, int] = {}
    with small_sizes():
        for point in count(1):
            victim = crash_at(point)
            if not victim:
                break
            killed[victim] = killed.get(victim, 0) + 1
    assert sum(killed.values()) > POINTS_MIN, "the simulation hardly did anything"
    assert killed.keys() == {"scheduler-0", "sender-1", "sender-2"}


def crash_at(point: int) -> str:
    """Run with one crash, in every way in which it may matter; the process that died."""
    victim = ""
    for on_doubt, machines_burn in KINDS:
        faults = Faults(crash_at=point)
        mailing = Mailing(1, on_doubt=on_doubt, faults=faults, machines_burn=machines_burn)
        mailing.run(calm_after=1_000_000)
        victim = next(iter(mailing.world.crashes), "")
        if not victim.startswith("sender"):
            break
    return victim


def test_a_run_without_faults_mails_everybody_once_and_leaves_no_doubt() -> None:
    with small_sizes():
        mailing = Mailing(7, on_doubt=OnDoubt.RESEND, faults=Faults())
        mailing.run()
    assert set(mailing.post.arrived.values()) == {1}
    assert len(mailing.post.arrived) == len(mailing.first)
