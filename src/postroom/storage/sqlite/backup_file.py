"""The file of a backup: a SQLite file with the tables of the engine, and a manifest.

A backup of this engine is a snapshot by `VACUUM INTO`: one read transaction, so it has everything
of one moment, while writers go on. It has no free pages, so nothing that was deleted is in it.
A backup of another engine is written through the port into a new file. Either is then sealed: its
content is counted and summed up, and the manifest is added.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import os
import sys
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import apsw
import msgspec

from postroom.clock import Clock
from postroom.domain.backup import BACKUP_FORMAT, Manifest, PartSum
from postroom.storage import port, validation
from postroom.storage.sqlite.file import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    as_storage_error,
    connect,
)
from postroom.storage.sqlite.rows import UNTYPED, read_page
from postroom.storage.sqlite.storage import BUSY_TIMEOUT_S, SqliteStorage, read_blob_names

BLOBS = "blobs"
NICE = 19  # the lowest: senders have 5 already
_MANIFEST = "backup_manifest"
_CREATE = f"CREATE TABLE {_MANIFEST} (id INTEGER PRIMARY KEY CHECK (id = 1), content TEXT NOT NULL)"
_ROWS_PER_STEP = 200  # summed up at once: few calls, and at most 200 MiB in memory

T = TypeVar("T")


class ReadInThread(Protocol):
    def __call__(self, query: Callable[[apsw.Connection], T], /) -> Awaitable[T]: ...


class SqliteBackupFormat:
    """Writes and opens backup files; `names` are the tables and queues that they have."""

    def __init__(self, names: port.StorageNames, clock: Clock) -> None:
        self._names = names
        self._clock = clock

    async def create(self, path: Path) -> SqliteStorage:
        """A new storage in this file, to be filled, closed and sealed."""
        return await SqliteStorage.open(path, self._clock, self._names)

    async def seal(self, path: Path, manifest: Manifest) -> Manifest:
        """Count everything, add the manifest, and wait until all of it is on the disk."""
        thread = low_priority_thread()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(thread, _seal, path, self._names, manifest)
        finally:
            thread.shutdown(wait=False)

    async def open(self, path: Path) -> BackupFile:
        """Open a backup; Unavailable, with what to do, if it is not one or has no manifest."""
        return await asyncio.to_thread(BackupFile, path, self._names)


def low_priority_thread() -> ThreadPoolExecutor:
    """A thread for work that may take longer, so that pages and emails come first."""
    return ThreadPoolExecutor(1, thread_name_prefix="backup", initializer=_lower_priority)


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere this would lower the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


async def write_snapshot(source: Path, to: Path) -> None:
    """Copy everything of one moment into the empty file `to`; writers go on meanwhile."""
    connection = connect(source, busy_timeout_s=BUSY_TIMEOUT_S)
    thread = low_priority_thread()
    loop = asyncio.get_running_loop()
    copying = loop.run_in_executor(thread, connection.execute, "VACUUM INTO ?", (str(to),))
    try:
        await asyncio.shield(copying)
    except asyncio.CancelledError:
        connection.interrupt()
        await asyncio.gather(copying, return_exceptions=True)
        raise
    except apsw.Error as error:
        raise as_storage_error(error, to) from error
    finally:
        connection.close()
        thread.shutdown(wait=False)


def _seal(path: Path, names: port.StorageNames, manifest: Manifest) -> Manifest:
    try:
        connection = connect(path, busy_timeout_s=BUSY_TIMEOUT_S)
        try:
            connection.pragma("journal_mode", "DELETE")  # one file, without a log beside it
            sealed = msgspec.structs.replace(manifest, parts=list(_sums(connection, names)))
            connection.execute(_CREATE)
            content = msgspec.json.encode(sealed).decode()
            connection.execute(f"INSERT INTO {_MANIFEST} VALUES (1, ?)", (content,))
        finally:
            connection.close()
    except apsw.Error as error:
        raise as_storage_error(error, path) from error
    with path.open("rb+") as file:
        os.fsync(file.fileno())  # VACUUM INTO does not
    return sealed


class BackupFile:
    """A sealed backup, opened read-only; nothing is written, not even beside it."""

    def __init__(self, path: Path, names: port.StorageNames) -> None:
        self._names = names
        self._path = path
        if not path.is_file():
            raise port.Unavailable(f"There is no file {path}.")
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            self._connection = apsw.Connection(uri, flags=flags)
            self.manifest = self._read_manifest()
        except apsw.Error as error:
            raise as_storage_error(error, path) from error
        self._thread = low_priority_thread()
        self.tables = BackupTables(self._read, names.tables)
        self.blobs = BackupBlobs(self._read)

    def _read_manifest(self) -> Manifest:
        connection = self._connection
        if connection.pragma("application_id") != APPLICATION_ID:
            raise port.Unavailable(f"{self._path} is not a Postroom backup.")
        version = connection.pragma("user_version")
        exists = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
        if not connection.execute(exists, (_MANIFEST,)).get:
            raise port.Unavailable(
                f"{self._path} is a Postroom storage, but not a complete backup: it has no "
                "manifest. Make a backup with “postroom backup”."
            )
        content = connection.execute(f"SELECT content FROM {_MANIFEST}").get
        try:
            head = msgspec.json.decode(str(content), type=dict[str, object])
            is_newer = version > SCHEMA_VERSION or head.get("format") != BACKUP_FORMAT
            if not is_newer:
                return msgspec.convert(head, Manifest)
        except msgspec.DecodeError as error:
            raise port.Unavailable(f"The manifest of {self._path} is damaged ({error}).") from error
        raise port.Unavailable(
            f"{self._path} was made by another version of Postroom ({head.get('version')}), in a "
            "format that this one cannot read. Install that version or a newer one to restore it."
        )

    async def find_damage(self) -> str:
        """Read everything; say in a sentence what is wrong, or "" if the backup is whole."""
        return await self._read(self._find_damage)

    def _find_damage(self, connection: apsw.Connection) -> str:
        try:
            found = str(connection.pragma("integrity_check", 1))
            if found != "ok":
                return f"The file is damaged: {found}."
            sums = {part.name: part for part in _sums(connection, self._names)}
        except apsw.Error as error:
            return str(as_storage_error(error, self._path))
        for part in self.manifest.parts:
            now = sums.get(part.name, PartSum(part.name, 0, ""))
            if now != part and (now.count or part.count):
                if now.count == part.count:
                    return f"Entries of {part.name} have changed."
                return f"{part.name} should have {part.count:,} entries but has {now.count:,}."
        return ""

    async def items(self, queue: str) -> list[str]:
        """The bodies of all items of a queue, including those that were hidden."""
        bodies = "SELECT body FROM item WHERE queue = ? ORDER BY id"
        return await self._read(
            lambda connection: [str(body) for (body,) in connection.execute(bodies, (queue,))]
        )

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()

    async def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, query, self._connection)
        except apsw.Error as error:
            raise as_storage_error(error, self._path) from error


class BackupTables:
    """The rows of a backup."""

    def __init__(self, read: ReadInThread, names: tuple[str, ...]) -> None:
        self._read = read
        self._names = frozenset(names)

    async def scan(
        self,
        table: str,
        keys: port.Keys,
        *,
        where: port.Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> port.Page:
        validation.check_scan(self._names, table, keys, where, limit)
        behind = None if after is None else validation.place_of(after, keys)
        found = await self._read(
            partial(read_page, table, keys, where or {}, limit, behind, UNTYPED)
        )
        return port.Page(found.rows, found.next)


class BackupBlobs:
    """The blobs of a backup."""

    def __init__(self, read: ReadInThread) -> None:
        self._read = read

    async def get(self, name: str) -> bytes | None:
        read = "SELECT content FROM blob WHERE name = ?"
        return await self._read(lambda connection: connection.execute(read, (name,)).get)

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]:
        return await self._read(partial(read_blob_names, prefix, after))


def _sums(connection: apsw.Connection, names: port.StorageNames) -> Iterator[PartSum]:
    """Count and sum up every part, in the order of its keys."""
    for table in names.tables:
        yield _summed(table, _pages(table, connection))
    yield _summed(BLOBS, _blobs(connection))
    for queue in names.queues:
        found = connection.execute("SELECT body FROM item WHERE queue = ? ORDER BY id", (queue,))
        yield _summed(queue, ((1, str(body).encode()) for (body,) in found))


def _summed(name: str, contents: Iterator[tuple[int, bytes]]) -> PartSum:
    count = 0
    total = hashlib.sha256()
    for number, content in contents:
        count += number
        total.update(len(content).to_bytes(8, "big"))
        total.update(content)
    return PartSum(name, count, total.hexdigest())


def _pages(table: str, connection: apsw.Connection) -> Iterator[tuple[int, bytes]]:
    """Yield rows as text, many at a time: SQLite and SHA-256 leave the interpreter free."""
    some = (
        f"SELECT partition, key, properties FROM {table} WHERE (partition, key) > (?, ?) "
        f"ORDER BY partition, key LIMIT {_ROWS_PER_STEP}"
    )
    page = f"SELECT count(*), group_concat(json_array(partition, key, properties)) FROM ({some})"
    last = f"SELECT partition, key FROM ({some}) ORDER BY partition DESC, key DESC LIMIT 1"
    behind: tuple[str, ...] | None = ("", "")
    while behind:
        count, text = connection.execute(page, behind).fetchone() or (0, "")
        yield int(count), str(text).encode()
        behind = connection.execute(last, behind).fetchone()


def _blobs(connection: apsw.Connection) -> Iterator[tuple[int, bytes]]:
    for (name,) in connection.execute("SELECT name FROM blob ORDER BY name"):
        content = connection.execute("SELECT content FROM blob WHERE name = ?", (name,)).get
        yield 1, str(name).encode() + b"\0" + bytes(content)
