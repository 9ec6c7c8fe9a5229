"""Moving house: everything comes along, whatever dies when, and both houses are never open."""

from __future__ import annotations

import contextlib

import pytest

from postroom.domain.errors import NotFound, WrongState
from postroom.migration import filling, migrate, queue_copy, state, table_writer
from postroom.migration.state import TakenOver
from postroom.records import leases
from postroom.records.names import DEAD_LETTER_QUEUE, QUEUES, STORAGE_NAMES, TABLES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage, Unavailable
from tests.clock import MovableClock
from tests.scenario.moving_house import (
    LIST,
    Fate,
    Onlooker,
    everything,
    fill,
    migration_context,
    move,
    move_with,
)

RUNS_MAX = 400


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and notes so small that a handful of people needs many."""
    monkeypatch.setattr(table_writer, "BATCH_CHANGES_MAX", 4)
    monkeypatch.setattr(filling, "ROWS_PER_CHECKPOINT", 9)
    monkeypatch.setattr(filling, "BLOBS_PER_CHECKPOINT", 2)


# --- All of it ----------------------------------------------------------------------------------


async def test_everything_comes_along_and_the_source_stays_whole(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    before = await everything(source, clock)
    found = await move(source, target, clock)
    assert not any(part.differences for part in found)
    assert [part.name for part in found] == [*TABLES, "blobs", *QUEUES]
    assert all(part.source == part.target > 0 for part in found if part.name != "messagearchive")
    assert await everything(target, clock) == before
    assert await everything(source, clock) == before
    assert all(before.items[queue] for queue in QUEUES)


async def test_what_belongs_to_one_storage_alone_stays_there(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move(source, target, clock)
    assert await source.tables.get("service", "lease", "scheduler")
    assert await target.tables.get("service", "lease", "scheduler") is None
    assert await state.find(target.tables) is None


async def test_rows_too_large_to_travel_together_travel_apart(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    large = {f"text{number}": "\u2028" * 32_000 for number in range(15)}
    for number in range(6):
        await source.tables.upsert("message", "large", f"{number}", large)
    found = await move(source, target, clock)
    assert not any(part.differences for part in found)


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [True, False], ids=["after", "before"])
async def test_killed_at_any_call_it_continues_and_all_is_equal(
    source: Storage, clock: MovableClock, small: None, is_done: bool
) -> None:
    before = await everything(source, clock)
    for at in range(1, RUNS_MAX):
        target = MemoryStorage(clock, STORAGE_NAMES, page_rows=50)
        is_through = await move_with(Fate(at, is_done=is_done), source, target, clock)
        if not is_through:
            await go_on(source, target, clock)
        assert await everything(target, clock) == before, at
        assert await state.find(target.tables) is None, at
        assert "was moved" in await state.why_closed(source.tables), at
        await migrate.reopen(source.tables)
        if is_through:
            assert await everything(source, clock) == before
            return
    raise AssertionError("it makes more calls than anybody can watch")


async def go_on(source: Storage, target: Storage, clock: MovableClock) -> None:
    """The same command once more; killed at its very last call it has nothing left to do."""
    if await state.find(target.tables) or not await state.why_closed(source.tables):
        found = await move(source, target, clock)
        assert not any(part.differences for part in found), found
        return
    with contextlib.suppress(WrongState):
        await move(source, target, clock)


async def test_killed_again_and_again_it_gets_on(
    source: Storage, target: Storage, clock: MovableClock, small: None
) -> None:
    before = await everything(source, clock)
    runs = 1
    while not await move_with(Fate(60 + 5 * runs), source, target, clock):
        runs += 1  # it must live to compare all at once, at last
        assert runs < RUNS_MAX
    assert runs > 4
    assert await everything(target, clock) == before


async def test_after_a_death_only_what_was_not_noted_is_written_again(
    source: Storage, target: Storage, clock: MovableClock, small: None
) -> None:
    whole, rest = Fate(), Fate()
    assert await move_with(whole, source, MemoryStorage(clock, STORAGE_NAMES), clock)
    await migrate.reopen(source.tables)
    assert not await move_with(Fate(whole.calls // 2), source, target, clock)
    assert await move_with(rest, source, target, clock)
    assert rest.calls < whole.calls * 0.75


async def test_asked_to_stop_it_records_its_position_and_continues_later(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    before = await everything(source, clock)
    for looks in (5, 40, 2, 30, 9):
        with pytest.raises(filling.Stopped):
            await migrate.migrate(migration_context(source, target, clock, Onlooker(looks)))
    await move(source, target, clock)
    assert await everything(target, clock) == before


async def test_a_call_that_storage_does_not_answer_is_tried_again(
    source: Storage, target: Storage, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first write claims the target. If it is not answered, nothing is copied yet: the command
    # ends, and test_killed_at_any_call_it_continues_and_all_is_equal starts it again.
    batch, silent = target.tables.batch, iter([False] + [True, False] * 4 + [False] * 1000)

    async def sometimes(*values: object) -> list[str]:
        done = await batch(*values)  # type: ignore[arg-type]
        if next(silent):
            raise Unavailable("no answer; it may have been done")
        return done

    monkeypatch.setattr(target.tables, "batch", sometimes)
    before = await everything(source, clock)
    await move(source, target, clock)
    assert await everything(target, clock) == before


# --- Nobody else is at it -----------------------------------------------------------------------


@pytest.mark.parametrize("side", ["source", "target"])
async def test_while_a_role_is_at_work_nothing_is_moved(
    source: Storage, target: Storage, clock: MovableClock, side: str
) -> None:
    tables = {"source": source, "target": target}[side].tables
    lease = await leases.hold(tables, "sender-a.1", "a.1", now=clock.now(), lease_s=30)
    assert lease
    with pytest.raises(WrongState, match=r"sender-a\.1 is running.*Stop"):
        await move(source, target, clock)
    assert await state.find(source.tables) is None
    await leases.give_up(tables, lease)
    await move(source, target, clock)


async def test_a_role_that_begins_meanwhile_keeps_the_migration_from_ending(
    source: Storage, target: Storage, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry = queue_copy.copy_queue

    async def and_a_sender_starts(*values: object, **named: object) -> int:
        now = clock.now()
        await leases.hold(source.tables, "sender-b.1", "b.1", now=now, lease_s=60)
        return await carry(*values, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_copy, "copy_queue", and_a_sender_starts)
    with pytest.raises(WrongState, match=r"sender-b\.1 is running"):
        await move(source, target, clock)
    assert await state.why_closed(target.tables)


async def test_changes_in_the_source_are_found_and_copied_by_the_next_run(
    source: Storage, target: Storage, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web role that nobody stopped."""
    carry = queue_copy.copy_queue

    async def and_the_web_writes(*values: object, **named: object) -> int:
        await source.tables.upsert("mailinglist", LIST, "email:late@contoso.edu", {"Format": 1})
        await source.tables.delete("mailinglist", LIST, "mailinglist")
        await source.tables.upsert("service", "odd 'partition'", "none", {"now": 1})
        await source.blobs.put("late.txt", b"late")
        return await carry(*values, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_copy, "copy_queue", and_the_web_writes)
    found = await move(source, target, clock)
    assert {part.name: part.differences for part in found if part.differences} == {
        "mailinglist": 2,
        "service": 1,
        "blobs": 1,
    }
    assert await state.why_closed(target.tables)
    monkeypatch.undo()
    found = await move(source, target, clock)
    assert not any(part.differences for part in found)
    assert await everything(target, clock) == await everything(source, clock)


async def test_nothing_opens_a_source_or_a_target_that_is_under_way(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    assert await state.why_closed(source.tables) == ""
    await move_with(Fate(60), source, target, clock)
    assert "is being copied to the new one" in await state.why_closed(source.tables)
    assert "is being filled from the old one" in await state.why_closed(target.tables)
    await move(source, target, clock)
    assert "was moved to the new one" in await state.why_closed(source.tables)
    assert await state.why_closed(target.tables) == ""


async def test_a_source_opened_again_is_gone_over_from_the_beginning(
    source: Storage, target: Storage, clock: MovableClock, small: None
) -> None:
    await move_with(Fate(60), source, target, clock)
    await migrate.reopen(source.tables)
    assert await state.why_closed(source.tables) == ""
    await source.tables.delete("mailinglist", LIST, "mailinglist")  # it was copied before
    found = await move(source, target, clock)
    assert not any(part.differences for part in found)
    assert await target.tables.get("mailinglist", LIST, "mailinglist") is None


async def test_an_open_storage_cannot_be_opened_again(source: Storage) -> None:
    with pytest.raises(NotFound, match="is open"):
        await migrate.reopen(source.tables)


async def test_a_target_under_way_cannot_be_opened(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move_with(Fate(60), source, target, clock)
    with pytest.raises(WrongState, match="being filled"):
        await migrate.reopen(target.tables)


async def test_of_two_at_once_the_earlier_one_ends(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    earlier = await migrate._begin(migration_context(source, target, clock))
    later = await migrate._begin(migration_context(source, target, clock))
    await later.record("message")
    with pytest.raises(TakenOver):
        await earlier.record("message")
    await move(source, target, clock)
    for late in (earlier, later):
        with pytest.raises(TakenOver):
            await late.record("message")


# --- Where it may go ----------------------------------------------------------------------------


async def test_a_target_with_something_in_it_is_refused(
    source: Storage, clock: MovableClock
) -> None:
    for number in range(3):
        target = MemoryStorage(clock, STORAGE_NAMES)
        match number:
            case 0:
                await target.tables.upsert("outbox", "mails", "1", {"Format": 1})
            case 1:
                await target.queues.put(DEAD_LETTER_QUEUE, "an item")
            case 2:
                await target.blobs.put("a.txt", b"")
        with pytest.raises(WrongState, match="not empty"):
            await move(source, target, clock)
        assert await state.find(source.tables) is None


async def test_an_empty_source_is_taken_for_a_wrong_address(
    target: Storage, clock: MovableClock
) -> None:
    with pytest.raises(WrongState, match="the old one is empty"):
        await move(MemoryStorage(clock, STORAGE_NAMES), target, clock)


async def test_a_target_of_another_migration_is_refused(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    other = MemoryStorage(clock, STORAGE_NAMES)
    await fill(other, clock, people=3)
    await move_with(Fate(60), other, target, clock)
    with pytest.raises(WrongState, match="belongs to another migration"):
        await move(source, target, clock)


async def test_a_source_that_is_not_whole_itself_is_refused(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move_with(Fate(60), source, target, clock)
    with pytest.raises(WrongState, match="is itself being filled"):
        await move(target, MemoryStorage(clock, STORAGE_NAMES), clock)


async def test_a_moved_storage_is_moved_again_only_after_it_is_reopened(
    source: Storage, target: Storage, clock: MovableClock
) -> None:
    await move(source, target, clock)
    elsewhere = MemoryStorage(clock, STORAGE_NAMES)
    for there in (target, elsewhere):
        with pytest.raises(WrongState, match="was already moved to the new one"):
            await move(source, there, clock)
    await migrate.reopen(source.tables)
    await move(source, elsewhere, clock)
