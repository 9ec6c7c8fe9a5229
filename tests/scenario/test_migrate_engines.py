"""Moving house between engines: from a file to Azure and back, killed on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest_asyncio

from postroom.actions import manage_media
from postroom.migration.comparison import Comparison
from postroom.records import media
from postroom.records.names import QUEUES
from postroom.storage.port import Storage
from tests import picture_samples
from tests.acting import acting
from tests.clock import MovableClock
from tests.contract.engines import FILES, azure, sqlite
from tests.scenario.moving_house import Fate, everything, fill, move, move_with

PEOPLE = 2_000
LIVES_MAX = 50


@pytest_asyncio.fixture
async def houses(clock: MovableClock) -> AsyncIterator[tuple[Storage, Storage, Storage]]:
    """A file, an account, another file."""
    async with AsyncExitStack() as stack:
        folders = [Path(stack.enter_context(TemporaryDirectory(dir=FILES))) for _ in range(2)]
        first, last = [await stack.enter_async_context(sqlite(clock, folder)) for folder in folders]
        yield first, await stack.enter_async_context(azure(clock, folders[0])), last


async def move_in_lives(source: Storage, target: Storage, clock: MovableClock, calls: int) -> int:
    """Killed after so many calls, and a few more every time; how often."""
    for killed in range(LIVES_MAX):
        if await move_with(Fate(calls + 20 * killed), source, target, clock):
            return killed
    raise AssertionError("it does not get on")


async def test_from_a_file_to_azure_and_back_killed_on_the_way_all_is_equal(
    houses: tuple[Storage, Storage, Storage], clock: MovableClock
) -> None:
    first, second, last = houses
    await fill(first, clock, PEOPLE)
    before = await everything(first, clock)
    assert await move_in_lives(first, second, clock, calls=40) > 1
    assert await move_in_lives(second, last, clock, calls=30) > 1
    assert await everything(last, clock) == before
    assert len(before.rows["mailinglist"]) > 2 * PEOPLE
    assert all(before.items[queue] for queue in QUEUES)


async def test_the_same_data_has_the_same_checksums_on_every_engine(
    houses: tuple[Storage, Storage, Storage], clock: MovableClock
) -> None:
    first, second, last = houses
    await fill(first, clock, people=30)
    act = acting(first, clock.now())
    picture = await manage_media.add(act, picture_samples.png(), "square.png")
    there = await move(first, second, clock)
    back = await move(second, last, clock)
    assert sums(there) == sums(back)
    assert (await media.read(last.tables, picture.id)).value == picture
    assert await media.load_file(last.blobs, picture.path.rpartition("/")[2])
    assert all(part.source_sum == part.target_sum != "" for part in [*there, *back])


def sums(found: list[Comparison]) -> dict[str, str]:
    return {part.name: part.target_sum for part in found if part.name not in QUEUES}
