"""A running process follows changed settings, has a row, and tells others of a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from postroom import settings
from postroom.act import Act
from postroom.actions import change_settings
from postroom.clock import WallClock
from postroom.domain.instance import Vitals
from postroom.intervals import LOCAL, REMOTE
from postroom.records import instances
from postroom.records.names import STORAGE_NAMES
from postroom.settings import Settings
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage, StorageFull, Troubles
from postroom.storage.sqlite.storage import SqliteStorage
from postroom.wakeup import STORAGE_FULL, WakeUps
from postroom.wiring import Parts
from postroom.wiring.following import InstanceReport, LiveSettings, following, with_changes
from postroom.worker import StopRequest
from tests.clock import MovableClock

STARTED = settings.load({}, Path("/nonexistent.toml"))
HOUR_S = 3600


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    clock = WallClock()
    storage = CountingStorage(MemoryStorage(clock, STORAGE_NAMES))
    return Parts(STARTED, clock, storage, WakeUps(tmp_path), LOCAL)


async def change(parts: Parts, **values: int | str) -> None:
    """As another process does it."""
    act = Act(parts.storage, parts.clock, parts.clock.now(), wake=parts.wakeups.ring)
    await change_settings.change(act, STARTED, values, None)


@pytest_asyncio.fixture
async def stop(parts: Parts) -> AsyncIterator[StopRequest]:
    wakeup = parts.wakeups.listen("test")
    yield StopRequest(wakeup, supervised=False)
    wakeup.close()


async def test_a_change_reaches_a_running_process_and_the_next_one_that_starts(
    parts: Parts, stop: StopRequest
) -> None:
    parts, live = await with_changes(parts)
    applied: asyncio.Queue[Settings] = asyncio.Queue()
    async with following(parts, live, "sender", stop, applied.put_nowait), asyncio.timeout(60):
        await change(parts, archive_days=30)
        assert (await applied.get()).archive_days == 30
        [instance] = await instances.running(parts.storage.tables, parts.clock.now())
        assert instance.role == "sender"
    assert await instances.running(parts.storage.tables, parts.clock.now()) == []
    assert (await with_changes(parts))[0].settings.archive_days == 30


async def test_the_level_of_the_log_changes_at_once(parts: Parts) -> None:
    kept = structlog.get_config()
    live = LiveSettings(STARTED, parts.storage, parts.clock)
    await change(parts, log_level="error", trace_level="off")
    try:
        assert await live.refresh()
        assert structlog.get_logger("test").bind().info("unseen") is None
        assert structlog.get_config()["wrapper_class"].__name__.endswith("FilteringAtError")
    finally:
        structlog.configure(**kept)


async def test_changes_of_a_newer_version_change_nothing(parts: Parts) -> None:
    live = LiveSettings(STARTED, parts.storage, parts.clock)
    await change(parts, archive_days=30)
    assert await live.refresh()
    await parts.storage.tables.upsert("service", "settings", "changes", {"Format": 99})
    for _look in range(2):
        assert not await live.refresh()
    assert live.current.archive_days == 30


async def test_an_idle_process_far_away_makes_about_one_call_a_minute() -> None:
    clock = MovableClock()
    storage = CountingStorage(MemoryStorage(clock, STORAGE_NAMES))
    live = LiveSettings(STARTED, storage, clock)
    report = InstanceReport("sender", clock, REMOTE)
    for _look in range(HOUR_S // 2):
        await live.refresh(REMOTE.idle_settings_s)
        await report.write_if_due(storage, Vitals())
        clock.move(2.0)
    assert storage.calls.total <= HOUR_S / 60 * 1.4


async def test_a_full_disk_is_reported_over_a_pipe(tmp_path: Path, stop: StopRequest) -> None:
    clock = WallClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    parts = Parts(STARTED, clock, CountingStorage(storage), WakeUps(tmp_path), LOCAL)
    live = LiveSettings(STARTED, parts.storage, clock)
    heard = parts.wakeups.listen(STORAGE_FULL)
    storage.troubles = Troubles(full_at=clock.now().timestamp())
    async with following(parts, live, "sender", stop):
        assert await heard.wait(60)
    heard.close()


async def test_a_full_file_says_when(tmp_path: Path) -> None:
    clock = MovableClock()
    storage = await SqliteStorage.open(tmp_path / "a.db", clock, STORAGE_NAMES, pages_max=50)
    assert storage.troubles == Troubles()
    with pytest.raises(StorageFull):
        await fill(storage)
    assert storage.troubles.full_at == clock.now().timestamp()
    await storage.close()


async def fill(storage: Storage) -> None:
    for number in range(100):
        await storage.blobs.put(f"filler-{number}", b"x" * 10_000)
