"""The SQLite file: who may open it, what others see, and how it answers when it cannot be used."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import Insert, KeysAcross, KeysWithin, Unavailable
from postroom.storage.sqlite.file import SCHEMA_VERSION
from postroom.storage.sqlite.file_watch import FileWatch
from postroom.storage.sqlite.storage import Reader, SqliteStorage
from tests.clock import MovableClock
from tests.contract.engines import all_rows

TABLE = "message"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "post.db"


@pytest_asyncio.fixture
async def storage(file: Path, clock: MovableClock) -> AsyncIterator[SqliteStorage]:
    opened = await SqliteStorage.open(file, clock, STORAGE_NAMES, busy_timeout_s=0.2)
    yield opened
    await opened.close()


async def refusal(file: Path, clock: MovableClock) -> str:
    with pytest.raises(Unavailable) as refused:
        await SqliteStorage.open(file, clock, STORAGE_NAMES, busy_timeout_s=0.2)
    sentence = str(refused.value)
    assert str(file) in sentence
    return sentence


def bytes_of(file: Path) -> bytes:
    return file.read_bytes()


def overwrite(file: Path, content: bytes) -> None:
    file.write_bytes(content)


# --- Refused with a sentence ------------------------------------------------------------------


async def test_a_file_of_a_newer_version_is_refused(file: Path, clock: MovableClock) -> None:
    await (await SqliteStorage.open(file, clock, STORAGE_NAMES)).close()
    apsw.Connection(str(file)).pragma("user_version", SCHEMA_VERSION + 1)
    assert "newer Postroom" in await refusal(file, clock)


async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    file: Path, clock: MovableClock
) -> None:
    overwrite(file, b"Dear diary, " * 1000)
    assert "is not a database" in await refusal(file, clock)
    assert bytes_of(file) == b"Dear diary, " * 1000


async def test_a_database_of_another_program_is_refused_and_left_alone(
    file: Path, clock: MovableClock
) -> None:
    other = apsw.Connection(str(file))
    other.execute("CREATE TABLE diary (entry TEXT)").fetchall()
    assert "another program" in await refusal(file, clock)
    assert other.pragma("journal_mode") == "delete"
    assert other.pragma("user_version") == 0


async def test_a_missing_folder_is_named(tmp_path: Path, clock: MovableClock) -> None:
    assert "no folder" in await refusal(tmp_path / "nowhere" / "post.db", clock)


async def test_a_folder_is_refused(tmp_path: Path, clock: MovableClock) -> None:
    assert "cannot be read or written" in await refusal(tmp_path, clock)


async def test_a_file_that_another_program_keeps_locked_is_refused(
    file: Path, clock: MovableClock
) -> None:
    other = apsw.Connection(str(file))
    other.execute("BEGIN EXCLUSIVE")
    assert "locked by another program" in await refusal(file, clock)


async def test_a_damaged_file_says_so(file: Path, clock: MovableClock) -> None:
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    await storage.tables.insert(TABLE, "p", "k", {})
    await storage.close()
    intact = bytes_of(file)
    overwrite(file, intact[:4096] + b"\xa5" * (len(intact) - 4096))
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    with pytest.raises(Unavailable, match="damaged"):
        await storage.tables.get(TABLE, "p", "k")
    with pytest.raises(Unavailable, match="damaged"):
        await storage.tables.upsert(TABLE, "p", "k", {})
    await storage.close()


# --- Sharing ----------------------------------------------------------------------------------


async def test_what_one_has_written_the_other_reads_at_once(
    storage: SqliteStorage, file: Path, clock: MovableClock
) -> None:
    other = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    for n in range(20):
        mine, theirs = (storage, other) if n % 2 else (other, storage)
        etag = await mine.tables.upsert(TABLE, "p", "k", {"n": n})
        row = await theirs.tables.get(TABLE, "p", "k")
        assert row is not None
        assert (row.properties, row.etag) == ({"n": n}, etag)
    await other.close()


async def test_a_file_locked_too_long_is_unavailable_to_writers_but_not_to_readers(
    storage: SqliteStorage, file: Path
) -> None:
    etag = await storage.tables.insert(TABLE, "p", "k", {"n": 1})
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await storage.tables.upsert(TABLE, "p", "k", {"n": 2})
    row = await storage.tables.get(TABLE, "p", "k")
    assert row is not None
    assert row.etag == etag
    other.execute("ROLLBACK")
    await storage.tables.upsert(TABLE, "p", "k", {"n": 3})
    other.close()


async def test_a_read_that_has_to_wait_leaves_the_event_loop(
    storage: SqliteStorage, file: Path
) -> None:
    def name_of_thread(_connection: apsw.Connection) -> str:
        if threading.current_thread() is threading.main_thread():
            raise apsw.BusyError
        return threading.current_thread().name

    reader = Reader(file, 0.2, FileWatch(file))
    assert (await reader.on_loop(name_of_thread)).startswith("sqlite-reader")
    await reader.close()


# --- Pages ------------------------------------------------------------------------------------


async def test_rows_too_large_to_travel_together_come_in_shorter_pages(
    file: Path, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.storage.sqlite.file.VALUE_BYTES_MAX", 200_000)
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    for n in range(20):
        await storage.tables.insert(TABLE, "p", f"{n:02}", {"filler": "x" * 30_000, "n": n})
    for where in (None, {"filler": "x" * 30_000}):
        rows = await all_rows(storage.tables, TABLE, KeysWithin("p"), where=where)
        assert [row.properties["n"] for row in rows] == list(range(20))
    await storage.close()


async def test_a_filter_that_matches_little_gives_short_pages(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.storage.sqlite.rows.SCAN_EXAMINED_MAX", 10)
    for partition in ("a", "b"):
        rows = [Insert(f"{n:02}", {"rare": n == 47}) for n in range(50)]
        await storage.tables.batch(TABLE, partition, rows)
    first = await storage.tables.scan(TABLE, KeysAcross(), where={"rare": True})
    assert (first.rows, first.next) == ([], "a/09")
    found = await all_rows(storage.tables, TABLE, KeysAcross(), where={"rare": True}, limit=1)
    assert [(row.partition, row.key) for row in found] == [("a", "47"), ("b", "47")]
