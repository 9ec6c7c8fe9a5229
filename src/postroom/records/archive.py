"""Finished deliveries as rows.

messagearchive / b<hh>-<ref>-<batch> / to:<key>    a delivery and its outcome
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import msgspec

from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State
from postroom.records.batches import partition
from postroom.records.deliveries import TO, DeliveryRow, of_row, property_name, to_row
from postroom.records.rows import Unreadable, all_rows, delete_partition
from postroom.storage.port import (
    Batch,
    Change,
    Conflict,
    Insert,
    KeysWithin,
    Replace,
    Row,
    Tables,
    Upsert,
)

TABLE = "messagearchive"
_WORD = {State.SENT: "sent", State.FAILED: "failed", State.SKIPPED: "skipped"}
_STATE = {word: state for state, word in _WORD.items()}


class ArchivedDelivery(msgspec.Struct, frozen=True):
    """A finished delivery, with all that is needed to retry it."""

    delivery: Delivery
    ended: DeliveryEnd
    revived: int


async def write(
    tables: Tables,
    ledger: Ledger,
    deliveries: Mapping[int, Delivery],
    ends: Mapping[int, DeliveryEnd],
) -> None:
    """Write the outcomes in one batch, before the ledger, so that every final state is archived."""
    await tables.batches(outcomes_of(ledger, deliveries, ends))


def outcomes_of(
    ledger: Ledger, deliveries: Mapping[int, Delivery], ends: Mapping[int, DeliveryEnd]
) -> list[Batch]:
    """The write of `write`; none if nothing ended."""
    rows: list[Change] = [
        Upsert(TO + deliveries[at].key, _row(deliveries[at], ended, ledger.revived))
        for at, ended in ends.items()
    ]
    return [(TABLE, partition(ledger.ref, ledger.batch), rows)] if rows else []


async def write_settled(
    tables: Tables,
    ledger: Ledger,
    deliveries: Mapping[int, Delivery],
    ends: Mapping[int, DeliveryEnd],
) -> None:
    """Like `write`, but raise Conflict if an outcome of this round has been written since.

    Two senders may settle the same batch from different information; the first one wins.
    """
    where = partition(ledger.ref, ledger.batch)
    known = {row.key: row async for row in all_rows(tables, TABLE, KeysWithin(where))}
    rows: list[Change] = []
    for at, ended in ends.items():
        key = TO + deliveries[at].key
        row = _row(deliveries[at], ended, ledger.revived)
        old = known.get(key)
        if old and int(old.properties.get("Revived", 0)) == ledger.revived:
            raise Conflict(f"batch {ledger.batch} is being settled by another sender")
        rows.append(Replace(key, row, old.etag) if old else Insert(key, row))
    if rows:
        await tables.batch(TABLE, where, rows)


async def load(tables: Tables, ref: str, batch: int) -> AsyncIterator[ArchivedDelivery]:
    async for row in all_rows(tables, TABLE, KeysWithin(partition(ref, batch))):
        yield _archived(row)


async def ends_of(tables: Tables, ledger: Ledger) -> dict[int, DeliveryEnd]:
    """Return the outcomes written since the batch was last revived, by position."""
    return {
        archived.delivery.position: archived.ended
        async for archived in load(tables, ledger.ref, ledger.batch)
        if archived.revived == ledger.revived
    }


async def delete_batch(tables: Tables, ref: str, batch: int) -> None:
    await delete_partition(tables, TABLE, partition(ref, batch))


@functools.lru_cache(maxsize=16)  # a whole slice ends at one time
def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _OutcomeRow(DeliveryRow, frozen=True, kw_only=True, omit_defaults=True, rename=property_name):
    outcome: str
    email_sent: bool
    details: str
    ended_at: str
    revived: int = 0


def _row(delivery: Delivery, ended: DeliveryEnd, revived: int) -> _OutcomeRow:
    # Attributes are stored only for deliveries that may be retried.
    attributes = to_row(delivery).attributes if ended.state is State.FAILED else ""
    return _OutcomeRow(
        delivery.position,
        delivery.address,
        delivery.guid,
        attributes,
        outcome=_WORD[ended.state],
        email_sent=ended.state is State.SENT,
        details=ended.words,
        ended_at=_iso(ended.ended_at),
        revived=revived,
    )


def _archived(row: Row) -> ArchivedDelivery:
    properties = row.properties
    try:
        ended = DeliveryEnd(
            _STATE[str(properties["Outcome"])],
            str(properties["Details"]),
            datetime.fromisoformat(str(properties["EndedAt"])),
        )
        return ArchivedDelivery(of_row(row), ended, int(properties.get("Revived", 0)))
    except (KeyError, ValueError) as error:
        raise Unreadable(f"A row is not a complete outcome: {error}.") from error
