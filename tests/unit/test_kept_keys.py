"""Access keys in storage: one that cannot be read hides no other."""

from __future__ import annotations

from postroom.records import keys
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import KeysWithin
from tests.clock import START, MovableClock


async def test_a_key_that_cannot_be_read_hides_no_other() -> None:
    tables = MemoryStorage(MovableClock(), STORAGE_NAMES).tables
    for name in ("site", "shop"):
        await keys.create(tables, name, (), START)
    page = await tables.scan("service", KeysWithin("key"))
    bad = page.rows[0]
    await tables.upsert("service", "key", bad.key, bad.properties | {"Format": 99})
    assert len([key async for key in keys.every_key(tables)]) == 1
