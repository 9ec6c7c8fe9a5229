"""Compare two storages: all rows, all blobs, and the visible items of queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing

import msgspec

from postroom.migration.queue_copy import bodies_that_show
from postroom.migration.row_pairs import Checksum, as_bytes, blob_names, row_pairs
from postroom.migration.table_writer import Flight
from postroom.records.names import MAIL_QUEUE, QUEUES, TABLES
from postroom.storage.port import Blobs, Storage

BLOBS = "blobs"
TOLD_EVERY = 1000
_BLOBS_AT_ONCE = 4  # each may have 64 MiB, twice

Tell = Callable[[str, int], None]
"""Called regularly with what is being compared and how much of it is done."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One table, one queue or all blobs. A queue has a checksum if all its items are visible."""

    name: str
    source: int
    target: int
    source_sum: str = ""
    target_sum: str = ""
    differences: int = 0
    first: str = ""  # where the first difference is


async def compare(
    source: Storage, target: Storage, tell: Tell, *, carried: Mapping[str, int] | None = None
) -> list[Compared]:
    """Read both storages completely; nothing is changed.

    `carried` is how many items were put into each queue of the target; without it the length of the
    source's queue counts, where more may be hidden than could be copied.
    """
    tables = [await compare_table(source, target, table, tell) for table in TABLES]
    blobs = await compare_blobs(source.blobs, target.blobs, tell)
    queues = [await _compare_queue(source, target, queue, carried) for queue in QUEUES]
    return [*tables, blobs, *queues]


class _Tally:
    """Counts and checksums while two storages are read."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell
        self._seen = 0
        self._sums = (Checksum(), Checksum())
        self._differences = 0
        self._first = ""

    def add(self, where: str, source: bytes | None, target: bytes | None) -> None:
        for one, checksum in zip((source, target), self._sums, strict=True):
            if one is not None:
                checksum.add(one)
        if source != target:
            self._differences += 1
            self._first = self._first or where
        self._seen += 1
        if self._seen % TOLD_EVERY == 0:
            self._tell(self._name, self._seen)

    def compared(self) -> Compared:
        source, target = self._sums
        return Compared(
            name=self._name,
            source=source.count,
            target=target.count,
            source_sum=source.hex,
            target_sum=target.hex,
            differences=self._differences,
            first=self._first,
        )


async def compare_table(source: Storage, target: Storage, table: str, tell: Tell) -> Compared:
    tally = _Tally(table, tell)
    async with aclosing(row_pairs(source.tables, target.tables, table)) as pairs:
        async for pair in pairs:
            here, there = (None if row is None else as_bytes(row) for row in pair)
            tally.add(" / ".join(pair.place), here, there)
    return tally.compared()


async def compare_blobs(source: Blobs, target: Blobs, tell: Tell) -> Compared:
    tally, some = _Tally(BLOBS, tell), list[str]()
    async with aclosing(blob_names(source, target)) as names:
        async for name, _, _ in names:
            some.append(name)
            if len(some) == _BLOBS_AT_ONCE:
                await _add_blobs(tally, source, target, some)
                some = []
    await _add_blobs(tally, source, target, some)
    return tally.compared()


async def _add_blobs(tally: _Tally, source: Blobs, target: Blobs, names: list[str]) -> None:
    """Read several blobs at once, and add them in order."""
    contents: dict[tuple[str, Blobs], bytes | None] = {}

    async def read(name: str, blobs: Blobs) -> None:
        content = await blobs.get(name)
        contents[name, blobs] = None if content is None else name.encode() + b"\0" + content

    async with Flight(2 * len(names) + 1) as flight:
        for name in names:
            await flight.start(read(name, source))
            await flight.start(read(name, target))
    for name in names:
        tally.add(name, contents[name, source], contents[name, target])


async def _compare_queue(
    source: Storage, target: Storage, queue: str, carried: Mapping[str, int] | None
) -> Compared:
    """Too many items in the target may be an inexact count; too few are missing.

    Only the mail queue may lack some: delayed items are put again by the ledgers.
    """
    here, there = await source.queues.length(queue), await target.queues.length(queue)
    expected = here if carried is None else carried[queue]
    missing = 0 if carried is None and queue == MAIL_QUEUE else max(0, expected - there)
    sums = [await _sum_of_items(storage, queue) for storage in (source, target)]
    is_whole = here == there or queue != MAIL_QUEUE
    is_other = is_whole and all(sums) and sums[0] != sums[1]
    return Compared(
        name=queue,
        source=here,
        target=there,
        source_sum=sums[0],
        target_sum=sums[1],
        differences=max(missing, int(is_other)),
        first="an item is missing" if missing else "an item is another" if is_other else "",
    )


async def _sum_of_items(storage: Storage, queue: str) -> str:
    """A checksum in any order; empty if not all items are visible."""
    bodies = await bodies_that_show(storage.queues, queue)
    if bodies is None:
        return ""
    checksum = Checksum()
    for body in bodies:
        checksum.add(body.encode())
    return checksum.hex
