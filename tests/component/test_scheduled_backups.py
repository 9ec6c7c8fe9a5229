"""Scheduled backups: when one is due, what is kept, and what a failure leaves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs

from postroom.backup import keeper as keeping
from postroom.backup.create import BackupContext, dated_name, verify
from postroom.backup.keeper import BackupKeeper, failed, is_due, prune
from postroom.domain.backup import BackupRecord
from postroom.metrics import RoleCollector
from postroom.records import backups
from postroom.records.names import STORAGE_NAMES
from postroom.storage.sqlite.backup_file import SqliteBackupFormat, write_snapshot
from postroom.storage.sqlite.storage import SqliteStorage
from tests.clock import START, MovableClock

DAY = timedelta(days=1)


@pytest_asyncio.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[BackupKeeper]:
    clock = MovableClock()
    file = tmp_path / "postroom.db"
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    await storage.tables.insert("mailinglist", "news", "somebody", {"Format": 1})
    folder = tmp_path / "backups"
    folder.mkdir()
    context = BackupContext(
        storage,
        "the town",
        clock,
        SqliteBackupFormat(STORAGE_NAMES, clock),
        partial(write_snapshot, file),
        lambda _part, _done: None,
    )
    yield BackupKeeper(context, folder, DAY, 3, lambda: True)
    await storage.close()


def clock_of(keeper: BackupKeeper) -> MovableClock:
    assert isinstance(keeper.context.clock, MovableClock)
    return keeper.context.clock


def names(keeper: BackupKeeper) -> list[str]:
    return sorted(path.name for path in keeper.folder.iterdir())


async def test_one_a_day_is_made_and_the_last_three_are_kept(keeper: BackupKeeper) -> None:
    made: list[str] = []
    for _day in range(5):
        await keeper.step()
        await keeper.step()  # not due: nothing happens
        made.append(dated_name(clock_of(keeper).now()))
        clock_of(keeper).move(DAY.total_seconds())
    assert names(keeper) == made[-3:]
    _, damage = await verify(keeper.context.format, keeper.folder / made[-1])
    assert not damage
    record = await backups.find(keeper.context.storage.tables)
    assert record
    assert (record.file, record.is_failing) == (str(keeper.folder / made[-1]), False)
    assert record.size_bytes > 0


async def test_a_scheduler_that_does_not_lead_makes_none(keeper: BackupKeeper) -> None:
    await replace(keeper, leads=lambda: False).step()
    assert names(keeper) == []


async def test_a_failure_is_recorded_logged_and_tried_again(keeper: BackupKeeper) -> None:
    await keeper.step()
    clock_of(keeper).move(DAY.total_seconds())
    moved = keeper.folder.rename(keeper.folder.with_name("elsewhere"))
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with capture_logs() as lines:
        await keeper.step()
        await keeper.step()  # not before ten minutes
    structlog.configure(**before)
    assert [line["event"] for line in lines] == ["backup_failed"]
    record = await backups.find(keeper.context.storage.tables)
    assert record
    assert record.failure.startswith("There is no folder")
    assert (record.failures, record.made_at) == (1, START)
    moved.rename(keeper.folder)
    clock_of(keeper).move(keeping.RETRY.total_seconds())
    await keeper.step()
    record = await backups.find(keeper.context.storage.tables)
    assert record
    assert not record.is_failing


async def test_nothing_is_deleted_if_the_new_backup_is_damaged(
    keeper: BackupKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _day in range(3):
        await keeper.step()
        clock_of(keeper).move(DAY.total_seconds())
    before = names(keeper)

    async def find_damage(*_: object) -> tuple[None, str]:
        return None, "A page is damaged."

    monkeypatch.setattr(keeping, "verify", find_damage)
    await keeper.step()
    assert names(keeper) == before
    record = await backups.find(keeper.context.storage.tables)
    assert record
    assert "A page is damaged" in record.failure


def test_one_is_due_at_first_after_its_time_and_if_the_clock_was_set_back() -> None:
    good = BackupRecord(tried_at=START, made_at=START)
    assert is_due(None, START, DAY)
    assert not is_due(good, START + DAY / 2, DAY)
    assert is_due(good, START + DAY, DAY)
    assert is_due(good, START - DAY, DAY)
    bad = failed(good, "no space", START + DAY)
    assert not is_due(bad, START + DAY, DAY)
    assert is_due(bad, START + DAY + keeping.RETRY, DAY)
    assert bad.made_at == START


def test_other_files_and_recent_temporary_files_stay(tmp_path: Path) -> None:
    newest = tmp_path / dated_name(START)
    old = tmp_path / dated_name(START - DAY)
    others = [tmp_path / "notes.txt", tmp_path / "mine.postroom-backup"]
    part = tmp_path / f".{dated_name(START)}.abcd.part"
    for path in (newest, old, *others, part):
        path.touch()
    prune(tmp_path, 1, newest, START.replace(year=2020))
    assert sorted(tmp_path.iterdir()) == sorted([newest, *others, part])
    prune(tmp_path, 1, newest, START.replace(year=2100))
    assert sorted(tmp_path.iterdir()) == sorted([newest, *others])


def test_metrics_tell_when_the_last_backup_was_made_and_how_many_failed() -> None:
    record = BackupRecord(tried_at=START, made_at=START, failures=2, failure="no space")
    none: dict[str, int] = {}
    collector = RoleCollector(
        "scheduler", lambda: none, lambda: none, lambda: none, None, backups=lambda: record
    )
    values = {
        sample.name: sample.value for metric in collector.collect() for sample in metric.samples
    }
    assert values["postroom_backup_last_success_timestamp_seconds"] == START.timestamp()
    assert values["postroom_backup_failures"] == 2
