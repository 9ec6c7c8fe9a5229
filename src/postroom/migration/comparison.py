"""Compare two storages: all rows, all blobs, and the visible items of queues."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from postroom.migration.queue_copy import visible_bodies
from postroom.migration.row_pairs import (
    BlobSource,
    Checksum,
    Contents,
    blob_names,
    row_bytes,
    row_pairs,
)
from postroom.records.names import MAIL_QUEUE, QUEUES, TABLES
from postroom.storage.port import Storage
from postroom.task_pool import TaskPool

BLOBS = "blobs"
PROGRESS_EVERY = 1000
_BLOBS_AT_ONCE = 4  # up to 64 MiB each, from both storages

Element = tuple[str, bytes | None, bytes | None]  # where, and its content in source and target
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

    `copied` is how many items were put into each queue of the target. Without it the length of the
    source's queue counts, which may include items that were hidden.
    """
    parts = await compare_contents(source, target, on_progress)
    queues = [await _compare_queue(source, target, queue, copied) for queue in QUEUES]
    return [*parts, *queues]


async def compare_contents(
    source: Contents, target: Contents, on_progress: OnProgress
) -> list[Comparison]:
    """Compare all rows and blobs."""
    elements = {table: _rows(source, target, table) for table in TABLES}
    elements[BLOBS] = _blobs(source.blobs, target.blobs)
    return [await _compare_elements(*part, on_progress) for part in elements.items()]


async def _compare_elements(
    name: str, elements: AsyncGenerator[Element, None], on_progress: OnProgress
) -> Comparison:
    here = Checksum()
    there = Checksum()
    seen = 0
    differences = 0
    first = ""
    async with aclosing(elements):
        async for where, source, target in elements:
            if source is not None:
                here.add(source)
            if target is not None:
                there.add(target)
            seen += 1
            if source != target:
                differences += 1
                first = first or where
            if seen % PROGRESS_EVERY == 0:
                on_progress(name, seen)
    return Comparison(
        name=name,
        source=here.count,
        target=there.count,
        source_sum=here.hex,
        target_sum=there.hex,
        differences=differences,
        first=first,
    )


async def _rows(source: Contents, target: Contents, table: str) -> AsyncGenerator[Element, None]:
    async with aclosing(row_pairs(source.tables, target.tables, table)) as pairs:
        async for pair in pairs:
            here, there = (None if row is None else row_bytes(row) for row in pair)
            yield " / ".join(pair.position), here, there


async def _blobs(source: BlobSource, target: BlobSource) -> AsyncGenerator[Element, None]:
    """Read several blobs at once, and yield them in order."""
    contents: dict[tuple[str, BlobSource], bytes | None] = {}

    async def read(name: str, blobs: BlobSource) -> None:
        content = await blobs.get(name)
        contents[name, blobs] = None if content is None else name.encode() + b"\0" + content

    async def read_batch(names: list[str]) -> list[Element]:
        async with TaskPool(2 * len(names) + 1) as pool:
            for name in names:
                await pool.start(read(name, source))
                await pool.start(read(name, target))
        return [
            (each, contents.pop((each, source)), contents.pop((each, target))) for each in names
        ]

    batch: list[str] = []
    async with aclosing(blob_names(source, target)) as names:
        async for name, _, _ in names:
            batch.append(name)
            if len(batch) < _BLOBS_AT_ONCE:
                continue
            for element in await read_batch(batch):
                yield element
            batch = []
    for element in await read_batch(batch):
        yield element


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
    checksum = Checksum()
    for body in bodies or []:
        checksum.add(body.encode())
    return "" if bodies is None else checksum.hex
