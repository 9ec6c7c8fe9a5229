"""A claimed batch: its delivery rows, and its ledger as it should be and as last written.

A sender must not give up on a batch that it owns: writes are repeated until storage answers. If
another sender has claimed the batch, it has changed the ledger, and our next write raises
BatchLost.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec

from postroom.clock import Clock
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State, defer_by_limit
from postroom.domain.message import Message
from postroom.records import archive, batches
from postroom.records.batches import BatchRows
from postroom.records.stored import Stored
from postroom.storage.port import Batch, Conflict, StorageFull, Tables, Unavailable

T = TypeVar("T")
PAUSES_S = (0.05, 0.2, 1.0, 5.0)  # between tries to record what was sent
_numbers = itertools.count()


class BatchLost(Exception):
    """Another sender changed the ledger: everything we know about the batch is stale."""


@dataclass
class ClaimedBatch:
    tables: Tables
    clock: Clock
    write_id: str  # names this claim of the batch; never used twice
    message: Message
    ledger: Ledger
    written: Ledger
    etag: str
    rows: BatchRows = field(default_factory=BatchRows)
    ends: dict[int, DeliveryEnd] = field(default_factory=dict)  # archived with the next record
    are_rows_deleted: bool = False
    fault: bool = False  # our own provider has a problem
    is_tried: bool = False  # the provider accepted or refused at least one mail

    @classmethod
    async def load(
        cls, tables: Tables, clock: Clock, owner: str, message: Message, found: Stored[Ledger]
    ) -> Self:
        """The batch with the rows of the deliveries that may still be sent."""
        ledger = found.value
        batch = cls(tables, clock, f"{owner}/{next(_numbers)}", message, ledger, *found)
        if ledger.is_open:
            batch.rows = await batches.load_batch(tables, ledger.ref, ledger.batch)
        return batch

    @property
    def deliveries(self) -> Mapping[int, Delivery]:
        return self.rows.deliveries

    def is_whole(self) -> bool:
        """Whether every open delivery has its row; if not, our ledger is stale or rows are lost."""
        open_ = self.ledger.positions(State.QUEUED) + self.ledger.positions(State.SENDING)
        return all(at in self.deliveries for at in open_)

    async def write_settled(self, ends: Mapping[int, DeliveryEnd]) -> None:
        """Write archive rows for a dead sender; BatchLost if another sender settles the batch."""
        try:
            await archive.write_settled(self.tables, self.ledger, self.deliveries, ends)
        except Conflict:
            raise BatchLost from None

    def defer(self, until: Mapping[int, float]) -> None:
        """Leave deliveries queued for a rate limit; it is stored with the next ledger write."""
        if until:
            self.ledger = defer_by_limit(self.ledger, until, now_s=self.clock.now().timestamp())

    async def record(self, ledger: Ledger) -> None:
        """Commit point: write the ledger, and return only when it is certainly written.

        One call writes three things in this order: the archive rows of deliveries that have ended,
        the ledger, and the deletion of the delivery rows, if the ledger is final.
        """
        if ledger != self.written:
            ledger = msgspec.structs.replace(ledger, write_id=self.write_id)
            is_repeated = False

            async def write() -> str:
                nonlocal is_repeated
                # After an earlier try that took effect, others may have archived newer outcomes.
                if is_repeated and (etag := await self._etag_if_written(ledger)):
                    return etag
                is_repeated = True
                return await self._write(ledger)

            self.etag = await self.retry_until_stored(write)
            self.ends.clear()
        self.ledger = self.written = ledger

    async def _write(self, ledger: Ledger) -> str:
        try:
            etags = await self.tables.batches(self._writes(ledger))
        except Conflict:  # of the deletion, with another sender, or with our late earlier try
            if etag := await self._etag_if_written(ledger):
                return etag
            raise BatchLost from None
        self.are_rows_deleted = ledger.is_final and bool(self.rows.deliveries)
        return etags[1 if self.ends else 0][0]

    async def _etag_if_written(self, ledger: Ledger) -> str | None:
        """Its etag if we have written it, None if it is still to be written; else BatchLost."""
        found = await batches.find_ledger(self.tables, ledger.ref, ledger.batch)
        if found and found.value == ledger:
            return found.etag
        if found and found.etag == self.etag:
            return None
        raise BatchLost

    def _writes(self, ledger: Ledger) -> list[Batch]:
        ref, batch = ledger.ref, ledger.batch
        deletion = batches.deletion_of(ref, batch, self.rows) if ledger.is_final else []
        return [
            *archive.outcomes_of(ledger, self.deliveries, self.ends),
            batches.replacement_of(ledger, self.etag),
            *deletion,
        ]

    async def delete_rows(self) -> None:
        """Delete the delivery rows of a final batch, if `record` has not.

        Only rows that were read before the ledger was final: later ones may belong to revived
        deliveries.
        """
        if self.are_rows_deleted:
            return
        ref, batch = self.ledger.ref, self.ledger.batch
        if self.rows.header is None:
            self.rows = await batches.load_batch(self.tables, ref, batch)
            found = await batches.find_ledger(self.tables, ref, batch)
            if found is None or not found.value.is_final:
                return
        await batches.delete_deliveries(self.tables, ref, batch, self.rows)

    async def retry_until_stored(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until storage answers, however long that takes; nothing is sent until then.

        Use it only for calls that can safely be repeated.
        """
        pauses = iter(PAUSES_S)
        while True:
            try:
                return await call()
            except (Unavailable, StorageFull):
                await self.clock.sleep(next(pauses, PAUSES_S[-1]))
