"""Read two storages together in key order, with a page or two of each in memory.

Leases and the row of the migration belong to one storage alone: they are skipped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import msgspec

from postroom.migration import state
from postroom.storage.port import (
    KEY_CHARS_MAX,
    Blobs,
    Keys,
    KeysAcross,
    KeysWithin,
    Row,
    Storage,
    Tables,
)

_STAY = {("service", "lease"), (state.TABLE, state.PARTITION)}
_LOWEST = " "  # of all characters in a key: a key with this added is the next possible key

T = TypeVar("T")
Place = tuple[str, str]  # partition, key
Pages = Callable[[str | None], Awaitable[tuple[list[T], str | None]]]
_encode = msgspec.json.Encoder().encode


class Pair(NamedTuple):
    """The rows with one partition and key in both storages."""

    source: Row | None
    target: Row | None

    @property
    def place(self) -> Place:
        row = self.source or self.target
        assert row
        return row.partition, row.key

    @property
    def is_equal(self) -> bool:
        source, target = self
        return source is not None and target is not None and as_bytes(source) == as_bytes(target)


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


def as_bytes(row: Row) -> bytes:
    """The same for the same keys and properties on every engine; 1, 1.0, true and "1" differ."""
    return _encode((row.partition, row.key, sorted(row.properties.items())))


async def row_pairs(
    source: Tables, target: Tables, table: str, after: Place | None = None
) -> AsyncGenerator[Pair, None]:
    """All places of the table after `after` that have a row in either storage."""
    async with (
        aclosing(_rows(source, table, after)) as here,
        aclosing(_rows(target, table, after)) as there,
        aclosing(_merged(here, there, _place)) as pairs,
    ):
        async for pair in pairs:
            yield Pair(*pair)


async def blob_names(source: Blobs, target: Blobs) -> AsyncGenerator[tuple[str, bool, bool], None]:
    """All names in either storage, and whether each is in the source and in the target."""
    async with (
        aclosing(_each(lambda after: source.list(after=after))) as here,
        aclosing(_each(lambda after: target.list(after=after))) as there,
        aclosing(_merged(here, there, str)) as pairs,
    ):
        async for mine, theirs in pairs:
            yield mine or theirs or "", mine is not None, theirs is not None


async def is_empty(storage: Storage, tables: tuple[str, ...], queues: tuple[str, ...]) -> bool:
    for table in tables:
        async with aclosing(_rows(storage.tables, table, None)) as rows:
            if await anext(rows, None) is not None:
                return False
    for queue in queues:
        if await storage.queues.length(queue):
            return False
    async with aclosing(_each(lambda after: storage.blobs.list(after=after))) as names:
        return await anext(names, None) is None


async def _rows(tables: Tables, table: str, after: Place | None) -> AsyncGenerator[Row, None]:
    """The rows of a table, without those that belong to one storage alone."""
    for keys in _behind(after):
        async with aclosing(_each(_pages(tables, table, keys, after))) as rows:
            async for row in rows:
                yield row


def _behind(after: Place | None) -> list[Keys]:
    """Ranges with everything after a place, and hardly more."""
    if after is None:
        return [KeysAcross()]
    partition, key = after
    if len(partition) == KEY_CHARS_MAX:
        return [KeysAcross(partition)]
    return [KeysWithin(partition, key), KeysAcross(partition + _LOWEST)]


def _pages(tables: Tables, table: str, keys: Keys, after: Place | None) -> Pages[Row]:
    def is_wanted(row: Row) -> bool:
        is_new = after is None or _place(row) > after
        return is_new and (table, row.partition) not in _STAY

    async def page(mark: str | None) -> tuple[list[Row], str | None]:
        found = await tables.scan(table, keys, after=mark)
        return list(filter(is_wanted, found.rows)), found.next

    return page


async def _each(pages: Pages[T]) -> AsyncGenerator[T, None]:
    """One after the other; the next page is read while this one is used."""
    coming: asyncio.Task[tuple[list[T], str | None]] | None = _begun(pages, None)
    try:
        while coming:
            page, after = await coming
            coming = None if after is None else _begun(pages, after)
            for each in page:
                yield each
    finally:
        if coming:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _begun(pages: Pages[T], after: str | None) -> asyncio.Task[tuple[list[T], str | None]]:
    async def page() -> tuple[list[T], str | None]:
        return await pages(after)

    return asyncio.create_task(page())


async def _merged(
    here: AsyncIterator[T], there: AsyncIterator[T], key: Callable[[Any], Any]
) -> AsyncGenerator[tuple[T | None, T | None], None]:
    """Both in their common order, as pairs where the keys are equal."""
    left, right = await anext(here, None), await anext(there, None)
    while left is not None or right is not None:
        if right is None or (left is not None and key(left) < key(right)):
            yield left, None
            left = await anext(here, None)
        elif left is None or key(right) < key(left):
            yield None, right
            right = await anext(there, None)
        else:
            yield left, right
            left, right = await anext(here, None), await anext(there, None)


def _place(row: Row) -> Place:
    return row.partition, row.key
