"""Unreadable rows: what a newer version wrote waits for it, and holds up nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.typing import EventDict

from postroom.domain.address import parse_address
from postroom.domain.delivery import State, announced
from postroom.domain.message import Books, OnDoubt
from postroom.flow import subscribe, sweep
from postroom.flow.send import UNREADABLE_DELAY_S
from postroom.intervals import LOCAL
from postroom.records import batches, counts, leases, lists
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE
from postroom.sending.recovery import JOURNALS_EVERY_S
from tests.acting import acting
from tests.clock import START, soon
from tests.scenario.test_described_items import described
from tests.scenario.test_forgotten_items import QUARTER_S, lose_all_items
from tests.scenario.town import CLAIM_S, DAY_S, LIST, Clerk, Town, address_of, once_each, students

OTHER_LIST = "contoso2"
SWEEP_S = 61.0


class Spoilt:
    """A row in the format of a version to come, until it is repaired."""

    def __init__(self, town: Town, table: str, partition: str, key: str) -> None:
        self._tables = town.storage.tables
        self._table, self._keys = table, (partition, key)
        self._properties: dict[str, Any] = {}

    async def spoil(self) -> Spoilt:
        row = await self._tables.get(self._table, *self._keys)
        assert row
        self._properties = dict(row.properties)
        await self._tables.upsert(self._table, *self._keys, self._properties | {"Format": 99})
        return self

    async def repair(self) -> None:
        await self._tables.upsert(self._table, *self._keys, self._properties)


def ledger_row(town: Town, ref: str, batch: int = 0) -> Spoilt:
    return Spoilt(town, "message", *batches._ledger_keys(ref, batch))


def header_row(town: Town, ref: str) -> Spoilt:
    return Spoilt(town, "message", batches.partition(ref, 0), "batch")


def delivery_row(town: Town, ref: str) -> Spoilt:
    key = "to:" + parse_address(address_of("student000")).storage_key
    return Spoilt(town, "message", batches.partition(ref, 0), key)


def message_row(town: Town, ref: str) -> Spoilt:
    return Spoilt(town, "message", f"m-{ref}", "message")


def archived_row(town: Town, ref: str) -> Spoilt:
    return Spoilt(town, "messagearchive", f"m-{ref}", "message")


def due_entry(town: Town, ref: str) -> Spoilt:
    return Spoilt(town, "message", START.strftime("%Y-%m-%d"), f"message{ref}")


async def to_another(town: Town, name: str = "other") -> str:
    """A message to another list, which must go its way; its ref."""
    await town.found_list(OTHER_LIST)
    await town.join(name, list_name=OTHER_LIST)
    return await town.compose(list_name=OTHER_LIST)


# Of a batch


@pytest.mark.parametrize("row", [ledger_row, header_row, delivery_row])
async def test_a_row_of_a_batch_holds_up_that_batch_alone(
    town: Town, pairs: None, row: Any
) -> None:
    names = students(6)
    ref = await town.mailing(*names)
    spoilt = await row(town, ref).spoil()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(names[2:])
    await town.live_through(4 * UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    assert (await town.items(), await town.items(DEAD_LETTER_QUEUE)) == (
        1,
        0,
    )  # it may get readable yet
    await town.live_through(2 * UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    assert (await town.items(), await town.items(DEAD_LETTER_QUEUE)) == (0, 1)
    await to_another(town)
    await town.quiet()
    assert town.arrived() == once_each([*names[2:], "other"])
    await spoilt.repair()
    assert (await town.read(ref)).books == Books(queued=2, sent=4)
    await town.live_through(QUARTER_S + SWEEP_S, every_s=SWEEP_S)
    assert town.arrived() == once_each([*names, "other"])
    assert await town.is_archived(ref)


async def test_a_ledger_keeps_no_lost_item_of_another_batch_from_being_put_again(
    town: Town, pairs: None
) -> None:
    """Neither of its group, nor of its message, nor of another message."""
    names = students(6)
    ref = await town.mailing(*names)
    await to_another(town)
    await town.fan_out()
    await lose_all_items(town)
    await ledger_row(town, ref).spoil()
    await town.open_sender()
    await town.live_through(QUARTER_S + 2 * SWEEP_S, every_s=SWEEP_S)
    assert town.arrived() == once_each([*names[2:], "other"])


@pytest.mark.parametrize("row", [message_row, header_row])
async def test_an_item_without_a_batch_number_waits_until_its_batch_can_be_found(
    town: Town, log_lines: list[EventDict], row: Any
) -> None:
    names = students(3)
    ref = await town.mailing(*names)
    await lose_all_items(town)
    spoilt = await row(town, ref).spoil()
    await town.storage.queues.put(MAIL_QUEUE, described(ref, names[0]))
    await town.open_sender()
    await town.live_through(2 * UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    events = {line["event"] for line in log_lines}
    assert "item_unreadable" in events
    assert "item_left" not in events
    assert not town.sink.mails
    assert (await town.items(), await town.items(DEAD_LETTER_QUEUE)) == (1, 0)
    await spoilt.repair()
    await town.live_through(UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    assert town.arrived() == once_each(names)


async def test_a_message_that_gets_unreadable_between_two_slices_is_recorded_so_far(
    town: Town,
) -> None:
    names = ["ada", "slow", "zoe"]
    ref = await town.mailing(*names, on_doubt=OnDoubt.HOLD)
    role = await town.open_sender(lanes=1, slice_size=1)
    await role.step()
    await soon(town.sink.is_waiting.wait())
    spoilt = await message_row(town, ref).spoil()
    town.sink.release()
    await town.quiet()
    found = await batches.find_ledger(town.storage.tables, ref, 0)
    assert found
    assert (found[0].states, found[0].owner) == ("ssq", "")
    await town.live_through(2 * UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    assert town.arrived() == once_each(["ada", "slow"])
    await spoilt.repair()
    await town.live_through(UNREADABLE_DELAY_S, every_s=UNREADABLE_DELAY_S)
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=3)


# Of a message


@pytest.mark.parametrize("row", [due_entry, message_row])
async def test_a_message_that_cannot_be_read_holds_up_no_other(town: Town, row: Any) -> None:
    await town.found_list()
    await town.join("ada")
    first = await town.compose()
    spoilt = await row(town, first).spoil()
    second = await to_another(town)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["other"])
    assert await town.is_archived(second)
    await spoilt.repair()
    await town.quiet()
    assert town.arrived() == once_each(["other", "ada"])
    assert await town.is_archived(first)


async def test_an_archived_message_that_cannot_be_read_keeps_no_other_from_expiring(
    town: Town,
) -> None:
    town.scheduler.keep_archive_days = 30
    first = await town.mailing("ada")
    second = await to_another(town)
    await town.open_sender()
    await town.quiet()
    spoilt = await archived_row(town, first).spoil()
    kept = await town.everything_about(first)
    await town.pass_time(31 * DAY_S)
    await town.quiet()
    assert await town.everything_about(second) == []
    assert set(await town.everything_about(first)) <= set(kept)
    assert await town.storage.blobs.get(f"{first}.htm")
    await spoilt.repair()
    await town.live_through(2 * SWEEP_S, every_s=SWEEP_S)
    assert await town.everything_about(first) == []


# Of a dead sender's batch


async def take_by_hand(town: Town, clerk: Clerk, ref: str, batch: int) -> None:
    """The clerk's other lane announced a batch and handed nothing over."""
    await town.storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=CLAIM_S)
    found = await batches.find_ledger(town.storage.tables, ref, batch)
    assert found
    now_s = town.clock.now().timestamp()
    in_hand = announced(found[0], [0, 1], owner=clerk.lease.owner, now_s=now_s)
    await batches.replace_ledger(town.storage.tables, in_hand, found[1])
    page = clerk._journals.lane(1)
    page.begin(ref, batch)
    page.close()


async def test_a_journal_is_kept_until_the_ledgers_of_its_pages_can_be_read(
    town: Town, pairs: None
) -> None:
    ref = await town.mailing("slow", "tom", "uma", "zoe", on_doubt=OnDoubt.HOLD)
    clerk = await town.clerk()
    await clerk.take_until(town.sink.is_waiting.wait())
    await take_by_hand(town, clerk, ref, 1)
    await clerk.die()
    spoilt = await ledger_row(town, ref, 0).spoil()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(["slow", "uma", "zoe"])  # the other page is settled
    await town.live_through(DAY_S, every_s=DAY_S / 4)
    assert town.arrived() == once_each(["slow", "uma", "zoe"])
    await spoilt.repair()
    await town.pass_time(JOURNALS_EVERY_S)
    await town.quiet()
    # Only the journal knows that Tom was not handed over.
    assert town.arrived() == once_each(["slow", "tom", "uma", "zoe"])
    assert (await town.states(ref))["slow"] is State.HELD
    assert (await town.read(ref)).books == Books(sent=3, held=1, doubts=1)
    assert not (town.folder / "here" / clerk.lease.owner).exists()


# The strokes of the sweep

STROKES = {
    "items": (sweep, "put_forgotten_items"),
    "archive": (sweep, "expire_archive"),
    "lists": (sweep, "finish_deletions"),
    "leases": (leases, "forget_long_expired"),
}


async def leave_work_for_every_stroke(town: Town) -> str:
    """A lost item, a deleted list, a sender long gone and an old message; that one's ref."""
    town.scheduler.keep_archive_days = 30
    town.scheduler.intervals = replace(LOCAL, sweep_s=40 * DAY_S, tidy_s=40 * DAY_S)
    clerk = await town.clerk()
    ref = await town.mailing("ada")
    await clerk.take()
    await clerk.die()
    await town.quiet()
    assert await town.is_archived(ref)
    town.clock.move(31 * DAY_S)
    await to_another(town)
    await town.fan_out()
    await lose_all_items(town)
    await lists.start_deleting(town.storage.tables, "contoso1")
    town.clock.move(DAY_S)
    town.scheduler.intervals = replace(LOCAL, sweep_s=SWEEP_S, tidy_s=SWEEP_S)
    return ref


async def strokes_done(town: Town, ref: str) -> set[str]:
    lease = await town.storage.tables.get("service", "lease", leases.sender_lease("clerk.1"))
    done = {
        "items": await town.items() == 1,
        "archive": await town.everything_about(ref) == [],
        "lists": not await lists.is_being_deleted(town.storage.tables, "contoso1"),
        "leases": lease is None,
    }
    return {name for name, is_done in done.items() if is_done}


@pytest.mark.parametrize("failing", STROKES)
async def test_a_stroke_of_the_sweep_that_fails_holds_up_no_other(
    town: Town, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise KeyError("a row without what every such row has")

    ref = await leave_work_for_every_stroke(town)
    assert await strokes_done(town, ref) == set()
    monkeypatch.setattr(*STROKES[failing], fail)
    await town.fan_out()
    assert await strokes_done(town, ref) == set(STROKES) - {failing}


async def test_a_message_row_stops_no_stroke_of_the_sweep(town: Town) -> None:
    """It is the first one that the sweep looks at."""
    await town.found_list("contoso3")
    await message_row(town, await town.compose(list_name="contoso3")).spoil()
    ref = await leave_work_for_every_stroke(town)
    await town.fan_out()
    assert await strokes_done(town, ref) == set(STROKES)


@pytest.mark.parametrize("ref", ["spoilt", "999999999999999999"])
async def test_an_entry_that_leads_nowhere_holds_up_none_of_many_messages(
    town: Town, ref: str
) -> None:
    await town.found_list()
    await town.join("ada")
    entry: dict[str, Any] = {
        "Format": 1,
        "MessageRef": ref,
        "ScheduledDate": START.isoformat(),
    }
    day = START.strftime("%Y-%m-%d")
    await town.storage.tables.upsert("message", day, f"message{ref}", entry)
    for _ in range(4):
        await town.compose()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == {"ada": 4}


async def test_one_of_many_that_cannot_be_read_holds_up_none_and_keeps_its_entry(
    town: Town,
) -> None:
    await town.found_list()
    await town.join("ada")
    refs = [await town.compose() for _ in range(4)]
    spoilt = await message_row(town, refs[1]).spoil()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == {"ada": 3}
    await town.live_through(20 * 60, every_s=60)
    await spoilt.repair()
    await town.quiet()
    assert town.arrived() == {"ada": 4}


async def signed_up(town: Town, name: str) -> None:
    address = parse_address(address_of(name))
    await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


@pytest.mark.parametrize("key", ["mailinglist", "email:ada@contoso.edu"])
async def test_a_confirmation_that_cannot_be_written_yet_ends_no_sender(
    town: Town, key: str
) -> None:
    await town.found_list()
    await signed_up(town, "ada")
    spoilt = await Spoilt(town, "mailinglist", LIST, key).spoil()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each([])
    await spoilt.repair()
    await town.live_through(600, every_s=60)
    assert town.arrived() == once_each(["ada"])
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def test_a_list_that_cannot_be_read_keeps_no_other_from_being_swept(town: Town) -> None:
    tables = town.storage.tables
    await town.found_list("contoso0")
    await town.found_list()
    await town.join("ada")
    await Spoilt(town, "mailinglist", "contoso0", "mailinglist").spoil()
    assert await sweep.fold_counts(tables) == 1
    assert await sweep.expire_sign_ups(tables, START, keep_days=30) == 0
    assert (await counts.read(tables, LIST)).verified == 1
