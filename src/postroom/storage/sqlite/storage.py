"""The embedded engine: one SQLite file, shared by the processes of one machine.

Writes go through the group writer. Small reads run on the event loop itself, because switching to
a thread costs twenty times a point read; longer reads run in a reader thread. Statements return
their result in a single step where possible: each step releases the interpreter lock, and a busy
event loop gives it back only milliseconds later.
"""

from __future__ import annotations

import asyncio
import builtins
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from postroom.clock import Clock, boot_id
from postroom.storage import port, validation
from postroom.storage.queue_time import (
    SECOND_US,
    Clocks,
    QueueTime,
    from_queue_time,
    queue_time,
    read_clocks,
)
from postroom.storage.sqlite.file import as_storage_error, connect, open_file
from postroom.storage.sqlite.file_watch import CHECK_EVERY_S, FileWatch
from postroom.storage.sqlite.rows import (
    UNTYPED,
    RowReader,
    RowsRead,
    RowT,
    apply_changes,
    read_page,
    read_row,
    reader_of,
)
from postroom.storage.sqlite.writer import GroupWriter

BUSY_TIMEOUT_S = 10.0  # how long a call waits for the writers of other processes

_VISIBLE = "FROM item WHERE queue = ?1 AND visible_at <= ?2 ORDER BY visible_at, id LIMIT ?3"

T = TypeVar("T")


class SqliteStorage:
    """One open file. Close it in the event loop that opened it."""

    def __init__(
        self, writer: GroupWriter, reader: Reader, clock: Clock, names: port.StorageNames
    ) -> None:
        self.tables = SqliteTables(writer, reader, names.tables)
        self.queues = SqliteQueues(writer, reader, clock, names.queues)
        self.blobs = SqliteBlobs(writer, reader)
        self.troubles = port.Troubles()
        self.writer = writer
        self._reader = reader
        self._clock = clock
        writer.on_full = self._note_full

    @property
    def commits(self) -> int:
        return self.writer.commits

    def _note_full(self) -> None:
        """Called in the writer's thread."""
        self.troubles = port.Troubles(full_at=self._clock.now().timestamp())

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Clock,
        names: port.StorageNames,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        pages_max: int | None = None,
        create: bool = True,
        check_every_s: float = CHECK_EVERY_S,
    ) -> SqliteStorage:
        """Open the file; Unavailable, with a reason, if it is missing or not ours.

        `create` creates a missing file, readable only by its owner. `pages_max` limits the size
        of the file, in pages of 4 KiB. Reads check every `check_every_s` that the file exists.
        """
        connection = await asyncio.to_thread(
            open_file, path, names.tables, busy_timeout_s, pages_max, create
        )
        try:
            watch = FileWatch(path, every_s=check_every_s)
            reader = Reader(path, busy_timeout_s, watch)
        except BaseException:
            connection.close()
            raise
        writer = GroupWriter(connection, watch, asyncio.get_running_loop(), busy_timeout_s)
        return cls(writer, reader, clock, names)

    async def close(self) -> None:
        await self._reader.close()
        await self.writer.close()


class Reader:
    """Two connections for reading: one for the event loop, one for a thread."""

    def __init__(self, path: Path, busy_timeout_s: float, watch: FileWatch) -> None:
        self._on_loop = connect(path, busy_timeout_s=0)  # it must not block
        self._in_thread = connect(path, busy_timeout_s=busy_timeout_s)
        watch.check()  # both connections opened the same file
        self._watch = watch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-reader")
        self._is_closed = False

    async def on_loop(self, query: Callable[[apsw.Connection], T]) -> T:
        """Run a query that takes microseconds."""
        self._check_open()
        try:
            return query(self._on_loop)
        except (apsw.BusyError, apsw.LockedError):  # rare in WAL mode: the file is being recovered
            return await self.in_thread(query)
        except apsw.Error as error:
            raise as_storage_error(error) from error

    async def in_thread(self, query: Callable[[apsw.Connection], T]) -> T:
        """Run a query that takes milliseconds."""
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, query, self._in_thread)
        except apsw.Error as error:
            raise as_storage_error(error) from error

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._on_loop.close()
        self._in_thread.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise port.Unavailable("The storage is closed.")
        self._watch.check_now_and_then()


class SqliteTables(port.Tables):
    def __init__(self, writer: GroupWriter, reader: Reader, names: Sequence[str]) -> None:
        self._writer = writer
        self._reader = reader
        self._names = frozenset(names)

    async def get(self, table: str, partition: str, key: str) -> port.Row | None:
        validation.check_row(self._names, table, partition, key)
        return await self._reader.on_loop(partial(read_row, table, partition, key))

    async def batch(self, table: str, partition: str, changes: Sequence[port.Change]) -> list[str]:
        etag = _new_number()
        await self._writer.submit(self._writing(table, partition, changes, etag))
        return _etags(changes, etag)

    async def batches(self, batches: Sequence[port.Batch]) -> list[list[str]]:
        """All in one transaction; the first refusal ends it, and keeps the batches before it."""
        etag = _new_number()
        writings = [self._writing(*batch, etag) for batch in batches]

        def write(connection: apsw.Connection) -> None:
            for writing in writings:
                writing(connection)

        if writings:
            await self._writer.submit(write)
        return [_etags(changes, etag) for _, _, changes in batches]

    def _writing(
        self, table: str, partition: str, changes: Sequence[port.Change], etag: int
    ) -> Callable[[apsw.Connection], None]:
        """A batch, checked and encoded, to be written inside a transaction."""
        encoded = validation.encode_batch(self._names, table, partition, changes)
        return partial(apply_changes, table, partition, tuple(changes), encoded, etag)

    async def scan(
        self,
        table: str,
        keys: port.Keys,
        *,
        where: port.Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> port.Page:
        page = await self._read(UNTYPED, table, keys, where, limit, after)
        return port.Page(page.rows, page.next)

    async def scan_as(
        self,
        kind: type[port.KindT],
        table: str,
        keys: port.Keys,
        *,
        where: port.Properties | None = None,
        limit: int = port.SCAN_ROWS_MAX,
        after: str | None = None,
    ) -> port.TypedPage[port.KindT]:
        try:
            page = await self._read(reader_of(kind), table, keys, where, limit, after)
        except msgspec.DecodeError as error:
            raise port.Unreadable(f"A row is not a complete {kind.__name__}: {error}.") from error
        return port.TypedPage(page.rows, page.next)

    async def _read(
        self,
        reader: RowReader[RowT],
        table: str,
        keys: port.Keys,
        where: port.Properties | None,
        limit: int,
        after: str | None,
    ) -> RowsRead[RowT]:
        validation.check_scan(self._names, table, keys, where, limit)
        behind = None if after is None else validation.place_of(after, keys)

        def query(connection: apsw.Connection) -> RowsRead[RowT]:
            return read_page(table, keys, where or {}, limit, behind, reader, connection)

        if where or limit > port.SHORT_SCAN_ROWS:  # it would block the event loop for over 0.3 ms
            return await self._reader.in_thread(query)
        return await self._reader.on_loop(query)


class SqliteQueues:
    """All items are in one table; every claim, extension and release gives a new random receipt."""

    def __init__(
        self, writer: GroupWriter, reader: Reader, clock: Clock, names: Sequence[str]
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._names = frozenset(names)
        self._clock = clock
        self._boot = boot_id()

    async def put(self, queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        validation.check_put(self._names, queue, bodies, delay_s)
        if not bodies:
            return
        clocks = self._clocks()

        def insert(connection: apsw.Connection) -> None:
            put_at = _queue_now(clocks, connection)
            visible_at = put_at + round(delay_s * SECOND_US)
            connection.executemany(
                "INSERT INTO item (queue, visible_at, receipt, taken, body, put_at) "
                "VALUES (?, ?, 0, 0, ?, ?)",
                [(queue, visible_at, body, put_at) for body in bodies],
            )

        await self._writer.submit(insert)

    async def claim(self, queue: str, *, limit: int, lease_s: float) -> list[port.Claim]:
        validation.check_claim(self._names, queue, limit, lease_s)
        # An idle service polls all the time: do not take the write lock of the file for nothing.
        if not await self.peek(queue, limit=1):
            return []
        clocks = self._clocks()

        def claim(connection: apsw.Connection) -> list[port.Claim]:
            """Read, then mark: RETURNING gives the items in no defined order."""
            receipt = str(_new_number())
            now_us = _queue_now(clocks, connection)
            values = (queue, now_us, limit)
            found = connection.execute(f"SELECT id, body, taken {_VISIBLE}", values)
            claims = [
                port.Claim(queue, str(item), receipt, body, taken + 1)
                for item, body, taken in found
            ]
            connection.execute(
                "UPDATE item SET visible_at = ?4, receipt = ?5, taken = taken + 1 "
                f"WHERE id IN (SELECT id {_VISIBLE})",
                (*values, now_us + round(lease_s * SECOND_US), int(receipt)),
            )
            return claims

        return await self._writer.submit(claim)

    async def extend(self, claim: port.Claim, *, lease_s: float) -> port.Claim:
        validation.check_lease(lease_s)
        receipt = await self._hide(claim, lease_s)
        return port.Claim(claim.queue, claim.item, str(receipt), claim.body, claim.taken)

    async def complete(self, claim: port.Claim) -> None:
        validation.check_queue(self._names, claim.queue)
        await self._writer.submit(partial(_change_claimed, claim, "DELETE FROM item", ()))

    async def release(self, claim: port.Claim, *, delay_s: float = 0.0) -> None:
        validation.check_delay(delay_s)
        await self._hide(claim, delay_s)

    async def length(self, queue: str) -> int:
        validation.check_queue(self._names, queue)
        count = "SELECT count(*) FROM item WHERE queue = ?"
        return await self._reader.in_thread(lambda each: int(each.execute(count, (queue,)).get))

    async def peek(self, queue: str, *, limit: int = port.CLAIM_ITEMS_MAX) -> list[port.Item]:
        validation.check_peek(self._names, queue, limit)
        clocks = self._clocks()

        def read(connection: apsw.Connection) -> list[port.Item]:
            visible_at, _ = queue_time(_stored_time(connection), clocks)
            found = connection.execute(
                f"SELECT body, taken, id, put_at {_VISIBLE}", (queue, visible_at, limit)
            )
            return [
                port.Item(body, taken, str(item), from_queue_time(put_at))
                for body, taken, item, put_at in found
            ]

        return await self._reader.on_loop(read)

    def _clocks(self) -> Clocks:
        return read_clocks(self._clock, self._boot)

    async def _hide(self, claim: port.Claim, hidden_s: float) -> int:
        """Hide the item for `hidden_s`, and return its new receipt."""
        validation.check_queue(self._names, claim.queue)
        receipt = _new_number()
        clocks = self._clocks()

        def update(connection: apsw.Connection) -> None:
            hidden_until = _queue_now(clocks, connection) + round(hidden_s * SECOND_US)
            change = "UPDATE item SET visible_at = ?, receipt = ?"
            _change_claimed(claim, change, (hidden_until, receipt), connection)

        await self._writer.submit(update)
        return receipt


class SqliteBlobs:
    def __init__(self, writer: GroupWriter, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, name: str, content: bytes) -> None:
        validation.check_blob(name, content)
        values = (name, bytes(content))
        write = "REPLACE INTO blob (name, content) VALUES (?, ?)"
        await self._writer.submit(lambda connection: connection.execute(write, values))

    async def get(self, name: str) -> bytes | None:
        validation.check_blob(name)
        read = "SELECT content FROM blob WHERE name = ?"
        return await self._reader.in_thread(lambda each: each.execute(read, (name,)).get)

    async def delete(self, name: str) -> None:
        validation.check_blob(name)
        delete = "DELETE FROM blob WHERE name = ?"
        await self._writer.submit(lambda connection: connection.execute(delete, (name,)))

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]:
        return await self._reader.in_thread(partial(read_blob_names, prefix, after))


def read_blob_names(
    prefix: str, after: str | None, connection: apsw.Connection
) -> tuple[list[str], str | None]:
    """A page of names, and the last of them if there are more."""
    found = connection.execute(
        "SELECT name FROM blob WHERE name >= ? AND name < ? AND name > ? ORDER BY name LIMIT ?",
        # No name has a character that sorts after "~". The extra name shows if more follow.
        (prefix, prefix + "\x7f", after or "", port.BLOB_NAMES_MAX + 1),
    )
    names = [str(name) for (name,) in found]
    page = names[: port.BLOB_NAMES_MAX]
    return page, page[-1] if len(names) > len(page) else None


def _etags(changes: Sequence[port.Change], etag: int) -> list[str]:
    new = str(etag)
    return ["" if type(change) in validation.DELETIONS else new for change in changes]


def _new_number() -> int:
    """Return a unique etag or receipt.

    A counter would cost a write, and a seeded generator could repeat itself in another process.
    """
    return secrets.randbits(62) + 1


def _stored_time(connection: apsw.Connection) -> QueueTime | None:
    found = connection.execute("SELECT boot, offset_us, seen_us FROM queue_time").fetchone()
    return QueueTime(*found) if found else None


def _queue_now(clocks: Clocks, connection: apsw.Connection) -> int:
    """Return the time of the queues and store it if it changed; for a transaction that writes."""
    stored = _stored_time(connection)
    now_us, new = queue_time(stored, clocks)
    if new != stored:
        connection.execute("REPLACE INTO queue_time VALUES (1, ?, ?, ?)", new)
    return now_us


def _change_claimed(
    claim: port.Claim, change: str, values: tuple[int, ...], connection: apsw.Connection
) -> None:
    """Change the item if the claim still holds it; otherwise ClaimLost."""
    connection.execute(
        f"{change} WHERE id = ? AND receipt = ? AND queue = ?",
        (*values, int(claim.item), int(claim.receipt), claim.queue),
    )
    if connection.changes() == 0:
        raise port.ClaimLost(f"the claim on item {claim.item} of {claim.queue} is stale")
