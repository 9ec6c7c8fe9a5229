"""The clock of the machine is set back or forward in the middle of sending."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any

import pytest

from postroom.actions import manage_suppressions
from postroom.domain.address import parse_address
from postroom.domain.message import Books, Status
from postroom.domain.suppression import SuppressionScope
from postroom.flow import subscribe, sweep
from postroom.records import lists, subscribers
from postroom.records.suppression_filter import LOOK_BACK_EVERY_S
from tests.acting import acting
from tests.scenario.town import CLAIM_S, LEASE_S, LIST, SITE, Town, address_of, once_each

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
async def test_sending_continues_after_the_clock_was_set(town: Town, step_s: float) -> None:
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


async def test_a_list_that_is_created_again_has_its_own_departures(town: Town) -> None:
    """The clock was ahead while people left the old one; who leaves the new one is not mailed."""
    await town.mailing("ada", "bob", "slow")
    town.sink.options = town.answering_at_once()
    await town.open_sender(slice_size=1, lanes=1)
    town.clock.set(7200)
    await town.leave("bob")
    await town.quiet()
    town.clock.set(-7200)
    await town.pass_time(600)
    await lists.start_deleting(town.storage.tables, LIST)
    assert await sweep.finish_deletions(town.storage.tables)
    await town.found_list()
    await town.join("carl", "dora")
    await town.compose()
    await town.fan_out()
    await town.pass_time(60)
    await town.leave("dora")
    await town.quiet()
    assert set(town.arrived()) == {"ada", "slow", "carl"}


async def test_a_second_click_finishes_what_a_crash_left_undone(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web's clock is behind, a message begins at this moment, and the web dies."""
    await town.found_list()
    await town.join("ada", "bob")
    await town.compose()
    looks = 0

    async def end_of_log(*asked: Any) -> datetime:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise RuntimeError("killed")
        found = await right(*asked)
        if looks == 1:
            await town.fan_out()
        return found

    right = subscribers._end_of_log
    monkeypatch.setattr(subscribers, "_end_of_log", end_of_log)
    guid, behind = (await town.subscriber("bob")).guid, town.clock.now() - timedelta(hours=3)
    for _click in range(2):
        with contextlib.suppress(RuntimeError):
            await subscribe.leave(acting(town.storage, behind), LIST, guid)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["ada"])


@each_step
async def test_who_is_suppressed_after_the_clock_was_set_is_not_mailed(
    town: Town, step_s: float
) -> None:
    ref = await town.mailing("ada", "bob", "slow", "zoe")
    role = await town.open_sender(slice_size=1, lanes=1)
    await role.step()
    await town.sink.is_waiting.wait()  # two are sent, one is on the wire
    town.clock.set(step_s)
    await manage_suppressions.add(
        acting(town.storage, town.clock.now()),
        SITE.secret,
        parse_address(address_of("zoe")),
        SuppressionScope.ALL,
    )
    town.clock.move(LOOK_BACK_EVERY_S)
    town.sink.options = town.answering_at_once()
    town.sink.release()
    await town.quiet()
    assert town.arrived() == once_each(["ada", "bob", "slow"])
    assert (await town.read(ref)).books == Books(sent=3, skipped=1)
