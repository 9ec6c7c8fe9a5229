"""Batches as rows.

    message / b<hh>-<ref>-<batch> / batch          header: fixes who is in the batch, for good
    message / b<hh>-<ref>-<batch> / to:<key>       a delivery. Never changed, deleted when final
    message / l<hh>-<ref>-<group> / ledger<batch>  where each delivery of a batch stands

<hh> spreads partitions over storage servers. Ledgers stand by the hundred in a partition of their
own, so that the books of a million recipients are read in a hundred calls. Headers and ledgers stay
until the message expires: whoever comes late finds that the number of a batch is taken.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from postroom.domain.delivery import GROUP_BATCHES, Delivery, Ledger
from postroom.records.deliveries import TO, of_row, to_row
from postroom.records.rows import all_rows, from_properties, readable_rows, stored, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import (
    Change,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Replace,
    Tables,
    Upsert,
)

LIVE = "message"
_HEADER, _LEDGER = "batch", "ledger"


class Header(msgspec.Struct, frozen=True):
    """The composition of a batch is what was written first, whatever the audience is now."""

    size: int
    first: str
    last: str


async def write_batches(
    tables: Tables, ref: str, first: int, batches: Sequence[Sequence[Delivery]]
) -> list[Header]:
    """All rows of each batch or none, from number `first` on, and none without those before it.

    Conflict if one was written before.
    """
    headers = [Header(len(each), each[0].key, each[-1].key) for each in batches]
    rows = [
        (partition(ref, first + number), _rows_of(header, deliveries))
        for number, (header, deliveries) in enumerate(zip(headers, batches, strict=True))
    ]
    await tables.batches(LIVE, rows)
    return headers


def _rows_of(header: Header, deliveries: Sequence[Delivery]) -> list[Change]:
    rows: list[Change] = [Insert(_HEADER, to_properties(header))]
    rows += [Insert(TO + delivery.key, to_row(delivery)) for delivery in deliveries]
    return rows


async def find_header(tables: Tables, ref: str, batch: int) -> Header | None:
    row = await tables.get(LIVE, partition(ref, batch), _HEADER)
    return from_properties(row.properties, Header) if row else None


class BatchRows(msgspec.Struct, frozen=True):
    """What stands in a batch's partition. The header's etag guards what was read with it."""

    header: Header | None = None
    etag: str = ""
    deliveries: dict[int, Delivery] = {}


async def load_batch(tables: Tables, ref: str, batch: int) -> BatchRows:
    """Header and deliveries by position."""
    header, etag, deliveries = None, "", {}
    async for row in all_rows(tables, LIVE, KeysWithin(partition(ref, batch))):
        if row.key == _HEADER:
            header, etag = from_properties(row.properties, Header), row.etag
        else:
            delivery = of_row(row)
            deliveries[delivery.position] = delivery
    return BatchRows(header, etag, deliveries)


async def load_deliveries(tables: Tables, ref: str, batch: int) -> dict[int, Delivery]:
    return (await load_batch(tables, ref, batch)).deliveries


async def restore_deliveries(
    tables: Tables, ledger: Ledger, deliveries: Sequence[Delivery]
) -> None:
    """Bring back rows that were deleted when they were final.

    The header is written anew with them, so that a sender that is late in deleting cannot.
    """
    if deliveries:
        header = Header(len(ledger.states), ledger.first, ledger.last)
        rows = [Upsert(TO + delivery.key, to_row(delivery)) for delivery in deliveries]
        rows.append(Upsert(_HEADER, to_properties(header)))
        await tables.batch(LIVE, partition(ledger.ref, ledger.batch), rows)


async def delete_deliveries(tables: Tables, ref: str, batch: int, rows: BatchRows) -> None:
    """In one write, unless somebody was faster or brought them back since they were read.

    The header stays as long as the message: the number of a batch is never used again.
    """
    if rows.header and rows.deliveries:
        changes: list[Change] = [Delete(TO + one.key) for one in rows.deliveries.values()]
        changes.append(Replace(_HEADER, to_properties(rows.header), rows.etag))
        with contextlib.suppress(Conflict):
            await tables.batch(LIVE, partition(ref, batch), changes)


async def delete_batch(tables: Tables, ref: str, batch: int) -> None:
    """All that is left of an expired batch: its header, and rows that a dead sender left."""
    where = partition(ref, batch)
    keys = [row.key async for row in all_rows(tables, LIVE, KeysWithin(where))]
    if keys:
        await tables.batch(LIVE, where, [Delete(key) for key in keys])


async def insert_ledgers(tables: Tables, ledgers: Sequence[Ledger]) -> None:
    """If absent: a ledger that is there already knows more. All of one group in one write."""
    where = _group_partition(ledgers[0].ref, ledgers[0].batch // GROUP_BATCHES)
    rows = [Insert(_ledger_key(ledger.batch), to_properties(ledger)) for ledger in ledgers]
    try:
        await tables.batch(LIVE, where, rows)
    except Conflict:
        for row in rows:
            await _insert_if_absent(tables, where, row)


async def _insert_if_absent(tables: Tables, where: str, row: Insert) -> None:
    try:
        await tables.insert(LIVE, where, row.key, row.properties)
    except Conflict:
        return


async def find_ledger(tables: Tables, ref: str, batch: int) -> Stored[Ledger] | None:
    row = await tables.get(LIVE, *_ledger_keys(ref, batch))
    return stored(row, Ledger) if row else None


async def replace_ledger(tables: Tables, ledger: Ledger, etag: str) -> str:
    """The new etag; Conflict if another sender has taken the batch."""
    keys = _ledger_keys(ledger.ref, ledger.batch)
    return await tables.replace(LIVE, *keys, to_properties(ledger), etag)


async def load_group(tables: Tables, ref: str, group: int) -> list[Stored[Ledger]]:
    """The ledgers of a group in order, at most GROUP_BATCHES, with their etags."""
    rows = all_rows(tables, LIVE, KeysWithin(_group_partition(ref, group)))
    return [stored(row, Ledger) async for row in rows]


async def readable_ledgers(tables: Tables, ref: str, group: int) -> AsyncIterator[Stored[Ledger]]:
    """As `load_group`, but for who can do without those that cannot be read."""
    where = KeysWithin(_group_partition(ref, group))
    async for ledger, row in readable_rows(tables, LIVE, where, Ledger):
        yield Stored(ledger, row.etag)


async def delete_group(tables: Tables, ref: str, group: int) -> None:
    where = _group_partition(ref, group)
    keys = [row.key async for row in all_rows(tables, LIVE, KeysWithin(where))]
    if keys:
        await tables.batch(LIVE, where, [Delete(key) for key in keys])


def groups(batches: int) -> Iterable[int]:
    return range(-(-batches // GROUP_BATCHES))


def partition(ref: str, batch: int) -> str:
    return f"b{_spread(ref, batch)}-{ref}-{batch:07d}"


def _group_partition(ref: str, group: int) -> str:
    return f"l{_spread(ref, group)}-{ref}-{group:05d}"


def _ledger_keys(ref: str, batch: int) -> tuple[str, str]:
    return _group_partition(ref, batch // GROUP_BATCHES), _ledger_key(batch)


def _ledger_key(batch: int) -> str:
    return f"{_LEDGER}{batch:07d}"


def _spread(ref: str, number: int) -> str:
    return f"{zlib.crc32(f'{ref}-{number}'.encode()) & 0xFF:02x}"
