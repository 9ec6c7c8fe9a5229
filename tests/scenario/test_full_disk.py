"""A full disk: a real quota of a real file, and room again after a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.message import Books
from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import Storage, StorageFull
from postroom.storage.sqlite.storage import SqliteStorage
from postroom_bench.sink import Sink
from tests.clock import MovableClock
from tests.scenario.town import CLAIM_S, Town, once_each, students

PAGES_MAX = 150  # of 4 KiB
NAMES = students(300)


@pytest_asyncio.fixture
async def small_town(sink: Sink, tmp_path: Path) -> AsyncIterator[Town]:
    clock = MovableClock()
    storage = await SqliteStorage.open(
        tmp_path / "town.db", clock, STORAGE_NAMES, pages_max=PAGES_MAX
    )
    town = Town(storage, clock, sink, tmp_path)
    try:
        yield town
    finally:
        await town.close()
        await storage.close()


async def fill_up(storage: Storage) -> list[str]:
    """Blobs until not a page is left; their names."""
    names: list[str] = []
    for size in (64_000, 3_000, 100):
        for _ in range(PAGES_MAX):
            name = f"filler-{len(names)}"
            try:
                await storage.blobs.put(name, b"x" * size)
            except StorageFull:
                break
            names.append(name)
    return names


async def make_room(storage: Storage, fillers: list[str]) -> None:
    for name in fillers:
        await storage.blobs.delete(name)


async def test_a_sender_on_a_full_disk_loses_nothing_and_sends_nothing_twice(
    small_town: Town,
) -> None:
    town = small_town
    ref = await town.mailing(*NAMES)
    fillers = await fill_up(town.storage)
    role = await town.open_sender(lanes=1)
    await role.step()
    await town.clock.paused(5)
    sent = len(town.sink.mails)
    assert sent <= 99  # one batch: nothing else goes out until it is written down
    await town.clock.paused(5)
    assert len(town.sink.mails) == sent
    await make_room(town.storage, fillers)
    await town.quiet()
    await town.pass_time(CLAIM_S)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=300)


async def test_a_scheduler_on_a_full_disk_continues_when_there_is_room(small_town: Town) -> None:
    town = small_town
    await town.found_list()
    await town.join(*NAMES)
    ref = await town.compose()
    fillers = await fill_up(town.storage)
    with pytest.raises(StorageFull):
        await town.fan_out()
    await make_room(town.storage, fillers)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=300)
