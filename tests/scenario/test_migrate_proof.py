"""Moving house: what differs is found, and items that hide are not forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.flow import sweep
from postroom.migration import migrate, queue_copy, state
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.storage.port import Storage, Value
from tests.clock import MovableClock
from tests.scenario.moving_house import LIST, everything, migration_context, move

SPOILT: dict[str, dict[str, Value]] = {
    "an int for a float": {"float": 1},
    "a float for an int": {"int": 1.0},
    "an int for a bool": {"bool": 1},
    "a text for an int": {"int": "1"},
    "another text": {"text": "2"},
    "one property more": {"more": ""},
}


@pytest.mark.parametrize("what", SPOILT)
async def test_a_row_that_is_not_the_same_is_found(
    source: Storage, target: Storage, clock: MovableClock, what: str
) -> None:
    await move(source, target, clock)
    table, partition, key = "service", "odd 'partition'", "odd {key}, 'quoted'"
    row = await target.tables.get(table, partition, key)
    assert row
    await target.tables.upsert(table, partition, key, row.properties | SPOILT[what])
    found = await migrate.compare(migration_context(source, target, clock))
    assert {part.name: part.differences for part in found if part.differences} == {table: 1}
    spoilt = next(part for part in found if part.name == table)
    assert spoilt.source_sum != spoilt.target_sum
    assert spoilt.first == f"{partition} / {key}"


async def test_the_order_in_which_properties_were_written_is_no_difference(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move(source, target, clock)
    row = await target.tables.get("service", "odd 'partition'", "odd {key}, 'quoted'")
    assert row
    turned = dict(reversed(row.properties.items()))
    await target.tables.upsert("service", row.partition, row.key, turned)
    found = await migrate.compare(migration_context(source, target, clock))
    assert not any(part.differences for part in found)


async def test_a_missing_row_blob_or_item_is_found(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move(source, target, clock)
    await target.tables.delete("mailinglist", LIST, "mailinglist")
    names, _ = await target.blobs.list()
    await target.blobs.put(names[0], b"other")
    await target.blobs.delete(names[-1])
    (claim,) = await target.queues.claim(DEAD_LETTER_QUEUE, limit=1, lease_s=60)
    await target.queues.complete(claim)
    found = await migrate.compare(migration_context(source, target, clock))
    assert {part.name: part.differences for part in found if part.differences} == {
        "mailinglist": 1,
        "blobs": 2,
        DEAD_LETTER_QUEUE: 1,
    }


async def test_an_item_that_is_another_is_found(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move(source, target, clock)
    (claim,) = await target.queues.claim(DEAD_LETTER_QUEUE, limit=1, lease_s=60)
    await target.queues.complete(claim)
    await target.queues.put(DEAD_LETTER_QUEUE, "another")
    found = await migrate.compare(migration_context(source, target, clock))
    assert {part.name for part in found if part.differences} == {DEAD_LETTER_QUEUE}


async def test_comparing_changes_nothing(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    before = await everything(source, clock)
    found = await migrate.compare(migration_context(source, target, clock))
    assert sum(part.differences for part in found) > 20
    assert await everything(source, clock) == before
    assert await state.find(source.tables) is None
    assert await state.find(target.tables) is None


# --- Items that hide ----------------------------------------------------------------------------


async def test_an_item_that_waits_for_its_next_try_is_waited_for(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    """Nobody but the queue knows whom a sign-up is still to be confirmed with."""
    before = await everything(source, clock)
    for claim in await source.queues.claim(SINGLE_MAIL_QUEUE, limit=32, lease_s=60):
        await source.queues.release(claim, delay_s=1800)
    await move(source, target, clock)
    assert await everything(target, clock) == before


async def test_a_mail_item_that_waits_for_hours_is_put_again_by_its_ledger(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    for claim in await source.queues.claim(MAIL_QUEUE, limit=32, lease_s=60):
        await source.queues.release(claim, delay_s=6 * 3600)
    began_at = clock.now()
    await move(source, target, clock)
    assert (clock.now() - began_at).total_seconds() < 60
    assert await target.queues.length(MAIL_QUEUE) == 0
    clock.move(16 * 60)
    assert await sweep.put_forgotten_items(target, clock.now()) > 0
    assert await target.queues.length(MAIL_QUEUE) > 0


async def test_more_items_than_one_claim_holds_for_come_through_once(
    source: Storage, target: Storage, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those claimed first show again while the last are still being carried."""
    await source.queues.put(DEAD_LETTER_QUEUE, *(f"item {number}" for number in range(500)))
    put = target.queues.put

    async def slowly(queue: str, *bodies: str, delay_s: float = 0.0) -> None:
        clock.move(10)
        await put(queue, *bodies, delay_s=delay_s)

    before = await everything(source, clock)
    monkeypatch.setattr(target.queues, "put", slowly)
    await move(source, target, clock)
    assert (await everything(target, clock)).items == before.items


async def test_waiting_for_an_item_that_hides_uses_up_no_tries_of_the_others(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    """Whoever works on with the source after all buries what was taken too often."""
    await source.queues.put(SINGLE_MAIL_QUEUE, "an item that hides", delay_s=1800)
    before = {item.body: item.taken for item in await source.queues.peek(SINGLE_MAIL_QUEUE)}
    await move(source, target, clock)
    after = {item.body: item.taken for item in await source.queues.peek(SINGLE_MAIL_QUEUE)}
    assert after == {body: taken + 1 for body, taken in before.items()} | {"an item that hides": 1}


@pytest.mark.parametrize("queue", [SINGLE_MAIL_QUEUE, DEAD_LETTER_QUEUE])
async def test_an_item_that_is_put_into_the_source_meanwhile_is_found_and_comes_along(
    source: Storage,
    target: Storage,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
) -> None:
    """A web role that nobody stopped was asked for a test mail, which changes no row."""
    carry = queue_copy.copy_queue

    async def and_one_more(*values: Any, **named: Any) -> int:
        carried = await carry(*values, **named)
        if values[2] == queue:
            await source.queues.put(queue, "one more")
        return carried

    monkeypatch.setattr(queue_copy, "copy_queue", and_one_more)
    found = await move(source, target, clock)
    assert {part.name: part.differences for part in found if part.differences} == {queue: 1}
    assert await state.why_closed(target.tables)
    monkeypatch.undo()
    await move(source, target, clock)
    assert await everything(target, clock) == await everything(source, clock)
