"""Read two storages together in key order, with a page or two of each in memory.

Leases and the row of the migration are skipped, because they belong to one storage alone.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from postroom.migration import state
from postroom.storage.port import (
    KEY_CHARS_MAX,
    Keys,
    KeysAcross,
    KeysWithin,
    Page,
    Row,
    Storage,
)

# Rows of one storage alone, by table and partition.
OWN_ROWS = {("service", "lease"), (state.TABLE, state.PARTITION)}
_LOWEST = " "  # the lowest character in keys: a key with this appended is the next possible key

T = TypeVar("T")
Position = tuple[str, str]  # partition, key
PageReader = Callable[[str | None], Coroutine[Any, Any, tuple[list[T], str | None]]]
_encode = msgspec.json.Encoder().encode


class RowSource(Protocol):
    """Tables, as far as they are read here: those of a storage or of a backup."""

    async def scan(self, table: str, keys: Keys, *, after: str | None = None) -> Page: ...


class BlobSource(Protocol):
    """Blobs, as far as they are read here: those of a storage or of a backup."""

    async def get(self, name: str) -> bytes | None: ...

    async def list(
        self, prefix: str = "", *, after: str | None = None
    ) -> tuple[builtins.list[str], str | None]: ...


class Contents(Protocol):
    """What a storage is filled from: another one, or a backup."""

    @property
    def tables(self) -> RowSource: ...
    @property
    def blobs(self) -> BlobSource: ...


class Pair(NamedTuple):
    """The rows with one partition and key in both storages."""

    source: Row | None
    target: Row | None

    @property
    def position(self) -> Position:
        row = self.source or self.target
        assert row
        return row.partition, row.key

    @property
    def is_equal(self) -> bool:
        source, target = self
        return source is not None and target is not None and row_bytes(source) == row_bytes(target)


class Checksum:
    """A count and a SHA-256 of rows or blobs in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, one: bytes) -> None:
        self.count += 1
        self._hash.update(len(one).to_bytes(8, "big"))
        self._hash.update(one)

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


def row_bytes(row: Row) -> bytes:
    """Encode a row alike on every engine; 1, 1.0, true and "1" differ."""
    return _encode((row.partition, row.key, sorted(row.properties.items())))


async def row_pairs(
    source: RowSource, target: RowSource, table: str, after: Position | None = None
) -> AsyncGenerator[Pair, None]:
    """Yield a pair for every key after `after` that has a row in either storage."""
    async with (
        aclosing(_rows(source, table, after)) as here,
        aclosing(_rows(target, table, after)) as there,
        aclosing(_merge(here, there, _position)) as pairs,
    ):
        async for pair in pairs:
            yield Pair(*pair)


async def blob_names(
    source: BlobSource, target: BlobSource
) -> AsyncGenerator[tuple[str, bool, bool], None]:
    """Yield all names, and whether each is in the source and in the target."""
    async with (
        aclosing(_read_ahead(lambda after: source.list(after=after))) as here,
        aclosing(_read_ahead(lambda after: target.list(after=after))) as there,
        aclosing(_merge(here, there, str)) as pairs,
    ):
        async for left, right in pairs:
            yield left or right or "", left is not None, right is not None


async def is_empty(storage: Storage, tables: tuple[str, ...], queues: tuple[str, ...]) -> bool:
    for table in tables:
        async with aclosing(_rows(storage.tables, table, None)) as rows:
            if await anext(rows, None) is not None:
                return False
    for queue in queues:
        if await storage.queues.length(queue):
            return False
    async with aclosing(_read_ahead(lambda after: storage.blobs.list(after=after))) as names:
        return await anext(names, None) is None


async def _rows(tables: RowSource, table: str, after: Position | None) -> AsyncGenerator[Row, None]:
    """Read the rows of a table, except those that belong to one storage alone."""

    async def read_page(keys: Keys, cursor: str | None) -> tuple[list[Row], str | None]:
        page = await tables.scan(table, keys, after=cursor)
        rows = [row for row in page.rows if after is None or _position(row) > after]
        return [row for row in rows if (table, row.partition) not in OWN_ROWS], page.next

    for keys in _ranges_after(after):
        async with aclosing(_read_ahead(partial(read_page, keys))) as rows:
            async for row in rows:
                yield row


def _ranges_after(after: Position | None) -> list[Keys]:
    """Ranges with everything after a position, and hardly more."""
    if after is None:
        return [KeysAcross()]
    partition, key = after
    if len(partition) == KEY_CHARS_MAX:
        return [KeysAcross(partition)]
    return [KeysWithin(partition, key), KeysAcross(partition + _LOWEST)]


async def _read_ahead(read_page: PageReader[T]) -> AsyncGenerator[T, None]:
    """Yield the elements of all pages; the next page is read while this one is used."""
    coming: asyncio.Task[tuple[list[T], str | None]] | None = asyncio.create_task(read_page(None))
    try:
        while coming:
            page, cursor = await coming
            coming = None if cursor is None else asyncio.create_task(read_page(cursor))
            for each in page:
                yield each
    finally:
        if coming:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def _merge(
    here: AsyncIterator[T], there: AsyncIterator[T], key: Callable[[Any], Any]
) -> AsyncGenerator[tuple[T | None, T | None], None]:
    """Yield both in key order, as pairs where the keys are equal."""
    left = await anext(here, None)
    right = await anext(there, None)
    while left is not None or right is not None:
        if right is None or (left is not None and key(left) < key(right)):
            yield left, None
            left = await anext(here, None)
        elif left is None or key(right) < key(left):
            yield None, right
            right = await anext(there, None)
        else:
            yield left, right
            left = await anext(here, None)
            right = await anext(there, None)


def _position(row: Row) -> Position:
    return row.partition, row.key
