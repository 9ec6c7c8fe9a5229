"""A page of storage may be short, even empty, and still have a next: nothing is missed for it."""

from __future__ import annotations

import pytest

from postroom.clock import WallClock
from postroom.importing import jobs
from postroom.importing.job import ImportJob
from postroom.records import outbox
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Value
from tests.clock import START, MovableClock


@pytest.fixture
def short() -> MemoryStorage:
    return MemoryStorage(MovableClock(), STORAGE_NAMES, page_rows=1, empty_first_page=True)


async def test_imports_are_shown_however_pages_come(short: MemoryStorage) -> None:
    for _ in range(3):
        job = ImportJob(
            id=jobs.new_id(WallClock().now()),
            list_name="contoso1",
            file_name="people.csv",
            size=1,
            chunks=1,
            user="ada@contoso.edu",
            created_at=START,
        )
        await jobs.create(short.tables, job)
    assert len(await jobs.newest(short.tables, limit=50)) == 3


async def test_the_outbox_is_not_called_empty_nor_ended_however_pages_come(
    short: MemoryStorage,
) -> None:
    row: dict[str, Value] = {
        "Format": 1,
        "EnvelopeSender": "a@b.de",
        "EnvelopeRecipient": "c@d.de",
        "Bytes": 1,
        "Time": "2026-11-15T12:00:00+00:00",
    }
    for number in range(3):
        await short.tables.upsert("outbox", "mails", f"{number:013d}-{number:016x}", row)
    assert not await outbox.is_empty(short.tables)
    seen, after = await outbox.newest(short.tables, limit=2)
    more, _ = await outbox.newest(short.tables, limit=2, after=after)
    assert len(seen) + len(more) == 3
    assert await outbox.delete_newest(short, limit=10) == 3
