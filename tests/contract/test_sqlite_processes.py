"""Several processes on one SQLite file, and processes that die on it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw
import pytest

from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import KeysAcross, KeysWithin
from postroom.storage.sqlite.storage import SqliteStorage
from tests.clock import MovableClock
from tests.contract.engines import all_rows
from tests.contract.sqlite_process import BATCH_ROWS, INCREMENTS, start

PROCESS_S_MAX = 120.0
CONFIRMED_BEFORE_THE_KILL = 60


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    try:
        output, _ = process.communicate(timeout=PROCESS_S_MAX)
    finally:
        process.kill()
    assert process.returncode == 0
    return output.splitlines()


def test_processes_may_create_one_file_at_the_same_time(file: Path) -> None:
    processes = [start("opens", file) for _ in range(4)]
    assert [lines_of(process) for process in processes] == [["opened"]] * 4


async def test_processes_lose_no_update(file: Path, clock: MovableClock) -> None:
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    await storage.tables.insert("service", "counters", "shared", {"count": 0})
    processes = [start("increments", file) for _ in range(3)]
    assert [lines_of(process) for process in processes] == [[str(INCREMENTS)]] * 3
    row = await storage.tables.get("service", "counters", "shared")
    await storage.close()
    assert row is not None
    assert row.properties == {"count": 3 * INCREMENTS}


@pytest.mark.slow
async def test_processes_never_share_an_item(file: Path, clock: MovableClock) -> None:
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    items = [f"{n:03}" for n in range(90)]
    await storage.queues.put("azuremailqueue", *items)
    await storage.close()
    processes = [start("claims", file) for _ in range(3)]
    assert sorted(line for process in processes for line in lines_of(process)) == items


def confirmed_until_killed(process: subprocess.Popen[str]) -> list[str]:
    """What it had printed when it was killed in the middle of its work, whole lines only."""
    with process:
        assert process.stdout is not None
        try:
            early = [process.stdout.readline() for _ in range(CONFIRMED_BEFORE_THE_KILL)]
        finally:
            process.kill()
        late = process.stdout.readlines()
    return [line.strip() for line in early + late if line.endswith("\n")]


async def test_after_a_kill_everything_confirmed_is_there_and_batches_are_whole(
    file: Path, clock: MovableClock
) -> None:
    confirmed = confirmed_until_killed(start("writes", file))
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    rows = await all_rows(storage.tables, "message", KeysAcross())
    await storage.close()
    found = [row.partition for row in rows]
    assert len(confirmed) >= CONFIRMED_BEFORE_THE_KILL
    assert set(confirmed) <= set(found)
    assert len(found) == len(set(found)) * BATCH_ROWS
    assert apsw.Connection(str(file)).pragma("integrity_check") == "ok"


async def test_a_process_that_does_not_close_ends_all_the_same(
    file: Path, clock: MovableClock
) -> None:
    assert lines_of(start("leaves", file)) == ["left"]
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    row = await storage.tables.get("service", "p", "k")
    await storage.close()
    assert row is not None


async def test_a_commit_that_fails_undoes_its_whole_group_and_the_next_one_works(
    file: Path, clock: MovableClock
) -> None:
    assert lines_of(start("outgrows", file)) == ["recovered"]
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    rows = await all_rows(storage.tables, "service", KeysWithin("p"))
    items = await storage.queues.length("azuremailqueue")
    await storage.close()
    assert [row.key for row in rows] == ["after", "before"]
    assert items == 0
