"""Finished deliveries as rows: `messagearchive`, the partition of their batch, row `to:<key>`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import msgspec

from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.records.batches import partition
from postroom.records.deliveries import TO, of_row, to_row
from postroom.records.rows import Unreadable, all_rows
from postroom.storage.port import (
    Change,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Replace,
    Row,
    Tables,
    Upsert,
    Value,
)

TABLE = "messagearchive"
_WORD = {State.SENT: "sent", State.FAILED: "failed", State.SKIPPED: "skipped"}
_STATE = {word: state for state, word in _WORD.items()}


class ArchivedDelivery(msgspec.Struct, frozen=True):
    """One person's fate, with what is needed to try again."""

    delivery: Delivery
    ended: DeliveryEnd
    revived: int


async def write(
    tables: Tables,
    ledger: Ledger,
    deliveries: Mapping[int, Delivery],
    ends: Mapping[int, DeliveryEnd],
) -> None:
    """In one write, before the ledger says so: a ledger never claims what is not here."""
    rows: list[Change] = [
        Upsert(TO + deliveries[at].key, _row(deliveries[at], ended, ledger.revived))
        for at, ended in ends.items()
    ]
    if rows:
        await tables.batch(TABLE, partition(ledger.ref, ledger.batch), rows)


async def write_settled(
    tables: Tables,
    ledger: Ledger,
    deliveries: Mapping[int, Delivery],
    ends: Mapping[int, DeliveryEnd],
) -> None:
    """As `write`, but Conflict where somebody wrote an end of this round meanwhile.

    Two survivors may settle the same batch with different knowledge: the first one's rows stand.
    """
    where = partition(ledger.ref, ledger.batch)
    known = {row.key: row async for row in all_rows(tables, TABLE, KeysWithin(where))}
    rows: list[Change] = []
    for at, ended in ends.items():
        key, row = TO + deliveries[at].key, _row(deliveries[at], ended, ledger.revived)
        old = known.get(key)
        if old and int(old.properties["revived"]) == ledger.revived:
            raise Conflict(f"batch {ledger.batch} is being settled by another sender")
        rows.append(Replace(key, row, old.etag) if old else Insert(key, row))
    if rows:
        await tables.batch(TABLE, where, rows)


async def load(tables: Tables, ref: str, batch: int) -> AsyncIterator[ArchivedDelivery]:
    async for row in all_rows(tables, TABLE, KeysWithin(partition(ref, batch))):
        yield _archived(row)


async def ends_of(tables: Tables, ledger: Ledger) -> dict[int, DeliveryEnd]:
    """Ends written since the batch was last revived, by position."""
    return {
        archived.delivery.position: archived.ended
        async for archived in load(tables, ledger.ref, ledger.batch)
        if archived.revived == ledger.revived
    }


async def delete_batch(tables: Tables, ref: str, batch: int) -> None:
    where = partition(ref, batch)
    keys = [row.key async for row in all_rows(tables, TABLE, KeysWithin(where))]
    if keys:
        await tables.batch(TABLE, where, [Delete(key) for key in keys])


def _row(delivery: Delivery, ended: DeliveryEnd, revived: int) -> dict[str, Value]:
    # Attributes are kept only for those who may be tried again.
    row = to_row(delivery, with_attributes=ended.state is State.FAILED)
    row["outcome"] = _WORD[ended.state]
    row["EmailSent"] = ended.state is State.SENT
    row["words"] = ended.words
    row["ended_at"] = ended.ended_at.timestamp()
    row["revived"] = revived
    return row


def _archived(row: Row) -> ArchivedDelivery:
    properties = row.properties
    try:
        ended = DeliveryEnd(
            _STATE[str(properties["outcome"])],
            str(properties["words"]),
            datetime.fromtimestamp(float(properties["ended_at"]), UTC),
        )
        return ArchivedDelivery(of_row(row), ended, int(properties["revived"]))
    except (KeyError, ValueError, OverflowError) as error:
        raise Unreadable(f"A row is not a whole end: {error}.") from error
