"""The database file is deleted while mails go out: what cannot be recorded is not sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.message import Books
from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import StorageGone
from postroom.storage.sqlite.storage import SqliteStorage
from postroom_bench.sink import Sink
from tests.clock import MovableClock, soon
from tests.scenario.town import CLAIM_S, Town, once_each

NAMES = ["slow", "tom", "uwe", "zoe"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "town.db"


@pytest_asyncio.fixture
async def town(sink: Sink, file: Path, tmp_path: Path) -> AsyncIterator[Town]:
    clock = MovableClock()
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES, check_every_s=0)
    town = Town(storage, clock, sink, tmp_path)
    try:
        yield town
    finally:
        await town.close()
        await storage.close()


def move(file: Path, to: Path) -> Path:
    return file.rename(to)


async def test_nothing_more_is_handed_over_and_nothing_twice_when_the_file_is_back(
    town: Town, file: Path
) -> None:
    """The slice on the wire was announced before; the next one cannot be."""
    ref = await town.mailing(*NAMES)
    role = await town.open_sender(lanes=1, slice_size=2)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    away = move(file, file.with_name("away.db"))
    town.sink.release()
    await town.clock.paused(3)
    arrived = town.arrived()
    assert arrived.total() == 2
    for step in (town.scheduler.step, role.step):  # its lane waits to record what it sent
        with pytest.raises(StorageGone):
            await step()
    assert town.arrived() == arrived
    with pytest.raises(StorageGone):
        await town.items()
    move(away, file)
    await town.quiet()
    await town.pass_time(CLAIM_S)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=4)
