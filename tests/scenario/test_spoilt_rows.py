"""Spoilt rows: half a value, a missing one. Whoever meets one goes on with all the others."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from postroom.domain.address import parse_address
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.flow import subscribe
from postroom.records import batches, rate_limits
from postroom.records.names import DEAD_LETTER_QUEUE
from postroom.storage.port import Unavailable
from tests.acting import acting
from tests.clock import START
from tests.scenario.test_forgotten_items import QUARTER_S, lose_all_items
from tests.scenario.test_unreadable_rows import SWEEP_S, to_another
from tests.scenario.town import CLAIM_S, LIST, Town, address_of, once_each, students

HALF = '{"half'
NEWCOMER = parse_address(address_of("newcomer"))


async def spoil(town: Town, table: str, partition: str, key: str, **values: Any) -> None:
    """Values as somebody left them; None takes one away."""
    row = await town.storage.tables.get(table, partition, key)
    assert row
    kept = {name: value for name, value in (row.properties | values).items() if value is not None}
    await town.storage.tables.upsert(table, partition, key, kept)


async def test_half_books_of_one_message_hold_up_no_other(town: Town) -> None:
    await town.found_list()
    await town.join("ada")
    refs = [await town.compose() for _ in range(4)]
    await spoil(town, "message", f"m-{refs[1]}", "message", Books=HALF)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == {"ada": 3}


async def test_half_books_keep_no_lost_item_from_being_put_again(town: Town) -> None:
    await town.found_list("contoso3")
    first = await town.compose(list_name="contoso3")
    await spoil(town, "message", f"m-{first}", "message", Books=HALF)
    await town.mailing("ada")
    await lose_all_items(town)
    await town.open_sender()
    await town.live_through(QUARTER_S + 2 * SWEEP_S, every_s=SWEEP_S)
    assert town.arrived() == once_each(["ada"])


def half_a_ledger(ref: str) -> tuple[str, str, dict[str, Any]]:
    return *batches._ledger_keys(ref, 0), {"Deferred": HALF}


def half_a_delivery(ref: str) -> tuple[str, str, dict[str, Any]]:
    return *delivery_keys(ref), {"Attributes": HALF}


def delivery_without_a_place(ref: str) -> tuple[str, str, dict[str, Any]]:
    return *delivery_keys(ref), {"Position": None}


def delivery_keys(ref: str) -> tuple[str, str]:
    key = parse_address(address_of("student000")).storage_key
    return batches.partition(ref, 0), f"to:{key}"


@pytest.mark.parametrize("spoilt", [half_a_ledger, half_a_delivery, delivery_without_a_place])
async def test_a_spoilt_row_of_a_batch_ends_no_sender(town: Town, pairs: None, spoilt: Any) -> None:
    names = students(6)
    ref = await town.mailing(*names)
    partition, key, values = spoilt(ref)
    await spoil(town, "message", partition, key, **values)
    await town.open_sender()
    await town.quiet()
    await town.live_through(2 * CLAIM_S, every_s=CLAIM_S)
    assert town.arrived() == once_each(names[2:])


@pytest.mark.parametrize("spoilt", [half_a_ledger, half_a_delivery, delivery_without_a_place])
async def test_a_spoilt_batch_of_a_dead_sender_ends_none_of_its_successors(
    town: Town, pairs: None, spoilt: Any
) -> None:
    """Its journal names the batch: every sender that starts on the machine looks at it first."""
    ref = await town.mailing(*students(2))
    clerk = await town.clerk()
    clerk.journal.begin(ref, 0)
    await clerk.die()
    partition, key, values = spoilt(ref)
    await spoil(town, "message", partition, key, **values)
    await to_another(town)
    await town.open_sender()
    await town.quiet()
    assert town.arrived()["other"] == 1


@pytest.mark.parametrize("name", [TRANSPORT, "contoso.edu"])
async def test_nobody_is_mailed_past_a_limit_that_cannot_be_read(town: Town, name: str) -> None:
    """It may be slower than anything we know. It is set again, and all goes on."""
    await town.mailing("ada")
    await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, NEWCOMER, {})
    limit = RateLimit(name, 100.0)
    await rate_limits.set_limit(town.storage.tables, limit)
    key = name if name == TRANSPORT else f"domain:{name}"
    await spoil(town, "service", "limit", key, Shares=HALF)
    role = await town.open_sender()
    for _ in range(10):  # more than an item may be taken in vain
        with contextlib.suppress(Unavailable):
            await role.step()
        await town.pass_time(2 * CLAIM_S)
    assert town.arrived() == once_each([])
    await rate_limits.set_limit(town.storage.tables, limit)
    await town.live_through(10 * CLAIM_S, every_s=CLAIM_S)
    assert town.arrived() == once_each(["ada", "newcomer"])
    assert await town.items(DEAD_LETTER_QUEUE) == 0


@pytest.mark.parametrize("missing", ["ScheduledDate", "MessageRef"])
async def test_a_due_entry_that_lost_a_value_is_put_again(town: Town, missing: str) -> None:
    await town.found_list()
    await town.join("ada")
    ref = await town.compose()
    await spoil(town, "message", START.strftime("%Y-%m-%d"), f"message{ref}", **{missing: None})
    await town.open_sender()
    await town.live_through(2 * SWEEP_S, every_s=SWEEP_S)
    assert town.arrived() == once_each(["ada"])


async def test_a_due_entry_that_lost_a_value_keeps_no_lost_item_from_being_put_again(
    town: Town,
) -> None:
    await town.found_list("contoso3")
    first = await town.compose(list_name="contoso3")
    await spoil(town, "message", START.strftime("%Y-%m-%d"), f"message{first}", ScheduledDate=None)
    await town.mailing("ada")
    await lose_all_items(town)
    await town.open_sender()
    await town.live_through(QUARTER_S + 2 * SWEEP_S, every_s=SWEEP_S)
    assert town.arrived() == once_each(["ada"])


@pytest.mark.parametrize("ref", ["a/b", "a#b", "x" * 600, ""])
async def test_a_due_entry_that_names_no_possible_message_holds_up_nobody(
    town: Town, ref: str
) -> None:
    await town.found_list()
    await town.join("ada")
    refs = [await town.compose() for _ in range(4)]
    day = START.strftime("%Y-%m-%d")
    await spoil(town, "message", day, f"message{refs[1]}", MessageRef=ref)
    await town.open_sender()
    await town.quiet()
    assert town.arrived()["ada"] >= 3
