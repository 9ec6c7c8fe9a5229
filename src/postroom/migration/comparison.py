"""Compare two storages: all rows, all blobs, and the visible items of queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing

import msgspec

from postroom.migration.queue_copy import visible_bodies
from postroom.migration.row_pairs import Checksum, blob_names, row_bytes, row_pairs
from postroom.migration.table_writer import TaskPool
from postroom.records.names import MAIL_QUEUE, QUEUES, TABLES
from postroom.storage.port import Blobs, Storage

BLOBS = "blobs"
PROGRESS_EVERY = 1000
_BLOBS_AT_ONCE = 4  # up to 64 MiB each, from both storages

OnProgress = Callable[[str, int], None]
"""Called regularly with what is being compared and how much of it is done."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One table, one queue or all blobs. A queue has a checksum if all its items are visible."""

    name: str
    source: int
    target: int
    source_sum: str = ""
    target_sum: str = ""
    differences: int = 0
    first: str = ""  # where the first difference is


async def compare(
    source: Storage,
    target: Storage,
    on_progress: OnProgress,
    *,
    copied: Mapping[str, int] | None = None,
) -> list[Comparison]:
    """Read both storages completely; nothing is changed.

    `copied` is how many items were put into each queue of the target; without it the length of the
    source's queue counts, some of which may have been hidden.
    """
    tables = [await compare_table(source, target, table, on_progress) for table in TABLES]
    blobs = await compare_blobs(source.blobs, target.blobs, on_progress)
    queues = [await _compare_queue(source, target, queue, copied) for queue in QUEUES]
    return [*tables, blobs, *queues]


class _Accumulator:
    """Counts and checksums while two storages are read."""

    def __init__(self, name: str, on_progress: OnProgress) -> None:
        self._name = name
        self._on_progress = on_progress
        self._seen = 0
        self._checksums = (Checksum(), Checksum())
        self._differences = 0
        self._first = ""

    def add(self, where: str, source: bytes | None, target: bytes | None) -> None:
        for one, checksum in zip((source, target), self._checksums, strict=True):
            if one is not None:
                checksum.add(one)
        if source != target:
            self._differences += 1
            self._first = self._first or where
        self._seen += 1
        if self._seen % PROGRESS_EVERY == 0:
            self._on_progress(self._name, self._seen)

    def result(self) -> Comparison:
        source, target = self._checksums
        return Comparison(
            name=self._name,
            source=source.count,
            target=target.count,
            source_sum=source.hex,
            target_sum=target.hex,
            differences=self._differences,
            first=self._first,
        )


async def compare_table(
    source: Storage, target: Storage, table: str, on_progress: OnProgress
) -> Comparison:
    sums = _Accumulator(table, on_progress)
    async with aclosing(row_pairs(source.tables, target.tables, table)) as pairs:
        async for pair in pairs:
            here, there = (None if row is None else row_bytes(row) for row in pair)
            sums.add(" / ".join(pair.position), here, there)
    return sums.result()


async def compare_blobs(source: Blobs, target: Blobs, on_progress: OnProgress) -> Comparison:
    sums = _Accumulator(BLOBS, on_progress)
    batch: list[str] = []
    async with aclosing(blob_names(source, target)) as names:
        async for name, _, _ in names:
            batch.append(name)
            if len(batch) == _BLOBS_AT_ONCE:
                await _add_blobs(sums, source, target, batch)
                batch = []
    await _add_blobs(sums, source, target, batch)
    return sums.result()


async def _add_blobs(sums: _Accumulator, source: Blobs, target: Blobs, names: list[str]) -> None:
    """Read several blobs at once, and add them in order."""
    contents: dict[tuple[str, Blobs], bytes | None] = {}

    async def read(name: str, blobs: Blobs) -> None:
        content = await blobs.get(name)
        contents[name, blobs] = None if content is None else name.encode() + b"\0" + content

    async with TaskPool(2 * len(names) + 1) as pool:
        for name in names:
            await pool.start(read(name, source))
            await pool.start(read(name, target))
    for name in names:
        sums.add(name, contents[name, source], contents[name, target])


async def _compare_queue(
    source: Storage, target: Storage, queue: str, copied: Mapping[str, int] | None
) -> Comparison:
    """Count missing items; more in the target than in the source may be an inexact count.

    Only the mail queue may lack some, because the ledgers put delayed items again.
    """
    here = await source.queues.length(queue)
    there = await target.queues.length(queue)
    expected = here if copied is None else copied[queue]
    missing = 0 if copied is None and queue == MAIL_QUEUE else max(0, expected - there)
    sums = [await _checksum_items(storage, queue) for storage in (source, target)]
    is_whole = here == there or queue != MAIL_QUEUE
    is_other = is_whole and all(sums) and sums[0] != sums[1]
    return Comparison(
        name=queue,
        source=here,
        target=there,
        source_sum=sums[0],
        target_sum=sums[1],
        differences=max(missing, int(is_other)),
        first="an item is missing" if missing else "an item differs" if is_other else "",
    )


async def _checksum_items(storage: Storage, queue: str) -> str:
    """Checksum the items in sorted order; empty if not all are visible."""
    bodies = await visible_bodies(storage.queues, queue)
    if bodies is None:
        return ""
    checksum = Checksum()
    for body in bodies:
        checksum.add(body.encode())
    return checksum.hex
