"""Group commit in the SQLite engine: calls that wait together are written together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
import pytest_asyncio

from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import (
    Change,
    ClaimLost,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    StorageFull,
    Unavailable,
    Upsert,
)
from postroom.storage.sqlite.storage import SqliteStorage
from postroom.storage.sqlite.writer import CHECKPOINT_PAGES, GroupWriter
from tests.clock import MovableClock
from tests.contract.engines import all_rows

PAGE_BYTES = 4096
TABLE = "message"


@pytest_asyncio.fixture
async def storage(tmp_path: Path, clock: MovableClock) -> AsyncIterator[SqliteStorage]:
    opened = await SqliteStorage.open(
        tmp_path / "group.db", clock, STORAGE_NAMES, busy_timeout_s=0.2
    )
    yield opened
    await opened.close()


@contextmanager
def held(writer: GroupWriter) -> Iterator[None]:
    """Keep the writer busy inside a transaction, so that what is called now waits together."""
    let_go = threading.Event()
    writer.submit(lambda _connection: let_go.wait(timeout=30))
    try:
        yield
    finally:
        let_go.set()


async def until_waiting(*calls: asyncio.Task[object]) -> None:
    """Every call has been handed to the writer after one turn of the loop."""
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)


async def test_calls_that_wait_together_share_one_commit(storage: SqliteStorage) -> None:
    with held(storage.writer):
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(storage.tables.upsert(TABLE, "p", f"k{n}", {})) for n in range(50)
        ]
        await until_waiting(*calls)
    await asyncio.gather(*calls)
    assert storage.writer.calls == 51
    assert storage.writer.commits <= 2  # the one that was held, and all the others


async def test_a_failing_call_does_not_harm_its_neighbours(storage: SqliteStorage) -> None:
    await storage.tables.insert(TABLE, "p", "taken", {"n": 0})
    await storage.queues.put("azuremailqueue", "item")
    [old] = await storage.queues.claim("azuremailqueue", limit=1, lease_s=30)
    claim = await storage.queues.extend(old, lease_s=30)
    changes: list[Change] = [Upsert("half", {}), Delete("taken"), Delete("absent")]
    with held(storage.writer):
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(call)
            for call in (
                storage.tables.insert(TABLE, "p", "first", {}),
                storage.tables.batch(TABLE, "p", [Insert("quarter", {}), Insert("taken", {})]),
                storage.tables.batch(TABLE, "p", changes),
                storage.queues.complete(old),
                storage.tables.replace(TABLE, "p", "taken", {}, "0"),
                storage.queues.complete(claim),
                storage.tables.insert(TABLE, "p", "last", {}),
            )
        ]
        await until_waiting(*calls)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [str, Conflict, Conflict, ClaimLost, Conflict, type(None), str]
    rows = await all_rows(storage.tables, TABLE, KeysWithin("p"))
    assert {row.key: row.properties for row in rows} == {"first": {}, "last": {}, "taken": {"n": 0}}
    assert await storage.queues.length("azuremailqueue") == 0


async def test_a_cancelled_caller_does_not_harm_its_neighbours(storage: SqliteStorage) -> None:
    with held(storage.writer):
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(storage.tables.upsert(TABLE, "p", f"k{n}", {})) for n in range(3)
        ]
        await until_waiting(*calls)
        calls[1].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [str, asyncio.CancelledError, str]


async def test_a_mistake_in_one_call_reaches_its_caller_and_the_writer_continues(
    storage: SqliteStorage,
) -> None:
    def mistaken(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM message")
        raise ZeroDivisionError

    await storage.tables.upsert(TABLE, "p", "kept", {})
    with pytest.raises(ZeroDivisionError):
        await storage.writer.submit(mistaken)
    await storage.tables.upsert(TABLE, "p", "later", {})
    rows = await all_rows(storage.tables, TABLE, KeysWithin("p"))
    assert [row.key for row in rows] == ["kept", "later"]


async def test_closing_writes_what_waits_first(tmp_path: Path, clock: MovableClock) -> None:
    storage = await SqliteStorage.open(tmp_path / "closing.db", clock, STORAGE_NAMES)
    with held(storage.writer):
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(storage.tables.upsert(TABLE, "p", f"k{n}", {})) for n in range(20)
        ]
        await until_waiting(*calls)
        closing = asyncio.create_task(storage.writer.close())
        await until_waiting(*calls)
    await closing
    await asyncio.gather(*calls)
    await storage.close()
    again = await SqliteStorage.open(tmp_path / "closing.db", clock, STORAGE_NAMES)
    assert len(await all_rows(again.tables, TABLE, KeysWithin("p"))) == 20
    await again.close()


async def test_a_closed_storage_says_so(tmp_path: Path, clock: MovableClock) -> None:
    storage = await SqliteStorage.open(tmp_path / "closed.db", clock, STORAGE_NAMES)
    await storage.close()
    await storage.close()
    with pytest.raises(Unavailable, match="closed"):
        await storage.tables.upsert(TABLE, "p", "k", {})
    with pytest.raises(Unavailable, match="closed"):
        await storage.tables.get(TABLE, "p", "k")
    with pytest.raises(Unavailable, match="closed"):
        await storage.blobs.get("a")


# --- Room -------------------------------------------------------------------------------------


async def keys_until_full(storage: SqliteStorage) -> list[str]:
    written: list[str] = []
    for n in range(60):
        try:
            await storage.tables.insert(TABLE, "p", f"{n:02}", {"filler": "x" * 8000})
        except StorageFull:
            return written
        written.append(f"{n:02}")
    raise AssertionError("the file is never full")


async def test_a_full_file_says_so_keeps_what_it_has_and_continues_when_there_is_room(
    tmp_path: Path, clock: MovableClock
) -> None:
    storage = await SqliteStorage.open(tmp_path / "full.db", clock, STORAGE_NAMES, pages_max=60)
    written = await keys_until_full(storage)
    assert [row.key for row in await all_rows(storage.tables, TABLE, KeysWithin("p"))] == written
    with pytest.raises(StorageFull):
        await storage.blobs.put("a", bytes(40_000))
    assert await storage.blobs.get("a") is None
    assert len(written) > 10
    for key in written[:10]:
        await storage.tables.delete(TABLE, "p", key)
    await storage.blobs.put("a", bytes(40_000))
    await storage.close()


async def test_the_log_does_not_grow_with_what_is_written(
    storage: SqliteStorage, tmp_path: Path
) -> None:
    log = tmp_path / "group.db-wal"
    sizes = []
    for _ in range(12):
        await storage.blobs.put("a", bytes(CHECKPOINT_PAGES * PAGE_BYTES // 2))
        sizes.append(log.stat().st_size)
    assert max(sizes) < 3 * CHECKPOINT_PAGES * PAGE_BYTES


async def test_the_log_starts_over_once_a_long_reader_is_gone(
    storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.storage.sqlite.writer.LOG_PAGES_MAX", 2 * CHECKPOINT_PAGES)
    log = tmp_path / "group.db-wal"
    reader = apsw.Connection(str(tmp_path / "group.db"))
    reader.execute("BEGIN").execute("SELECT count(*) FROM message").fetchall()
    for _ in range(8):
        await storage.blobs.put("a", bytes(CHECKPOINT_PAGES * PAGE_BYTES // 2))
    grown = log.stat().st_size
    assert grown > 3 * CHECKPOINT_PAGES * PAGE_BYTES
    reader.close()
    for _ in range(12):
        await storage.blobs.put("a", bytes(CHECKPOINT_PAGES * PAGE_BYTES // 2))
    assert log.stat().st_size <= grown + 2 * CHECKPOINT_PAGES * PAGE_BYTES
