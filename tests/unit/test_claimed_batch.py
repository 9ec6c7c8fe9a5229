"""A claimed batch: whose write it was, and rows that must not be deleted late."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from postroom.domain.delivery import Delivery, Ledger, announced, revived
from postroom.domain.message import Message, Status
from postroom.records import batches
from postroom.records.names import STORAGE_NAMES
from postroom.records.subscribers import Recipient
from postroom.sending.claimed_batch import BatchLost, ClaimedBatch
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Unavailable
from tests.clock import MovableClock

NOW = datetime(2026, 11, 15, tzinfo=UTC)
MESSAGE = Message(
    ref="1",
    list_name="contoso1",
    list_created_at=NOW,
    subject="News",
    sender="a@contoso.edu",
    status=Status.PROCESSING,
    created_at=NOW,
)
PEOPLE = [Delivery(0, "a@x.test", "a@x.test", "g0"), Delivery(1, "b@x.test", "b@x.test", "g1")]


class NoAnswer:
    """Storage whose next replacement gets no answer, and either took effect or not."""

    def __init__(self, inner: Any, *, took_effect: bool) -> None:
        self._inner = inner
        self._took_effect = took_effect
        self._is_first = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def replace(self, *arguments: Any) -> Any:
        if not self._is_first:
            return await self._inner.replace(*arguments)
        self._is_first = False
        if self._took_effect:
            await self._inner.replace(*arguments)
        raise Unavailable("no answer")


async def written(states: str = "qq") -> MemoryStorage:
    storage = MemoryStorage(MovableClock(), STORAGE_NAMES)
    recipients = [Recipient(one.key, one.address, one.guid, "") for one in PEOPLE]
    [header] = await batches.write_batches(storage.tables, MESSAGE, [recipients])
    ledger = Ledger(ref="1", batch=0, states=states, first=header.first, last=header.last)
    await batches.insert_ledgers(storage.tables, [ledger])
    return storage


async def claimed(tables: Any) -> ClaimedBatch:
    found = await batches.find_ledger(tables, "1", 0)
    assert found
    return await ClaimedBatch.load(tables, MovableClock(), "sender-1", MESSAGE, found)


def announcement(batch: ClaimedBatch) -> Ledger:
    return announced(batch.ledger, [0, 1], owner="sender-1", now_s=NOW.timestamp())


async def test_an_equal_announcement_of_another_lane_is_not_ours() -> None:
    storage = await written()
    mine = await claimed(NoAnswer(storage.tables, took_effect=False))
    other = await claimed(storage.tables)
    await other.record(announcement(other))
    with pytest.raises(BatchLost):
        await mine.record(announcement(mine))


async def test_a_write_without_an_answer_that_took_effect_is_ours() -> None:
    storage = await written()
    mine = await claimed(NoAnswer(storage.tables, took_effect=True))
    await mine.record(announcement(mine))
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found == (mine.ledger, mine.etag)


async def test_rows_that_were_brought_back_are_not_deleted_by_a_late_sender() -> None:
    storage = await written()
    late = await claimed(storage.tables)
    final = announcement(late)
    await late.record(Ledger(**{**_fields(final), "states": "sf", "owner": ""}))
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found
    await batches.restore_deliveries(storage.tables, MESSAGE, found[0], [PEOPLE[1]])
    back = revived(found[0], [1], now_s=NOW.timestamp())
    await batches.replace_ledger(storage.tables, back, found[1])
    await late.delete_rows()
    assert 1 in await batches.load_deliveries(storage.tables, "1", 0)


async def test_a_finished_batch_keeps_its_header_and_nothing_else() -> None:
    storage = await written("ss")
    batch = await claimed(storage.tables)
    await batch.delete_rows()
    rows = await batches.load_batch(storage.tables, "1", 0)
    assert rows.header is not None
    assert not rows.deliveries


def _fields(ledger: Ledger) -> dict[str, Any]:
    return {name: getattr(ledger, name) for name in ledger.__struct_fields__}
