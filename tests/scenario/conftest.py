"""A town for every scenario: on every engine and on their model, the sink beside it."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from postroom.flow import fan_out, report
from postroom.records import batches
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom_bench.sink import Sink, SinkOptions
from tests.clock import MovableClock
from tests.contract.engines import ENGINES, FILES
from tests.scenario.moving_house import fill
from tests.scenario.town import Town


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink(SinkOptions(chunking=True, keep_contents=True)) as sink:
        yield sink


# The scenarios whose outcome depends on what an engine does: leases and claims that lapse, writes
# that conflict, pages, rows of another shape, the number of calls. One or two of each kind run on
# Azure. The contract suite holds it to the same promises as the engines that all scenarios run on,
# and tests/simulation/test_far_away.py has crashes and conflicts on the emulator.
ON_AZURE = {
    "test_dead_letters",
    "test_dead_sender",
    "test_deleted_list",
    "test_editing",
    "test_forgotten_items",
    "test_good_weather",
    "test_late_archive",
    "test_leaving",
    "test_lost_lease",
    "test_many_messages",
    "test_moving",
    "test_sign_up",
    "test_spoilt_rows",
    "test_thrift",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "town" in metafunc.fixturenames:
        is_on_azure = metafunc.module.__name__.rpartition(".")[2] in ON_AZURE
        engines = ["sqlite", "memory", *["azure"] * is_on_azure]
        metafunc.parametrize("town", engines, indirect=True, ids=engines)


@pytest_asyncio.fixture
async def town(request: pytest.FixtureRequest, sink: Sink) -> AsyncIterator[Town]:
    clock = MovableClock()
    with TemporaryDirectory(dir=FILES) as folder:
        async with ENGINES[request.param](clock, Path(folder)) as storage:
            town = Town(storage, clock, sink, Path(folder))
            try:
                yield town
            finally:
                await town.close()


@pytest.fixture
def log_lines() -> Iterator[list[EventDict]]:
    """What is logged while the test runs; other tests log nothing."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with capture_logs() as lines:
            yield lines
    finally:
        structlog.configure(**before)


# Two storages of somebody who moves (test_migrate*.py), with pages that come short.


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(short_s=math.inf)


@pytest_asyncio.fixture
async def source(clock: MovableClock) -> Storage:
    storage = MemoryStorage(clock, STORAGE_NAMES, page_rows=7, empty_first_page=True)
    await fill(storage, clock, people=12)
    return storage


@pytest.fixture
def target(clock: MovableClock) -> Storage:
    return MemoryStorage(clock, STORAGE_NAMES, page_rows=5)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two in groups of two, so that a handful of people makes many of them."""
    sizes = {"BATCH_DELIVERIES_MAX": 2, "GROUP_BATCHES": 2, "PAGE_BATCHES": 2}
    for module in (fan_out, batches, report):
        for name, size in sizes.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
