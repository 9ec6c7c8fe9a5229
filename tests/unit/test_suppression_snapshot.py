"""The snapshot of the suppression filter: whatever dies or is damaged, nobody is overlooked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroom.domain.mark_set import SECTIONS, MarkSet
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.records import suppressions
from postroom.records.names import STORAGE_NAMES
from postroom.records.suppression_filter import (
    IMPORTS_NAME,
    LOG_KEPT,
    LOOK_BACK_EVERY_S,
    RELOAD_AFTER_S,
    SECTION_NAME,
    SKEW,
    SuppressionFilter,
    _encoded,
)
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryBlobs, MemoryStorage, MemoryTables
from postroom.storage.port import (
    BLOB_NAMES_MAX,
    SCAN_ROWS_MAX,
    Keys,
    Page,
    Properties,
    Storage,
    Unavailable,
)
from tests.clock import START, MovableClock
from tests.unit.failing import Fuse, Killed, fused_storage

SECRET = "secret"
ENOUGH = 150  # new entries for a snapshot: some in every section, more than one write
LATER_S = (LOG_KEPT + timedelta(hours=1)).total_seconds()
# One write for each section, one for the list of imports, one that deletes the log of the first.
WRITES = SECTIONS + 2


def new_filter(storage: Storage, clock: MovableClock) -> SuppressionFilter:
    return SuppressionFilter(storage, clock, SECRET, snapshot_after=ENOUGH)


async def suppress(
    storage: Storage, clock: MovableClock, name: str, count: int = ENOUGH
) -> list[str]:
    """Import just enough for a snapshot; return the address keys."""
    keys = [f"{name}{number}@contoso.edu" for number in range(count)]
    now = clock.now()
    for start in range(0, len(keys), suppressions.NEW_MAX):
        entries = [
            (
                key,
                Suppression(
                    key=key,
                    scope=SuppressionScope.ALL,
                    reason=SuppressionReason.IMPORTED,
                    since=now,
                ),
            )
            for key in keys[start : start + suppressions.NEW_MAX]
        ]
        await suppressions.put_new(storage.tables, SECRET, entries, now)
    return keys


async def overlooked(storage: Storage, clock: MovableClock, keys: list[str]) -> set[str]:
    """The keys that a process started now does not know as suppressed."""
    fresh = new_filter(storage, clock)
    return set(keys) - (await fresh.suppressed_entirely(keys)).keys()


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kills_at", range(1, WRITES + 1))
async def test_a_scheduler_that_dies_while_it_saves_loses_nobody(
    kills_at: int, is_after: bool
) -> None:
    """Sections of different age are read together with the log of the oldest."""
    clock, fuse = MovableClock(), Fuse()
    storage = fused_storage(clock, fuse)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    clock.move(LATER_S)
    keys += await suppress(storage, clock, "ben")
    clock.move(2 * SKEW.total_seconds())
    keys += await suppress(storage, clock, "cam", 1)  # a new snapshot follows the log from here on
    scheduler = new_filter(storage, clock)
    fuse.set(kills_at, is_after=is_after)
    with pytest.raises(Killed):
        await scheduler.save_snapshot()
    fuse.set(-1)
    assert await overlooked(storage, clock, keys) == set()
    clock.move(LATER_S)
    assert await overlooked(storage, clock, keys) == set()
    keys += await suppress(storage, clock, "zoe")
    await new_filter(storage, clock).save_snapshot()
    clock.move(LATER_S)
    assert await overlooked(storage, clock, keys) == set()


@pytest.mark.parametrize("number", [0, SECTIONS // 2, SECTIONS - 1])
async def test_one_older_section_is_made_up_for_by_the_log(number: int) -> None:
    """Two schedulers may save at the same time, while leadership changes hands."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    older = await storage.blobs.get(SECTION_NAME.format(number))
    assert older
    keys += await suppress(storage, clock, "ben")
    clock.move(2 * SKEW.total_seconds())
    keys += await suppress(storage, clock, "cam", 1)
    await new_filter(storage, clock).save_snapshot()
    await storage.blobs.put(SECTION_NAME.format(number), older)
    assert await overlooked(storage, clock, keys) == set()


async def test_the_kills_above_reach_every_write() -> None:
    clock, fuse = MovableClock(), Fuse()
    storage = fused_storage(clock, fuse)
    await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    clock.move(LATER_S)
    await suppress(storage, clock, "ben")
    fuse.set(-1)
    await new_filter(storage, clock).save_snapshot()
    assert fuse.writes == WRITES


EMPTY = _encoded(bytes(16), START, b"", bytes(2048))
DAMAGED = EMPTY[:-1] + b"?"


@pytest.mark.parametrize("content", [None, b"", b"postroom", b"something else " * 3, DAMAGED])
@pytest.mark.parametrize("number", [0, SECTIONS - 1])
async def test_the_rows_are_read_if_a_section_is_missing_or_damaged(
    content: bytes | None, number: int
) -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    name = SECTION_NAME.format(number)
    if content is None:
        await storage.blobs.delete(name)
    else:
        await storage.blobs.put(name, content)
    clock.move(LATER_S)
    assert await overlooked(storage, clock, keys) == set()


async def test_a_whole_snapshot_saves_reading_the_rows() -> None:
    clock = MovableClock()
    storage = CountingStorage(MemoryStorage(clock, STORAGE_NAMES))
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    clock.move(LATER_S)
    before = storage.calls.total
    fresh = new_filter(storage, clock)
    await fresh.refresh()
    assert storage.calls.total - before == SECTIONS + 2  # the list of imports, and the log
    assert len(await fresh.suppressed_entirely(keys)) == len(keys)


class FailingBlobs(MemoryBlobs):
    """Blobs of which one cannot be read for a while."""

    def __init__(self) -> None:
        super().__init__(BLOB_NAMES_MAX)
        self.fails_at = ""

    async def get(self, name: str) -> bytes | None:
        if name == self.fails_at:
            raise Unavailable("The disk is away.")
        return await super().get(name)


async def test_after_a_reload_that_failed_nobody_passes_for_unsuppressed() -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    storage.blobs = blobs = FailingBlobs()
    keys = await suppress(storage, clock, "ada")
    idle = new_filter(storage, clock)
    await idle.save_snapshot()
    clock.move(RELOAD_AFTER_S + 60)
    blobs.fails_at = SECTION_NAME.format(SECTIONS // 2)
    for _try in range(2):
        with pytest.raises(Unavailable):
            await idle.suppressed_entirely(keys)
    blobs.fails_at = ""
    assert len(await idle.suppressed_entirely(keys)) == len(keys)


class RecordingTables(MemoryTables):
    """Tables that record how long the pages are that are asked for."""

    def __init__(self) -> None:
        super().__init__(STORAGE_NAMES.tables)
        self.limits: list[int] = []

    async def scan(
        self,
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> Page:
        self.limits.append(limit)
        return await super().scan(table, keys, where=where, limit=limit, after=after)


async def test_the_log_of_a_large_import_is_read_in_short_pages() -> None:
    """A row has the marks of a hundred people: a usual page of a thousand rows takes megabytes."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    storage.tables = tables = RecordingTables()
    watcher = new_filter(storage, clock)
    await watcher.refresh()
    keys = [key for name in range(400) for key in await suppress(storage, clock, f"{name}-", 2)]
    clock.move(60)
    tables.limits.clear()
    await watcher.refresh()
    assert max(tables.limits) <= suppressions.LOG_PAGE_ROWS
    assert len(tables.limits) <= 3
    assert len(await watcher.suppressed_entirely(keys[::10])) == len(keys[::10])


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many marks were added, call by call."""
    counts: list[int] = []
    add = MarkSet.add

    def count(self: MarkSet, marks: Sequence[int]) -> int:
        counts.append(len(marks))
        return add(self, marks)

    monkeypatch.setattr(MarkSet, "add", count)
    return counts


async def test_the_log_of_an_import_is_decoded_once_and_then_forgotten(added: list[int]) -> None:
    """It is read again for ten minutes; adding a million marks each time would slow sending."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    watcher = new_filter(storage, clock)
    await watcher.refresh()
    keys = await suppress(storage, clock, "ada")
    for _look_back in range(5):
        clock.move(LOOK_BACK_EVERY_S)
        await watcher.refresh()
    assert sum(added) == len(keys)
    clock.move(2 * SKEW.total_seconds())
    await suppress(storage, clock, "zoe", 1)
    for _look_back in range(2):  # the second reads from ten minutes before the newest row on
        clock.move(LOOK_BACK_EVERY_S)
        await watcher.refresh()
    assert watcher._imports_read == set()


async def test_a_process_that_starts_after_an_import_does_not_add_its_marks_again(
    added: list[int],
) -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    keys += await suppress(storage, clock, "ben", 20)
    added.clear()
    assert await overlooked(storage, clock, keys) == set()
    assert sum(added) == 20  # those that the snapshot does not have


@pytest.mark.parametrize("number", [0, SECTIONS // 2, SECTIONS - 1])
async def test_the_list_of_imports_is_not_trusted_beside_a_section_of_another_snapshot(
    number: int,
) -> None:
    """A scheduler that stalled while it saved writes an older section after the newer list."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    older = await storage.blobs.get(SECTION_NAME.format(number))
    assert older
    keys += await suppress(storage, clock, "ben")
    await new_filter(storage, clock).save_snapshot()
    assert (await storage.blobs.get(IMPORTS_NAME) or b"").count(b"\n") >= 2
    await storage.blobs.put(SECTION_NAME.format(number), older)
    assert await overlooked(storage, clock, keys) == set()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\n\xff"])
async def test_a_list_of_imports_that_is_missing_or_damaged_costs_only_time(
    content: bytes | None,
) -> None:
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    await new_filter(storage, clock).save_snapshot()
    if content is None:
        await storage.blobs.delete(IMPORTS_NAME)
    else:
        await storage.blobs.put(IMPORTS_NAME, content)
    assert await overlooked(storage, clock, keys) == set()


async def test_a_mark_added_while_the_snapshot_is_written_is_not_named_as_covered() -> None:
    """Sections that are written already lack it."""
    clock = MovableClock()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    keys = await suppress(storage, clock, "ada")
    scheduler = new_filter(storage, clock)

    class ReadingBlobs(MemoryBlobs):
        """An import happens, and the scheduler reads it, before the last section is written."""

        async def put(self, name: str, content: bytes) -> None:
            await super().put(name, content)
            if name == SECTION_NAME.format(SECTIONS - 2):
                keys.extend(await suppress(storage, clock, "ben"))
                clock.move(60)
                await scheduler.refresh()

    storage.blobs = ReadingBlobs(BLOB_NAMES_MAX)
    await scheduler.save_snapshot()
    assert await overlooked(storage, clock, keys) == set()
