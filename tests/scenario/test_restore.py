"""A restore that is killed, stopped, or asked for what it cannot do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apsw
import pytest

from postroom.backup.create import verify
from postroom.domain.dead_letter import parse_dead_letter
from postroom.domain.errors import BadInput, WrongState
from postroom.migration import filling, state, table_writer
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage, Unavailable
from tests.clock import MovableClock
from tests.scenario.moving_house import (
    Everything,
    Fate,
    Killed,
    Mortal,
    Onlooker,
    everything,
)
from tests.scenario.restoring import back_up, backup_format, restore_into

RUNS_MAX = 400
KILLED_IN_PARTS = 5  # each restore starts threads, which takes long on a busy machine


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and checkpoints so small that a handful of people needs many."""
    monkeypatch.setattr(table_writer, "BATCH_CHANGES_MAX", 8)
    monkeypatch.setattr(filling, "ROWS_PER_CHECKPOINT", 9)
    monkeypatch.setattr(filling, "BLOBS_PER_CHECKPOINT", 2)


async def what_is_there(storage: Storage, clock: MovableClock) -> Everything:
    """Everything but the times of holding, which differ between two runs."""
    found = await everything(storage, clock)
    for rows in found.rows.values():
        for place, row in rows.items():
            rows[place] = [each for each in row if each[0] not in ("TouchedAt", "Deferred")]
    letters = found.items.pop(DEAD_LETTER_QUEUE)
    now = clock.now()
    found.items["dead letters"] = Counter(parse_dead_letter(body, now).body for body in letters)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("first", range(1, 1 + KILLED_IN_PARTS))
async def test_killed_at_any_call_it_is_closed_and_can_be_restored_again(
    source: Storage, clock: MovableClock, small: None, tmp_path: Path, first: int, is_done: bool
) -> None:
    written = await back_up(source, clock, tmp_path)
    whole = MemoryStorage(clock, STORAGE_NAMES)
    await restore_into(whole, written.path, clock)
    expected = await what_is_there(whole, clock)
    for at in range(first, RUNS_MAX, KILLED_IN_PARTS):
        target = MemoryStorage(clock, STORAGE_NAMES, page_rows=50)
        try:
            await restore_into(Mortal(target, Fate(at, is_done=is_done)), written.path, clock)
            is_through = True
        except Killed:
            is_through = False
        if not is_through and (mark := await state.find(target.tables)):
            assert "Run “postroom restore” again" in await state.why_closed(target.tables)
            assert mark.value.id == written.manifest.id
            await restore_into(target, written.path, clock)
        if is_through or await target.tables.get("service", "secret", "installation"):
            assert await what_is_there(target, clock) == expected, at
        else:
            assert not await target.queues.length(MAIL_QUEUE)  # it never began
        if is_through:
            return
    raise AssertionError("it makes more calls than anybody can watch")


async def test_another_backup_starts_an_unfinished_restore_over(
    source: Storage, clock: MovableClock, small: None, tmp_path: Path
) -> None:
    first = await back_up(source, clock, tmp_path, "first")
    target = MemoryStorage(clock, STORAGE_NAMES)
    with pytest.raises(Killed):
        await restore_into(Mortal(target, Fate(60)), first.path, clock)
    assert await state.find(target.tables)
    await source.tables.upsert("service", "more", "row", {"a": 1})
    second = await back_up(source, clock, tmp_path, "second")
    await restore_into(target, second.path, clock)
    assert await target.tables.get("service", "more", "row")
    assert not await state.why_closed(target.tables)


async def test_asked_to_stop_it_records_its_position_and_continues_later(
    source: Storage, clock: MovableClock, small: None, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    target = MemoryStorage(clock, STORAGE_NAMES)
    with pytest.raises(filling.Stopped):
        await restore_into(target, written.path, clock, Onlooker(looks=5))
    observer = Onlooker()
    await restore_into(target, written.path, clock, observer)
    assert not await state.why_closed(target.tables)


async def test_a_storage_with_anything_in_it_is_left_alone(
    source: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    target = MemoryStorage(clock, STORAGE_NAMES)
    await target.queues.put(MAIL_QUEUE, "an item")
    with pytest.raises(WrongState, match=r"is not empty.*move the old one away"):
        await restore_into(target, written.path, clock)
    assert await state.find(target.tables) is None


async def test_a_storage_that_a_migration_has_closed_is_left_alone(
    source: Storage, target: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    closed = state.Migration(
        id="1", status=state.MigrationStatus.MOVED, closing="1", other="elsewhere"
    )
    await state.write(target.tables, closed)
    with pytest.raises(WrongState, match="was moved to elsewhere"):
        await restore_into(target, written.path, clock)


async def test_sessions_and_leases_are_not_restored(
    source: Storage, target: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    await source.tables.upsert("service", "session", "somebody", {"Format": 1})
    await source.tables.upsert("service", "backup", "scheduled", {"Format": 1})
    written = await back_up(source, clock, tmp_path)
    await restore_into(target, written.path, clock)
    for partition, key in (
        ("session", "somebody"),
        ("lease", "scheduler"),
        ("backup", "scheduled"),
        ("migration", "state"),
    ):
        assert await target.tables.get("service", partition, key) is None


# --- Files that are not what they seem -----------------------------------------------------------


async def test_a_changed_row_is_found_and_nothing_is_restored(
    source: Storage, target: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    connection = apsw.Connection(str(written.path))
    connection.execute("UPDATE mailinglist SET properties = replace(properties, 'student1', 'x')")
    connection.close()
    _, damage = await verify(backup_format(clock), written.path)
    assert damage == "Entries of mailinglist have changed."
    with pytest.raises(BadInput, match=r"cannot be restored.*Use another backup"):
        await restore_into(target, written.path, clock)
    assert await state.find(target.tables) is None


@pytest.mark.parametrize("missing", ["azuremaildeadletter", "blobs", "service"])
async def test_a_missing_part_is_found(
    source: Storage, clock: MovableClock, tmp_path: Path, missing: str
) -> None:
    written = await back_up(source, clock, tmp_path)
    connection = apsw.Connection(str(written.path))
    connection.execute(
        {"blobs": "DELETE FROM blob", "service": "DELETE FROM service"}.get(
            missing, f"DELETE FROM item WHERE queue = '{missing}'"
        )
    )
    connection.close()
    _, damage = await verify(backup_format(clock), written.path)
    assert missing in damage


async def test_a_torn_file_and_other_files_are_no_backups(
    source: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    content = written.path.read_bytes()
    torn = tmp_path / "torn"
    torn.write_bytes(content[: len(content) // 2])
    other = tmp_path / "other"
    other.write_bytes(b"not a database" * 1000)
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path in (torn, other, empty, tmp_path / "absent"):
        try:
            _, damage = await verify(backup_format(clock), path)
        except Unavailable as error:
            damage = str(error)
        assert damage, path


async def test_a_storage_file_is_no_backup(tmp_path: Path, clock: MovableClock) -> None:
    storage = await backup_format(clock).create(tmp_path / "plain.db")
    await storage.close()
    with pytest.raises(Unavailable, match="has no manifest"):
        await backup_format(clock).open(tmp_path / "plain.db")


async def test_a_newer_format_is_refused_by_name(
    source: Storage, clock: MovableClock, tmp_path: Path
) -> None:
    written = await back_up(source, clock, tmp_path)
    connection = apsw.Connection(str(written.path))
    connection.execute(
        "UPDATE backup_manifest SET content = json_set(content, '$.format', 2, '$.version', '9.9')"
    )
    connection.close()
    with pytest.raises(Unavailable, match=r"another version of Postroom \(9\.9\)"):
        await backup_format(clock).open(written.path)
