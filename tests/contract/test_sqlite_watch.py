"""A database file that is deleted, moved or replaced while it is open."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs

from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import StorageGone
from postroom.storage.sqlite import file_watch
from postroom.storage.sqlite.file_watch import FileWatch
from postroom.storage.sqlite.rows import read_row
from postroom.storage.sqlite.storage import Reader, SqliteStorage
from tests.clock import MovableClock

TABLE = "message"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "post.db"


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


@pytest_asyncio.fixture
async def storage(file: Path, clock: MovableClock) -> AsyncIterator[SqliteStorage]:
    """With the row `kept`."""
    opened = await SqliteStorage.open(file, clock, STORAGE_NAMES, check_every_s=0)
    await opened.tables.insert(TABLE, "p", "kept", {"n": 1})
    yield opened
    await opened.close()


def beside(file: Path, end: str) -> Path:
    return file.with_name(file.name + end)


def replace_by_a_copy(file: Path) -> None:
    """A backup of a moment ago, moved to where the file is."""
    backup = file.with_name("backup.db")
    source, target = apsw.Connection(str(file)), apsw.Connection(str(backup))
    with target.backup("main", source, "main") as copying:
        copying.step()
    source.close()
    target.close()
    os.replace(backup, file)


def move(file: Path, to: Path) -> Path:
    return file.rename(to)


def content_of(file: Path) -> bytes:
    return file.read_bytes()


def delete(file: Path) -> None:
    for each in (file, beside(file, "-wal"), beside(file, "-shm")):
        each.unlink()


async def write(storage: SqliteStorage, key: str = "new") -> None:
    await storage.tables.upsert(TABLE, "p", key, {"n": 2})


ACCIDENTS: dict[str, Callable[[Path], object]] = {
    "deleted": delete,
    "the file alone deleted": Path.unlink,
    "replaced": replace_by_a_copy,
    "log deleted": lambda file: beside(file, "-wal").unlink(),
    "index of the log deleted": lambda file: beside(file, "-shm").unlink(),
    "folder moved": lambda file: file.parent.rename(file.parent.with_name("moved")),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_no_write_is_acknowledged_that_nobody_would_find(
    storage: SqliteStorage, file: Path, accident: str
) -> None:
    ACCIDENTS[accident](file)
    for _ in range(2):
        with pytest.raises(StorageGone, match=f"{file}.* was deleted or replaced while Postroom"):
            await write(storage)
    with pytest.raises(StorageGone, match="Stop all roles"):
        await storage.queues.put("azuremailqueue", "item")
    with pytest.raises(StorageGone):
        await storage.blobs.put("b", b"")


async def test_every_commit_looks_whether_the_file_is_still_there(
    file: Path, clock: MovableClock
) -> None:
    """Also when reads looked a moment ago."""
    storage = await SqliteStorage.open(file, clock, STORAGE_NAMES, check_every_s=3600)
    await write(storage)
    replace_by_a_copy(file)
    with pytest.raises(StorageGone):
        await write(storage)
    await storage.close()


async def test_a_file_that_goes_during_the_commit_is_noticed_before_the_answer(
    storage: SqliteStorage, file: Path
) -> None:
    with pytest.raises(StorageGone):
        await storage.writer.submit(lambda _connection: delete(file))


@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_reads_notice_it_too(storage: SqliteStorage, file: Path, accident: str) -> None:
    reader = Reader(file, 0.2, FileWatch(file, every_s=0))
    row = await reader.on_loop(lambda connection: read_row(TABLE, "p", "kept", connection))
    assert row is not None
    ACCIDENTS[accident](file)
    with pytest.raises(StorageGone):
        await reader.on_loop(lambda _connection: None)
    with pytest.raises(StorageGone):
        await reader.in_thread(lambda _connection: None)
    await reader.close()


async def test_after_a_write_was_refused_reads_are_refused_at_once(
    storage: SqliteStorage, file: Path
) -> None:
    delete(file)
    with pytest.raises(StorageGone):
        await write(storage)
    with pytest.raises(StorageGone):
        await storage.tables.get(TABLE, "p", "kept")


async def test_it_continues_when_the_same_file_is_put_back(
    storage: SqliteStorage, file: Path
) -> None:
    away = move(file, file.with_name("away.db"))
    with pytest.raises(StorageGone):
        await write(storage)
    move(away, file)
    await write(storage)
    assert await storage.tables.get(TABLE, "p", "kept")


async def test_a_copy_of_the_file_does_not_pass_for_it(storage: SqliteStorage, file: Path) -> None:
    replace_by_a_copy(file)
    with pytest.raises(StorageGone):
        await storage.tables.upsert(TABLE, "p", "kept", {"n": 2})
    shutil.copy2(file, file.with_name("again.db"))
    os.replace(file.with_name("again.db"), file)
    with pytest.raises(StorageGone):
        await write(storage)


async def test_a_file_put_in_its_place_is_left_alone(
    storage: SqliteStorage, file: Path, clock: MovableClock
) -> None:
    """With the log beside it, which belongs to whoever opened it since."""
    replace_by_a_copy(file)
    beside(file, "-wal").unlink()
    beside(file, "-shm").unlink()
    other = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    await other.tables.insert(TABLE, "p", "other", {})
    with pytest.raises(StorageGone):
        await write(storage)
    content, log = content_of(file), content_of(beside(file, "-wal"))
    await storage.close()
    assert (content_of(file), content_of(beside(file, "-wal"))) == (content, log)
    await other.tables.insert(TABLE, "p", "another", {})
    await other.close()
    again = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    rows = [await again.tables.get(TABLE, "p", key) for key in ("kept", "other", "another", "new")]
    assert [row is not None for row in rows] == [True, True, True, False]
    await again.close()


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_log_that_others_began_is_left_alone(
    storage: SqliteStorage, file: Path, end: str
) -> None:
    """Somebody deleted the log, and a command that was started since made a new one."""
    beside(file, end).unlink()
    beside(file, end).write_bytes(b"of another process")
    with pytest.raises(StorageGone):
        await write(storage)
    content = content_of(file)
    await storage.close()
    assert content_of(beside(file, end)) == b"of another process"
    assert content_of(file) == content


@pytest.mark.parametrize("ends", [["-wal"], ["-shm"], ["-wal", "-shm"]])
async def test_an_orderly_stop_keeps_everything_although_the_log_was_deleted(
    storage: SqliteStorage, file: Path, clock: MovableClock, ends: list[str]
) -> None:
    for end in ends:
        beside(file, end).unlink()
    with pytest.raises(StorageGone, match="start them again: an orderly stop keeps everything"):
        await write(storage)
    await storage.close()
    again = await SqliteStorage.open(file, clock, STORAGE_NAMES)
    assert await again.tables.get(TABLE, "p", "kept")
    await again.close()


async def test_it_is_logged_once_and_so_is_its_return(
    storage: SqliteStorage, file: Path, logs: list[MutableMapping[str, Any]]
) -> None:
    away = move(file, file.with_name("away.db"))
    for _ in range(3):
        with pytest.raises(StorageGone):
            await write(storage)
    move(away, file)
    await write(storage)
    await write(storage)
    assert [line["event"] for line in logs] == ["database_file_gone", "database_file_back"]
    assert logs[0]["file"] == str(file)


class InterruptedLog:
    """At the first line, another thread checks the same file, as the writer and a reader do."""

    def __init__(self, watch: FileWatch) -> None:
        self.events: list[str] = []
        self._watch = watch

    def error(self, event: str, **fields: str) -> None:
        self.events.append(event)
        if len(self.events) == 1:
            other = threading.Thread(target=self._check)
            other.start()
            other.join()

    warning = error

    def _check(self) -> None:
        with contextlib.suppress(StorageGone):
            self._watch.check()


async def test_threads_that_notice_at_the_same_moment_log_it_once(
    storage: SqliteStorage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = FileWatch(file, every_s=0)
    gone = InterruptedLog(watch)
    monkeypatch.setattr(file_watch, "log", gone)
    away = move(file, file.with_name("away.db"))
    with pytest.raises(StorageGone):
        watch.check()
    back = InterruptedLog(watch)
    monkeypatch.setattr(file_watch, "log", back)
    move(away, file)
    watch.check()
    assert (gone.events, back.events) == (["database_file_gone"], ["database_file_back"])
