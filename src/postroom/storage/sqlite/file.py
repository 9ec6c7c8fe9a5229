"""The SQLite file: its schema, how it is opened, and its errors in plain words."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from postroom.storage import port
from postroom.storage.port import StorageFull, Unavailable

PRIVATE = 0o600  # it holds addresses, password hashes and the installation secret
SCHEMA_VERSION = 1  # in PRAGMA user_version
APPLICATION_ID = 0x706F7374  # "post", in PRAGMA application_id

WAL_BYTES_KEPT = 64 * 1024 * 1024  # a longer log is cut back once it starts over
STATEMENTS_CACHED = 400  # one per table, verb and batch size
VALUE_BYTES_MAX = port.BLOB_BYTES_MAX + 1024 * 1024  # a blob, or a page of rows
PAGES_MAX = 2**32 - 2  # SQLite's own limit
BUSY_PAUSE_S = (0.0002, 0.002)  # random, so that waiting processes do not retry in step

_ROWS = """CREATE TABLE IF NOT EXISTS {name} (
    partition TEXT NOT NULL, key TEXT NOT NULL, etag INTEGER NOT NULL, properties TEXT NOT NULL,
    PRIMARY KEY (partition, key)) WITHOUT ROWID"""
_OTHERS = """CREATE TABLE IF NOT EXISTS item (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, visible_at INTEGER NOT NULL,
    receipt INTEGER NOT NULL, taken INTEGER NOT NULL, body TEXT NOT NULL,
    put_at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS item_in_order ON item (queue, visible_at, id);
CREATE TABLE IF NOT EXISTS queue_time (
    id INTEGER PRIMARY KEY CHECK (id = 1), boot TEXT NOT NULL, offset_us INTEGER NOT NULL,
    seen_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS blob (name TEXT PRIMARY KEY, content BLOB NOT NULL)"""

_OUTAGES = (
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.InterruptError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
)


def as_storage_error(error: apsw.Error, file: Path | str = "The database file") -> Exception:
    """Return the port's error for this one; a bug of ours, such as wrong SQL, stays as it is."""
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{file} cannot grow: the disk is full, or its quota is used up.")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Unavailable(
            f"{file} has been locked by another program for too long; stop that program."
        )
    if isinstance(error, apsw.CorruptError):
        return Unavailable(f"{file} is damaged; restore it from a backup ({error}).")
    if isinstance(error, apsw.NotADBError):
        return Unavailable(f"{file} is not a database; restore it, or choose another file.")
    if isinstance(error, _OUTAGES):
        return Unavailable(f"{file} cannot be read or written ({error}).")
    return error


def open_file(
    path: Path, tables: Sequence[str], busy_timeout_s: float, pages_max: int | None, create: bool
) -> apsw.Connection:
    """Open the file for writing, creating missing tables; Unavailable if it is not ours."""
    if not path.parent.is_dir():
        raise Unavailable(f"{path} cannot be opened: there is no folder {path.parent}.")
    if create:
        _create_private(path)
    try:
        connection = connect(path, busy_timeout_s=busy_timeout_s)
        try:
            _check_owner(connection, path)
            if not create and connection.pragma("application_id") != APPLICATION_ID:
                raise Unavailable(f"{path} is empty: it is not a Postroom storage yet.")
            _use_log(connection, path, time.monotonic() + busy_timeout_s)
            _create_missing(connection, path, tables)
            connection.pragma("max_page_count", pages_max or PAGES_MAX)
        except BaseException:
            connection.close()
            raise
    except _OUTAGES as error:
        raise as_storage_error(error, path) from error
    return connection


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read; SQLite gives its log the same mode.

    We close it before SQLite opens it: closing it later would drop SQLite's locks.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        return
    except OSError as error:
        raise Unavailable(f"{path} cannot be created: {error.strerror}.") from error
    os.fchmod(handle, PRIVATE)
    os.close(handle)


def connect(path: Path, *, busy_timeout_s: float) -> apsw.Connection:
    """Connect to an existing file; commits return only when they are on the disk."""
    connection = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS_CACHED
    )
    connection.set_busy_handler(busy_handler(busy_timeout_s))
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
    connection.pragma("synchronous", "FULL")
    connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
    connection.pragma("wal_autocheckpoint", 0)  # the writer does it between two commits
    return connection


def busy_handler(busy_timeout_s: float) -> Callable[[int], bool]:
    """A busy handler that retries about every millisecond.

    SQLite's own pauses grow to 0.1 s, while others take the lock many times: with four writing
    processes that halves the total throughput, and some of them wait for a second.
    """
    until = 0.0

    def wait(tries: int) -> bool:
        nonlocal until
        now = time.monotonic()
        if tries == 0:
            until = now + busy_timeout_s
        if now >= until:
            return False
        time.sleep(random.uniform(*BUSY_PAUSE_S))
        return True

    return wait


def _check_owner(connection: apsw.Connection, path: Path) -> None:
    owner = connection.pragma("application_id")
    version = connection.pragma("user_version")
    if owner not in (0, APPLICATION_ID) or (owner == 0 and _table_names(connection)):
        raise Unavailable(f"{path} is a database of another program; choose another file.")
    if version > SCHEMA_VERSION:
        raise Unavailable(
            f"{path} was written by a newer Postroom (schema {version}; this one supports "
            f"{SCHEMA_VERSION}). Install that version, or open an older backup."
        )


def _use_log(connection: apsw.Connection, path: Path, until: float) -> None:
    """Switch to the write-ahead log; SQLite ignores the busy handler here, so we retry."""
    while True:
        try:
            mode = connection.pragma("journal_mode", "WAL")
            break
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(BUSY_PAUSE_S[1])
    if mode != "wal":
        raise Unavailable(f"{path} is on a file system that processes cannot share.")


def _create_missing(connection: apsw.Connection, path: Path, tables: Sequence[str]) -> None:
    expected = {*tables, "item", "queue_time", "blob"}
    if connection.pragma("user_version") == SCHEMA_VERSION and expected <= _table_names(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    _check_owner(connection, path)  # another process may have been first
    for name in tables:
        connection.execute(_ROWS.format(name=name))
    connection.execute(_OTHERS)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", SCHEMA_VERSION)
    connection.execute("COMMIT")


def _table_names(connection: apsw.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {str(name) for (name,) in found}
