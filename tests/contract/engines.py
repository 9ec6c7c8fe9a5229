"""The engines that the promises are put to, and the clock they are given."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from postroom.clock import Clock
from postroom.records.names import STORAGE_NAMES
from postroom.storage.azure.storage import AzureStorage
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Keys, Properties, Row, Storage, Tables
from postroom.storage.sqlite.storage import SqliteStorage
from tests.contract.azurite import azurite

_MEMORY = Path("/dev/shm")
# Promises do not need a disk, which takes most of the time; the tests of durability use one.
FILES = _MEMORY if _MEMORY.is_dir() else None
# A page of blob names where it is not a thousand: the emulator needs ten seconds to store so many.
BLOB_PAGE_NAMES = {"azure": 25}
KEY_CHARACTERS = "".join(chr(n) for n in range(0x20, 0x7F) if chr(n) not in "/\\#?")
PAGES_MAX = 5000  # more than any test here can need: a scan that never ends fails


class Follows(Clock, Protocol):
    """A clock that tells others when it is moved."""

    @property
    def followers(self) -> list[Callable[[float], None]]: ...


Engine = Callable[[Follows, Path], AbstractAsyncContextManager[Storage]]


@asynccontextmanager
async def memory(clock: Clock, _folder: Path) -> AsyncIterator[Storage]:
    yield MemoryStorage(clock, STORAGE_NAMES)


@asynccontextmanager
async def memory_with_short_pages(clock: Clock, _folder: Path) -> AsyncIterator[Storage]:
    yield MemoryStorage(clock, STORAGE_NAMES, page_rows=2, empty_first_page=True)


@asynccontextmanager
async def memory_counted(clock: Clock, _folder: Path) -> AsyncIterator[Storage]:
    yield CountingStorage(MemoryStorage(clock, STORAGE_NAMES))


@asynccontextmanager
async def sqlite(clock: Clock, folder: Path) -> AsyncIterator[Storage]:
    storage = await SqliteStorage.open(folder / "contract.db", clock, STORAGE_NAMES)
    try:
        yield storage
    finally:
        await storage.close()


@asynccontextmanager
async def azure(clock: Follows, _folder: Path) -> AsyncIterator[Storage]:
    """Under names of its own: the emulator lasts longer than a test."""
    emulator = azurite()
    clock.followers.append(emulator.move)
    prefix = f"t{secrets.token_hex(6)}"
    names = BLOB_PAGE_NAMES["azure"]
    storage = await AzureStorage.open(
        emulator.account, clock, STORAGE_NAMES, prefix=prefix, page_names=names
    )
    try:
        yield storage
    finally:
        await storage.close()


ENGINES: dict[str, Engine] = {
    "memory": memory,
    "memory-short-pages": memory_with_short_pages,
    "memory-counted": memory_counted,
    "sqlite": sqlite,
    "azure": azure,
}


async def all_rows(
    tables: Tables,
    table: str,
    keys: Keys,
    *,
    where: Properties | None = None,
    limit: int = 1000,
) -> list[Row]:
    """Every row of a scan, page by page."""
    rows: list[Row] = []
    after = None
    for _ in range(PAGES_MAX):
        page = await tables.scan(table, keys, where=where, limit=limit, after=after)
        assert len(page.rows) <= limit
        rows += page.rows
        after = page.next
        if after is None:
            return rows
    raise AssertionError("the scan does not end")
