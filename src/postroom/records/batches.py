"""Batches as rows.

    message / b<hh>-<ref>-<batch> / batch          header: fixes who is in the batch, and has what
                                                   its deliveries have in common
    message / b<hh>-<ref>-<batch> / to:<key>       a delivery: never changed, deleted when final
    message / l<hh>-<ref>-<group> / ledger<batch>  the state of each delivery of a batch

<hh> spreads partitions over storage servers. A hundred ledgers share a separate partition, so
that the books of a million recipients are read in a hundred calls. Headers and ledgers stay until
the message expires, so that the number of a batch is never used twice.
Batches are written in the order of address keys, so that a few headers lead to any address.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from postroom.domain.delivery import GROUP_BATCHES, Delivery, Ledger
from postroom.domain.message import Message
from postroom.records.deliveries import (
    TO,
    DeliveryRow,
    of_row,
    parse_attributes,
    property_name,
    to_row,
)
from postroom.records.rows import (
    FORMAT,
    Unreadable,
    all_rows,
    all_typed_rows,
    delete_partition,
    from_properties,
    property_names,
    readable_rows,
    stored,
    to_properties,
)
from postroom.records.stored import Stored
from postroom.storage.port import (
    Batch,
    Change,
    Conflict,
    DeleteRange,
    FlatRow,
    Insert,
    KeysWithin,
    Replace,
    Tables,
    TypedRow,
    Upsert,
)

LIVE = "message"
ARCHIVE = "messagearchive"
_HEADER, _LEDGER = "batch", "ledger"
_AFTER_TO = "to;"  # the next key after all that begin with TO


class Header(msgspec.Struct, frozen=True):
    """The recipients of a batch, as they were first written, and what their deliveries share."""

    size: int
    first: str  # address key
    last: str
    ref: str
    subject: str
    list_name: str
    sender: str
    due_at: datetime | None = None


def header_of(message: Message, *, size: int, first: str, last: str) -> Header:
    shared = (message.ref, message.subject, message.list_name, message.sender, message.due_at)
    return Header(size, first, last, *shared)


class QueuedRecipient(Protocol):
    """Somebody who gets a delivery, with the position in the batch."""

    @property
    def key(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def guid(self) -> str: ...
    @property
    def attributes(self) -> str:
        """As JSON."""


async def write_batches(
    tables: Tables, message: Message, batches: Sequence[Sequence[QueuedRecipient]]
) -> list[Header]:
    """Write the next batches of a message in order, all rows of each or none.

    Conflict if one of them exists.
    """
    headers = [
        header_of(message, size=len(each), first=each[0].key, last=each[-1].key) for each in batches
    ]
    rows: list[Batch] = []
    for number, (header, people) in enumerate(zip(headers, batches, strict=True)):
        inserts: list[Change] = [Insert(_HEADER, to_properties(header))]
        inserts += [
            Insert(TO + one.key, DeliveryRow(at, one.address, one.guid, one.attributes))
            for at, one in enumerate(people)
        ]
        rows.append((LIVE, partition(message.ref, message.batches + number), inserts))
    await tables.batches(rows)
    return headers


async def find_header(tables: Tables, ref: str, batch: int) -> Header | None:
    row = await tables.get(LIVE, partition(ref, batch), _HEADER)
    return from_properties(row.properties, Header) if row else None


async def find_batch_of(tables: Tables, message: Message, key: str) -> int | None:
    """Find the batch with the delivery for an address key; None if no counted batch has one.

    This is a binary search over headers, 14 reads for a million recipients.
    """
    low = 0
    high = message.batches
    while low < high:
        middle = (low + high) // 2
        header = await find_header(tables, message.ref, middle)
        if header is None or header.last < key:  # without a header, the batch has expired
            low = middle + 1
        elif key < header.first:
            high = middle
        else:
            where = partition(message.ref, middle)
            found = await tables.get(LIVE, where, TO + key)
            found = found or await tables.get(ARCHIVE, where, TO + key)
            return middle if found else None  # no row is for exactly this address
    return None


class BatchRows(msgspec.Struct, frozen=True):
    """The rows of a batch's partition; the header's etag guards all of them."""

    header: Header | None = None
    etag: str = ""
    deliveries: dict[int, Delivery] = {}


_header_names = property_names(Header)


class _BatchRow(
    FlatRow,
    frozen=True,
    omit_defaults=True,
    rename=lambda field: _header_names.get(field) or property_name(field),
):
    """A row of either kind, as it is read."""

    format: int = FORMAT
    position: int | None = None  # and the next two: of every delivery
    address: str | None = None
    guid: str | None = None
    attributes: str = ""
    size: int | None = None  # and the rest: of the header
    first: str | None = None
    last: str | None = None
    ref: str | None = None
    subject: str | None = None
    list_name: str | None = None
    sender: str | None = None
    due_at: str | None = None


async def load_batch(tables: Tables, ref: str, batch: int) -> BatchRows:
    """Header and deliveries by position."""
    keys = KeysWithin(partition(ref, batch))
    try:
        return _of_typed_rows(await all_typed_rows(tables, LIVE, keys, _BatchRow))
    except Unreadable:
        # Read row by row, which forgives more, such as a number written as text, and else says
        # what is wrong.
        return await _load_row_by_row(tables, keys)


def _of_typed_rows(rows: Iterable[TypedRow[_BatchRow]]) -> BatchRows:
    header, etag, deliveries = None, "", {}
    for row in rows:
        found = row.properties
        if found.format != FORMAT:
            raise Unreadable("a row of another format")
        if row.key == _HEADER:
            header, etag = from_properties(msgspec.to_builtins(found), Header), row.etag
        elif found.position is None or found.address is None or found.guid is None:
            raise Unreadable("not a delivery")
        else:
            deliveries[found.position] = Delivery(
                found.position,
                row.key[len(TO) :],
                found.address,
                found.guid,
                parse_attributes(found.attributes) if found.attributes else {},
            )
    return BatchRows(header, etag, deliveries)


async def _load_row_by_row(tables: Tables, keys: KeysWithin) -> BatchRows:
    header, etag, deliveries = None, "", {}
    async for row in all_rows(tables, LIVE, keys):
        if row.key == _HEADER:
            header, etag = from_properties(row.properties, Header), row.etag
        else:
            delivery = of_row(row)
            deliveries[delivery.position] = delivery
    return BatchRows(header, etag, deliveries)


async def load_deliveries(tables: Tables, ref: str, batch: int) -> dict[int, Delivery]:
    return (await load_batch(tables, ref, batch)).deliveries


async def restore_deliveries(
    tables: Tables, message: Message, ledger: Ledger, deliveries: Sequence[Delivery]
) -> None:
    """Restore rows that were deleted when they became final.

    The header is written with them, so that a delayed sender cannot delete them again.
    """
    if deliveries:
        header = header_of(message, size=len(ledger.states), first=ledger.first, last=ledger.last)
        rows: list[Change] = [Upsert(TO + one.key, to_row(one)) for one in deliveries]
        rows.append(Upsert(_HEADER, to_properties(header)))
        await tables.batch(LIVE, partition(ledger.ref, ledger.batch), rows)


async def delete_deliveries(tables: Tables, ref: str, batch: int, rows: BatchRows) -> None:
    """Delete the deliveries in one write, unless they have been deleted or restored since.

    The header stays as long as the message, so that the number of a batch is never used again.
    """
    with contextlib.suppress(Conflict):
        await tables.batches(deletion_of(ref, batch, rows))


def deletion_of(ref: str, batch: int, rows: BatchRows) -> list[Batch]:
    """The write of `delete_deliveries`; none if there is nothing to delete."""
    if rows.header is None or not rows.deliveries:
        return []
    keys = tuple(TO + one.key for one in rows.deliveries.values())
    changes: list[Change] = [
        DeleteRange(TO, _AFTER_TO, keys),  # all rows but the header, whose etag guards them
        Replace(_HEADER, to_properties(rows.header), rows.etag),
    ]
    return [(LIVE, partition(ref, batch), changes)]


async def delete_batch(tables: Tables, ref: str, batch: int) -> None:
    """Delete the rest of an expired batch: its header, and any rows of a sender that died."""
    await delete_partition(tables, LIVE, partition(ref, batch))


async def insert_ledgers(tables: Tables, ledgers: Sequence[Ledger]) -> None:
    """Insert the ledgers of one group in one write; existing ones are newer and stay."""
    where = _group_partition(ledgers[0].ref, ledgers[0].batch // GROUP_BATCHES)
    rows = [Insert(_ledger_key(ledger.batch), to_properties(ledger)) for ledger in ledgers]
    try:
        await tables.batch(LIVE, where, rows)
    except Conflict:
        for row in rows:
            with contextlib.suppress(Conflict):
                await tables.insert(LIVE, where, row.key, row.properties)


async def find_ledger(tables: Tables, ref: str, batch: int) -> Stored[Ledger] | None:
    row = await tables.get(LIVE, *_ledger_keys(ref, batch))
    return stored(row, Ledger) if row else None


async def replace_ledger(tables: Tables, ledger: Ledger, etag: str) -> str:
    """The new etag; Conflict if another sender changed the ledger."""
    return (await tables.batch(*replacement_of(ledger, etag)))[0]


def replacement_of(ledger: Ledger, etag: str) -> Batch:
    """The write of `replace_ledger`."""
    where, key = _ledger_keys(ledger.ref, ledger.batch)
    return LIVE, where, [Replace(key, to_properties(ledger), etag)]


async def load_group(tables: Tables, ref: str, group: int) -> list[Stored[Ledger]]:
    """The ledgers of a group in order, at most GROUP_BATCHES, with their etags."""
    rows = all_rows(tables, LIVE, KeysWithin(_group_partition(ref, group)))
    return [stored(row, Ledger) async for row in rows]


async def readable_ledgers(tables: Tables, ref: str, group: int) -> AsyncIterator[Stored[Ledger]]:
    """Like `load_group`, but skip ledgers that cannot be read."""
    where = KeysWithin(_group_partition(ref, group))
    async for ledger, row in readable_rows(tables, LIVE, where, Ledger):
        yield Stored(ledger, row.etag)


async def delete_group(tables: Tables, ref: str, group: int) -> None:
    await delete_partition(tables, LIVE, _group_partition(ref, group))


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
