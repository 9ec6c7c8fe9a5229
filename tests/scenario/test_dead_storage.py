"""Dead storage, full or away at any write: nothing is lost, nothing goes twice, it goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.domain.message import Books
from postroom.records.names import STORAGE_NAMES
from postroom.scheduler import Scheduler
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import StorageError, StorageFull, Unavailable
from postroom_bench.sink import Sink
from tests.clock import MovableClock, soon
from tests.scenario.storm import Storm
from tests.scenario.town import CLAIM_S, Town, once_each

NAMES = ["ada", "bob", "perm-fail", "temp-fail-once", "zoe"]
TROUBLES: dict[str, tuple[StorageError, bool]] = {
    "full": (StorageFull("no room"), False),
    "away before": (Unavailable("no answer"), False),
    "away after": (Unavailable("no answer"), True),
}


@asynccontextmanager
async def town_in_memory(sink: Sink, folder: Path) -> AsyncIterator[Town]:
    clock = MovableClock()
    town = Town(MemoryStorage(clock, STORAGE_NAMES), clock, sink, folder)
    try:
        yield town
    finally:
        await town.close()
        sink.taken.clear()
        sink.attempts.clear()


async def writes_of_a_calm_run(sink: Sink, folder: Path) -> int:
    async with town_in_memory(sink, folder) as town:
        storm = Storm(town.storage)
        ref = await town.mailing(*NAMES)
        await town.open_sender(slice_size=2, storage=storm)
        await town.quiet()
        await town.pass_time(60)
        await town.quiet()
        assert await town.is_archived(ref)
        return len(storm.writes)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_any_write_of_a_sender_may_fail(
    trouble: str, times: int, sink: Sink, tmp_path: Path
) -> None:
    error, took_effect = TROUBLES[trouble]
    for at in range(await writes_of_a_calm_run(sink, tmp_path / "calm")):
        async with town_in_memory(sink, tmp_path / str(at)) as town:
            storm = Storm(town.storage)
            storm.strike(error, at=at, times=times, took_effect=took_effect)
            ref = await town.mailing(*NAMES)
            await town.open_sender(slice_size=2, storage=storm)
            await weathered(town)
            arrived = town.arrived()
            assert arrived == once_each(name for name in NAMES if name != "perm-fail"), at
            assert (await town.read(ref)).books == Books(sent=4, failed=1), at
            assert await town.is_archived(ref), at
            assert await town.items() == 0, at


async def weathered(town: Town) -> None:
    """Long enough for every claim that was left lying to lapse, again and again."""
    for _ in range(10):
        await quiet_in_a_storm(town)
        await town.pass_time(CLAIM_S)
    await town.quiet()


async def quiet_in_a_storm(town: Town) -> None:
    """worker.py rests and goes on when a step meets storage that fails; so do we."""
    for _ in range(10):
        try:
            await town.quiet()
            return
        except StorageError:
            continue
    raise AssertionError("the storm does not end")


async def test_a_sender_waits_for_storage_that_is_away_and_writes_down_what_it_sent(
    town: Town,
) -> None:
    ref = await town.mailing("slow", "zoe")
    storm = Storm(town.storage)
    role = await town.open_sender(storage=storm)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    storm.strike(Unavailable("no answer"), at=0, times=0)
    storm.is_total = True
    town.sink.release()
    await town.clock.paused(20)
    assert town.arrived() == once_each(["slow", "zoe"])
    storm.is_total = False
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=2)
    assert await town.is_archived(ref)


@pytest.mark.parametrize("call", ["get", "replace"])
async def test_a_scheduler_stops_in_good_order_also_while_storage_is_silent(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease runs out by itself; a planned stop is no failure."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    scheduler = Scheduler(storage, clock, "scheduler.1")
    await scheduler.step()
    assert scheduler.lease

    async def silent(*_: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(storage.tables, call, silent)
    await scheduler.stop()
    assert scheduler.lease is None
