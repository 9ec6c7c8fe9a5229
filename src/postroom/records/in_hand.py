"""A batch that a sender works on: its ledger, as it is and as it was last written, and its rows.

While a sender owns a batch it must not give up on it: writes are repeated until storage answers.
If another sender took the batch over, it has changed the ledger, and our next write is Lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from postroom.clock import Clock
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State, put_off
from postroom.domain.message import Message
from postroom.records import archive, batches
from postroom.records.batches import BatchRows
from postroom.storage.port import Conflict, StorageFull, Tables, Unavailable

T = TypeVar("T")
PAUSES_S = (0.05, 0.2, 1.0, 5.0)  # between tries to write down what has been sent


class Lost(Exception):
    """The ledger was changed by another sender: everything we know of the batch is stale."""


@dataclass
class InHand:
    tables: Tables
    clock: Clock
    write_id: str  # names this claim of the batch, unique for good
    message: Message
    ledger: Ledger
    written: Ledger
    etag: str
    rows: BatchRows = field(default_factory=BatchRows)
    fault: bool = False  # our own provider is in trouble
    is_tried: bool = False  # the provider took part: it accepted or refused somebody

    async def load(self) -> None:
        """The rows of the deliveries that may still be sent."""
        if self.ledger.is_open:
            self.rows = await batches.load_batch(self.tables, self.ledger.ref, self.ledger.batch)

    @property
    def deliveries(self) -> Mapping[int, Delivery]:
        return self.rows.deliveries

    def is_whole(self) -> bool:
        """Every open delivery has its row. If not, our ledger is stale, or rows were lost."""
        open_ = self.ledger.positions(State.QUEUED) + self.ledger.positions(State.SENDING)
        return all(at in self.deliveries for at in open_)

    async def write_ends(self, ends: Mapping[int, DeliveryEnd]) -> None:
        """Archive rows; the ledger says so with its next write, never before."""
        if ends:
            await self.surely(
                lambda: archive.write(self.tables, self.ledger, self.deliveries, ends)
            )

    async def write_settled(self, ends: Mapping[int, DeliveryEnd]) -> None:
        """Archive rows of what a dead sender had in hand; Lost if another settles it."""
        try:
            await archive.write_settled(self.tables, self.ledger, self.deliveries, ends)
        except Conflict:
            raise Lost from None

    def put_off(self, until: Mapping[int, float], positions: list[int]) -> list[int]:
        """Those that a limit lets wait stay queued, as the next write says; gives the others."""
        if not until:
            return positions
        self.ledger = put_off(self.ledger, until, now_s=self.clock.now().timestamp())
        return [at for at in positions if at not in until]

    async def record(self, ledger: Ledger) -> None:
        """Commit point: write the ledger, and be sure of it."""
        if ledger != self.written:
            ledger = msgspec.structs.replace(ledger, write_id=self.write_id)
            self.etag = await self.surely(lambda: self._replace(ledger))
        self.ledger = self.written = ledger

    async def delete_rows(self) -> None:
        """Rows read before the ledger was final cannot be anybody's who was revived since."""
        ref, batch = self.ledger.ref, self.ledger.batch
        if self.rows.header is None:
            self.rows = await batches.load_batch(self.tables, ref, batch)
            found = await batches.find_ledger(self.tables, ref, batch)
            if found is None or not found[0].is_final:
                return
        await batches.delete_deliveries(self.tables, ref, batch, self.rows)

    async def surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """Until it is written down nothing else goes out, however long the storage is away.

        Only for calls that may be repeated.
        """
        pauses = iter(PAUSES_S)
        while True:
            try:
                return await call()
            except (Unavailable, StorageFull):
                await self.clock.sleep(next(pauses, PAUSES_S[-1]))

    async def _replace(self, ledger: Ledger) -> str:
        """The new etag, also when it was an earlier try without an answer that took effect."""
        try:
            return await batches.replace_ledger(self.tables, ledger, self.etag)
        except Conflict:
            found = await batches.find_ledger(self.tables, ledger.ref, ledger.batch)
            if found and found[0] == ledger:
                return found[1]
            raise Lost from None
