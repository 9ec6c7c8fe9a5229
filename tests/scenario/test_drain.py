"""Drain: it goes on while something is due, a faulty provider or not, and then it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest
import pytest_asyncio

from postroom.actions import control_message
from postroom.domain.errors import WrongState
from postroom.domain.message import Books, Status
from postroom.domain.retry import RetryRules
from postroom.scheduler import Scheduler
from postroom.sender import Sender
from postroom.wakeup import WakeUpListener
from postroom.wiring import roles
from tests.clock import PATIENCE_S
from tests.scenario.town import Town, once_each, students

STEPS_MAX = 1000  # each passes a twentieth of a second, or more
HOURS_LATER = RetryRules(first_s=4 * 3600.0, longest_s=4 * 3600.0, chance=lambda: 0.5)


class PassingTime:
    """A bell that rings for a lane that gets free; any other wait is over, its time has passed."""

    def __init__(self, town: Town, role: Sender) -> None:
        self._town, self._role = town, role

    async def wait(self, seconds: float) -> bool:
        if not self._role.is_idle:
            return await self._role.wakeup.wait(PATIENCE_S)
        await self._town.pass_time(seconds)
        return False


class Drain:
    """`postroom drain`, a step at a time."""

    def __init__(self, town: Town, role: Sender) -> None:
        self.town, self.role = town, role
        self._wakeup = cast(WakeUpListener, PassingTime(town, role))

    async def step(self) -> bool:
        return await roles.drain_step(
            self.town.scheduler, self.role, self.town.feedback, self._wakeup
        )

    async def until_faults(self, faults: int) -> None:
        for _ in range(STEPS_MAX):
            if self.role.breaker.faults == faults:
                return
            assert await self.step(), "it ended before its work was done"
        raise AssertionError("the provider is not in trouble")

    async def to_its_end(self) -> None:
        for _ in range(STEPS_MAX):
            if not await self.step():
                return
        raise AssertionError("it does not end")


@pytest_asyncio.fixture
async def drain(town: Town) -> AsyncIterator[Drain]:
    yield Drain(town, await town.open_sender(rules=HOURS_LATER))


def begin_outage(town: Town) -> None:
    town.sink.options = replace(town.sink.options, greeting="421 4.3.2 The relay takes no mail now")


def end_outage(town: Town) -> None:
    town.sink.options = replace(town.sink.options, greeting="220 sink ESMTP")


@pytest.mark.parametrize("faults", range(1, roles.DRAIN_FAULTS_MAX))
async def test_it_ends_when_its_work_goes_away_while_the_provider_is_in_trouble(
    town: Town, drain: Drain, pairs: None, faults: int
) -> None:
    ref = await town.mailing(*students(5))
    begin_outage(town)
    await drain.until_faults(faults)
    await control_message.cancel(town.storage.tables, ref, town.clock.now())
    await drain.to_its_end()
    message = await town.read(ref)
    assert (message.status, message.books) == (Status.CANCELLED, Books(skipped=5))
    assert await town.is_archived(ref)


async def test_it_ends_although_somebodys_next_try_is_hours_away(town: Town, drain: Drain) -> None:
    """His item stays in the queue; it is not due."""
    patient = await town.mailing("temp-fail")
    await town.quiet()
    begin_outage(town)
    await town.sink.drop_connections()
    await town.join("zoe")
    hasty = await town.compose()
    await drain.until_faults(1)
    await control_message.cancel(town.storage.tables, hasty, town.clock.now())
    await drain.to_its_end()
    assert await town.is_archived(hasty)
    assert (await town.read(patient)).books == Books(queued=1)
    assert await town.items() == 1


@pytest.mark.parametrize("faults", range(1, roles.DRAIN_FAULTS_MAX))
async def test_it_does_not_exit_before_items_returned_by_a_fault_are_sent(
    town: Town, drain: Drain, pairs: None, faults: int
) -> None:
    names = students(9)
    ref = await town.mailing(*names)
    begin_outage(town)
    await drain.until_faults(faults)
    end_outage(town)
    await drain.to_its_end()
    assert town.arrived() == once_each(names)
    assert await town.is_archived(ref)


async def test_it_gives_up_with_a_sentence_when_the_provider_stays_away(
    town: Town, drain: Drain
) -> None:
    ref = await town.mailing("ada")
    begin_outage(town)
    with pytest.raises(WrongState, match="asks to try again later: 421"):
        await drain.to_its_end()
    assert (await town.read(ref)).books == Books(queued=1)


async def test_it_waits_while_another_scheduler_leads(town: Town, drain: Drain) -> None:
    """That one does the rest; if it has died, its lease ends."""
    await Scheduler(town.storage, town.clock, "scheduler.2").step()
    ref = await town.mailing("ada")
    await drain.to_its_end()
    assert town.arrived() == once_each(["ada"])
    assert await town.is_archived(ref)
