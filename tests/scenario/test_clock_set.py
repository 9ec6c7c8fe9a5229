"""The clock of the machine is set back or forward in the middle of sending."""

from __future__ import annotations

import pytest

from postroom.domain.message import Books, Status
from tests.scenario.town import CLAIM_S, LEASE_S, Town, once_each

NAMES = [f"student{number}" for number in range(12)]
STEPS_S = [-3 * 3600.0, -1800.0, -660.0, 7200.0]
each_step = pytest.mark.parametrize("step_s", STEPS_S)


@each_step
async def test_who_leaves_after_the_clock_was_set_is_not_mailed(town: Town, step_s: float) -> None:
    ref = await town.mailing("ada", "bob", "slow", "zoe")
    role = await town.open_sender(slice_size=1, lanes=1)
    await role.step()
    await town.sink.is_waiting.wait()  # two are sent, one is on the wire
    town.clock.set(step_s)
    await town.leave("zoe")
    town.sink.options = town.answering_at_once()
    town.sink.release()
    await town.quiet()
    assert town.arrived() == once_each(["ada", "bob", "slow"])
    assert (await town.read(ref)).books == Books(sent=3, skipped=1)


@each_step
async def test_sending_goes_on_after_the_clock_was_set(town: Town, step_s: float) -> None:
    await town.found_list()
    await town.join(*NAMES)
    ref = await town.compose()
    await town.scheduler.step()  # it has begun
    town.clock.set(step_s)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).status is Status.COMPLETED


@each_step
async def test_a_message_to_go_out_at_once_does_not_wait_for_the_clock(
    town: Town, step_s: float
) -> None:
    await town.found_list()
    await town.join(*NAMES)
    await town.compose()
    town.clock.set(step_s)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES)


@each_step
async def test_a_sender_that_died_elsewhere_is_settled_after_its_lease(
    town: Town, step_s: float
) -> None:
    """Whatever the time in its lease says by a clock that was set since."""
    ref = await town.mailing("slow", *NAMES)
    dead = await town.clerk(machine="elsewhere", slice_size=1)
    await dead.take_until(town.sink.is_waiting.wait())
    await dead.die()
    town.sink.options = town.answering_at_once()
    town.clock.set(step_s)
    await town.open_sender()
    await town.live_through(CLAIM_S + 2 * LEASE_S, LEASE_S / 3)
    assert set(town.arrived()) == {"slow", *NAMES}
    assert (await town.read(ref)).books.open == 0


@each_step
async def test_who_was_put_off_for_a_minute_waits_no_longer(town: Town, step_s: float) -> None:
    ref = await town.mailing("temp-fail")
    await town.open_sender()
    await town.quiet()
    town.clock.set(step_s)
    await town.live_through(90, 10)
    [ledger] = await town.ledgers(ref)
    assert ledger.deferred[0].attempts == 2
