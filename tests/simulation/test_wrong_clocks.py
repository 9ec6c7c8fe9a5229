"""Clocks that are set back and forward, on every machine by itself: the promises hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from postroom.domain.message import OnDoubt
from postroom.records import leases, messages, subscribers
from postroom.storage.port import Tables
from tests.simulation.mailing import Mailing, small_sizes
from tests.simulation.weather import WRONG_CLOCKS, assert_caught, of_kind, run_each

Mutate = Callable[[pytest.MonkeyPatch], None]
RUNS = 400
CHUNK = 100
SEEDS_MAX = 1_500


def run(seed: int) -> Mailing:
    on_doubt = OnDoubt.HOLD if seed % 2 else OnDoubt.RESEND
    mailing = Mailing(seed, on_doubt=on_doubt, **of_kind(WRONG_CLOCKS))
    mailing.run()
    return mailing


@pytest.mark.parametrize("first", range(0, RUNS, CHUNK))
def test_the_promises_hold_whatever_the_clocks_say(first: int) -> None:
    run_each(range(first, first + CHUNK), run)


def test_the_clocks_are_really_set() -> None:
    with small_sizes():
        assert min(run(seed).world.steps for seed in range(20)) > 2


def departures_stamped_by_any_clock(patch: pytest.MonkeyPatch) -> None:
    """As they come: a departure may lie before what senders have read."""

    async def at_the_end(tables: Tables, list_name: str, now: datetime) -> datetime:
        return now

    patch.setattr(subscribers, "_end_of_log", at_the_end)


def no_mark_where_a_message_begins(patch: pytest.MonkeyPatch) -> None:
    async def mark(tables: Tables, list_name: str, now: datetime) -> None:
        return

    patch.setattr(subscribers, "mark_message_start", mark)


def leases_by_the_wall_clock_alone(patch: pytest.MonkeyPatch) -> None:
    def is_kept(lease: leases.Lease, now: datetime, renewals: object) -> bool:
        return now < lease.expires_at

    patch.setattr(leases, "_is_kept", is_kept)


def due_by_the_wall_clock_alone(patch: pytest.MonkeyPatch) -> None:
    """A message that has begun waits again while the clock is behind."""

    async def due_entries(tables: Tables, now: datetime) -> Any:
        async for entry in right(tables, now):
            yield messages.DueEntry(entry.ref, entry.due_at, False, entry.etag)

    right = messages.due_entries
    patch.setattr(messages, "due_entries", due_entries)


# Each with a seed that catches it.
MUTANTS: dict[Mutate, int] = {
    departures_stamped_by_any_clock: 333,
    no_mark_where_a_message_begins: 352,
    leases_by_the_wall_clock_alone: 2,
    due_by_the_wall_clock_alone: 10,
}


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_trust_in_the_wall_clock_is_caught(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert_caught(range(SEEDS_MAX), run, known=MUTANTS[mutate])
