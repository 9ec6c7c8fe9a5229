"""Calls are counted by kind, and otherwise nothing is changed by counting them."""

from __future__ import annotations

from pathlib import Path

from postroom.records.names import STORAGE_NAMES
from postroom.storage.counting import Calls, CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Insert, KeysWithin
from postroom.storage.sqlite.storage import SqliteStorage
from tests.clock import MovableClock


async def test_calls_are_counted_as_azure_would_bill_them(clock: MovableClock) -> None:
    storage = CountingStorage(MemoryStorage(clock, STORAGE_NAMES))
    etag = await storage.tables.insert("message", "p", "k", {})
    etag = await storage.tables.replace("message", "p", "k", {}, etag)
    await storage.tables.upsert("message", "p", "k", {})
    await storage.tables.delete("message", "p", "k")
    await storage.tables.batch("message", "p", [Insert(f"{n}", {}) for n in range(100)])
    await storage.tables.get("message", "p", "1")
    await storage.tables.scan("message", KeysWithin("p"))
    assert storage.calls == Calls(reads=2, writes=4, batches=1)
    await storage.queues.put("azuremailqueue", "a", "b", "c")
    first, second = await storage.queues.claim("azuremailqueue", limit=2, lease_s=30)
    await storage.queues.complete(await storage.queues.extend(first, lease_s=30))
    await storage.queues.release(second)
    await storage.queues.length("azuremailqueue")
    await storage.queues.peek("azuremailqueue")
    assert storage.calls.queue_calls == 3 + 6
    await storage.blobs.put("a", b"x")
    await storage.blobs.get("a")
    await storage.blobs.list()
    await storage.blobs.delete("a")
    assert storage.calls.blob_calls == 4
    assert storage.calls.total == 7 + 9 + 4


async def test_commits_are_counted_where_the_engine_makes_them(
    clock: MovableClock, tmp_path: Path
) -> None:
    storage = CountingStorage(
        await SqliteStorage.open(tmp_path / "postroom.db", clock, STORAGE_NAMES)
    )
    before = storage.commits or 0
    await storage.tables.batch("message", "p", [Insert(f"{n}", {}) for n in range(100)])
    await storage.tables.get("message", "p", "1")
    assert storage.commits == before + 1
    await storage.close()
    assert CountingStorage(MemoryStorage(clock, STORAGE_NAMES)).commits is None
