"""A claimed batch: whose write it was, and rows that must not be deleted late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State, announced, revived
from postroom.domain.message import Message, Status
from postroom.records import archive, batches
from postroom.records.names import STORAGE_NAMES
from postroom.records.recipients import Recipient
from postroom.sending.claimed_batch import BatchLost, ClaimedBatch
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Batch, Unavailable
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


ENDS = {
    0: DeliveryEnd(State.SENT, "250 OK", NOW),
    1: DeliveryEnd(State.FAILED, "550 unknown", NOW),
}


class NoAnswer:
    """Storage that does not answer the first call, of whose writes only some took effect.

    Before the caller notices, others do `meanwhile`.
    """

    def __init__(
        self,
        inner: Any,
        *,
        took_effect: int,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._inner = inner
        self._took_effect = took_effect
        self._meanwhile = meanwhile
        self._is_first = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def batches(self, writes: list[Batch]) -> Any:
        if not self._is_first:
            return await self._inner.batches(writes)
        self._is_first = False
        await self._inner.batches(writes[: self._took_effect])
        if self._meanwhile:
            await self._meanwhile()
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
    mine = await claimed(NoAnswer(storage.tables, took_effect=0))
    other = await claimed(storage.tables)
    await other.record(announcement(other))
    with pytest.raises(BatchLost):
        await mine.record(announcement(mine))


async def test_a_write_without_an_answer_that_took_effect_is_ours() -> None:
    storage = await written()
    mine = await claimed(NoAnswer(storage.tables, took_effect=1))
    await mine.record(announcement(mine))
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found == (mine.ledger, mine.etag)


async def finish(batch: ClaimedBatch) -> None:
    """Record that everybody was sent to, and one was refused."""
    batch.ends |= ENDS
    final = msgspec.structs.replace(announcement(batch), states="sf", owner="")
    await batch.record(final)


async def test_the_last_record_archives_the_ends_and_deletes_the_rows() -> None:
    storage = await written()
    batch = await claimed(storage.tables)
    await finish(batch)
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found == (batch.ledger, batch.etag)
    assert await archive.ends_of(storage.tables, batch.ledger) == ENDS
    assert not await batches.load_deliveries(storage.tables, "1", 0)
    assert batch.are_rows_deleted
    assert not batch.ends


@pytest.mark.parametrize("took_effect", range(4))
async def test_writes_that_were_cut_off_anywhere_are_completed(took_effect: int) -> None:
    storage = await written()
    batch = await claimed(NoAnswer(storage.tables, took_effect=took_effect))
    await finish(batch)
    await batch.delete_rows()
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found == (batch.ledger, batch.etag)
    assert await archive.ends_of(storage.tables, batch.ledger) == ENDS
    assert not await batches.load_deliveries(storage.tables, "1", 0)


async def test_after_a_conflict_no_row_is_deleted() -> None:
    """Somebody else has changed the ledger, so the deliveries are theirs."""
    storage = await written()
    mine = await claimed(storage.tables)
    other = await claimed(storage.tables)
    await other.record(announcement(other))
    with pytest.raises(BatchLost):
        await finish(mine)
    assert set(await batches.load_deliveries(storage.tables, "1", 0)) == {0, 1}


async def test_restored_rows_are_not_deleted_by_a_late_sender() -> None:
    """It recorded the ends and heard nothing; the deletion is still to come."""
    storage = await written()
    late = await claimed(NoAnswer(storage.tables, took_effect=2))
    await finish(late)
    await retry_failed(storage.tables)
    await late.delete_rows()
    assert 1 in await batches.load_deliveries(storage.tables, "1", 0)


async def retry_failed(tables: Any) -> None:
    """A person has the failed recipient tried again."""
    found = await batches.find_ledger(tables, "1", 0)
    assert found
    await batches.restore_deliveries(tables, MESSAGE, found[0], [PEOPLE[1]])
    back = revived(found[0], [1], now_s=NOW.timestamp())
    await batches.replace_ledger(tables, back, found[1])


async def test_a_repeated_write_does_not_archive_over_a_newer_outcome() -> None:
    """It recorded the ends and heard nothing; then the failed recipient was tried again."""
    storage = await written()
    now_sent = {1: DeliveryEnd(State.SENT, "250 OK", NOW)}

    async def send_again() -> None:
        await retry_failed(storage.tables)
        other = await claimed(storage.tables)
        other.ends |= now_sent
        await other.record(msgspec.structs.replace(other.ledger, states="ss"))

    late = await claimed(NoAnswer(storage.tables, took_effect=3, meanwhile=send_again))
    with pytest.raises(BatchLost):
        await finish(late)
    found = await batches.find_ledger(storage.tables, "1", 0)
    assert found
    assert found[0].states == "ss"
    assert await archive.ends_of(storage.tables, found[0]) == now_sent


async def test_a_finished_batch_keeps_its_header_and_nothing_else() -> None:
    storage = await written("ss")
    batch = await claimed(storage.tables)
    await batch.delete_rows()
    rows = await batches.load_batch(storage.tables, "1", 0)
    assert rows.header is not None
    assert not rows.deliveries
