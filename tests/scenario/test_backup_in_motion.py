"""A backup of an engine without snapshots: everything changes between two pages that are read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from postroom.actions import control_message
from postroom.domain.message import Status
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Troubles
from postroom_bench.sink import Sink
from tests.clock import MovableClock
from tests.scenario.restoring import back_up, moved_town
from tests.scenario.town import Town, students

NAMES = students(24)
SEEDS = range(12)


class MovingTables:
    """The tables of a town in which roles take a step before some of the scans."""

    def __init__(self, town: Town, chance: random.Random) -> None:
        self._town = town
        self._chance = chance

    async def scan(self, *values: Any, **named: Any) -> Any:
        if self._chance.random() < 0.3:
            await self._town.scheduler.step()
        if self._chance.random() < 0.5:
            await self._town.sender_alone()
        return await self._town.storage.tables.scan(*values, **named)


class MovingStorage:
    def __init__(self, town: Town, chance: random.Random) -> None:
        self.tables: Any = MovingTables(town, chance)
        self.queues = town.storage.queues
        self.blobs = town.storage.blobs
        self.troubles = Troubles()

    async def close(self) -> None: ...


@pytest.mark.parametrize("seed", SEEDS)
async def test_whoever_a_copy_knows_as_sent_is_not_mailed_again_and_nobody_is_lost(
    sink: Sink, tmp_path: Path, pairs: None, seed: int
) -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES, page_rows=3)
    town = Town(storage, clock, sink, tmp_path)
    town.scheduler.items_ahead = 2  # so that it is still fanning out meanwhile
    await town.found_list()
    await town.join(*NAMES)
    ref = await town.compose()
    await town.scheduler.step()
    await town.open_sender(lanes=1)
    chance = random.Random(seed)
    written = await back_up(MovingStorage(town, chance), clock, tmp_path)
    await town.quiet()
    await town.close()
    assert set(town.arrived().values()) == {1}
    new, restored = await moved_town(town, written.path)
    try:
        unknown = restored.held[0].restore_hold.people if restored.held else 0  # type: ignore
        if restored.held:
            await control_message.resume(new.storage.tables, ref)
        await new.open_sender()
        await new.quiet()
        arrived = town.arrived()
        assert set(arrived) == set(NAMES)
        assert sum(arrived.values()) - len(NAMES) <= unknown
        message = await new.read(ref)  # its books balance
        assert message.status is Status.COMPLETED
        assert message.books.sent == len(NAMES)
    finally:
        await new.close()
