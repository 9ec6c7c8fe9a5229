"""Two survivors settle the batch of a dead sender at once: one has its journal, one must guess.

The rows of who is first stand, and row and ledger agree about everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from postroom.domain.delivery import FINAL, DeliveryEnd, State
from postroom.domain.retry import RetryRules
from postroom.flow.send import ItemResult
from postroom.records import archive
from postroom.records.names import MAIL_QUEUE
from tests.clock import PATIENCE_S, soon
from tests.scenario.storm import Crossed
from tests.scenario.town import CLAIM_S, RULES, Clerk, Town, name_of

NAMES = ["ada", "bob", "slow", "tom", "zoe"]  # in the order in which they are mailed
HOPELESS = RetryRules(window_s=0.0)  # whoever is in doubt has failed
BEFORE_ROWS, BEFORE_LEDGER, SETTLED = 1, 2, 3  # numbers of a survivor's writes, after its claim
WRITES_OF_A_REPORT = 2  # about those whom the survivor that must guess takes for failed


class Survivor:
    """A sender that takes the batch, stands still before one of its writes, and then goes on."""

    clerk: Clerk

    def __init__(self) -> None:
        self._stands = asyncio.Event()
        self._may_go_on = asyncio.Event()
        self._work: asyncio.Task[ItemResult | None] | None = None

    async def take(self) -> None:
        self._work = asyncio.create_task(self.clerk.take())
        self._work.add_done_callback(lambda _: self._stands.set())
        await soon(self._stands.wait())

    async def halt(self) -> None:
        self._stands.set()
        await self._may_go_on.wait()

    async def go_on(self) -> ItemResult | None:
        assert self._work
        self._may_go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            return await self._work


async def survivor(town: Town, at: int, *, knows: bool) -> Survivor:
    """One on the dead sender's machine reads its journal; one elsewhere takes all for failed."""
    found = Survivor()
    owner, machine = ("clerk.knows", "here") if knows else ("clerk.guesses", "elsewhere")
    crossed = Crossed(town.storage, at if knows else at + WRITES_OF_A_REPORT, found.halt)
    rules = RULES if knows else HOPELESS
    found.clerk = await replace(town, storage=crossed).clerk(owner, machine=machine, rules=rules)
    return found


async def left_by_a_dead_sender(town: Town) -> str:
    """Ada and Bob are answered, slow is on the wire; there are items for two to take."""
    ref = await town.mailing(*NAMES)
    clerk = await town.clerk()
    await clerk.take_until(town.sink.is_waiting.wait())
    await clerk.die()
    town.clock.move(CLAIM_S)
    [item] = await town.storage.queues.peek(MAIL_QUEUE)
    await town.storage.queues.put(MAIL_QUEUE, item.body)
    town.sink.options = town.answering_at_once()
    return ref


async def ends(town: Town, ref: str) -> dict[str, DeliveryEnd]:
    rows = archive.load(town.storage.tables, ref, 0)
    return {name_of(row.delivery.address): row.ended async for row in rows}


async def check_row_and_ledger_agree(town: Town, ref: str) -> None:
    states: Mapping[str, State] = await town.states(ref)
    final = {name: state for name, state in states.items() if state in FINAL}
    assert {name: ended.state for name, ended in (await ends(town, ref)).items()} == final


@pytest.mark.parametrize("knower_is_first", [True, False])
@pytest.mark.parametrize("one_stops", [BEFORE_ROWS, BEFORE_LEDGER, SETTLED])
@pytest.mark.parametrize("other_stops", [BEFORE_ROWS, BEFORE_LEDGER, SETTLED])
async def test_the_rows_written_first_stand_and_row_and_ledger_agree(
    town: Town, one_stops: int, other_stops: int, knower_is_first: bool
) -> None:
    ref = await left_by_a_dead_sender(town)
    one = await survivor(town, one_stops, knows=knower_is_first)
    other = await survivor(town, other_stops, knows=not knower_is_first)
    first: dict[str, DeliveryEnd] = {}
    for go in (one.take, other.take, one.go_on, other.go_on):
        await go()
        now = await ends(town, ref)
        first = first or now
        assert {name: now.get(name) for name in first} == first
    assert first
    await check_row_and_ledger_agree(town, ref)
    await town.open_sender()
    await town.live_through(CLAIM_S + 60, every_s=60)
    await check_row_and_ledger_agree(town, ref)
    assert await town.is_archived(ref)
    assert set(town.arrived()) >= {"ada", "bob", "slow"}


@pytest.mark.parametrize("knower_is_first", [True, False])
async def test_who_comes_second_with_his_rows_has_lost_the_batch(
    town: Town, knower_is_first: bool
) -> None:
    ref = await left_by_a_dead_sender(town)
    first = await survivor(town, BEFORE_LEDGER, knows=knower_is_first)
    second = await survivor(town, BEFORE_ROWS, knows=not knower_is_first)
    await second.take()  # it has looked, and found no row
    await first.take()
    assert await second.go_on() is ItemResult.LOST
    assert await first.go_on() is not ItemResult.LOST
    states = await town.states(ref)
    assert states["ada"] is states["bob"] is (State.SENT if knower_is_first else State.FAILED)
