"""A town for every scenario: on the embedded engine and on its model, the sink beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from postroom.bench.sink import Sink, SinkOptions
from postroom.flow import fan_out, report
from postroom.records import batches
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom.storage.sqlite import SqliteStorage
from tests.contract.engines import FILES
from tests.scenario.clock import TownClock
from tests.scenario.town import Town


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink(SinkOptions(chunking=True, keep_contents=True)) as sink:
        yield sink


@pytest_asyncio.fixture(params=["sqlite", "memory"])
async def town(request: pytest.FixtureRequest, sink: Sink) -> AsyncIterator[Town]:
    clock = TownClock()
    with TemporaryDirectory(dir=FILES) as folder:
        storage: Storage = MemoryStorage(clock)
        if request.param == "sqlite":
            storage = await SqliteStorage.open(Path(folder) / "town.db", clock)
        town = Town(storage, clock, sink, Path(folder))
        try:
            yield town
        finally:
            await town.close()
            await storage.close()


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two in groups of two, so that a handful of people makes many of them."""
    sizes = {"BATCH_DELIVERIES_MAX": 2, "GROUP_BATCHES": 2, "PAGE_BATCHES": 2, "PAGE_PEOPLE": 4}
    for module in (fan_out, batches, report):
        for name, size in sizes.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
