"""What the scenarios of backups share: a backup of a town, and the same town somewhere else."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from postroom.backup.create import BackupContext, BackupFormat, WrittenBackup, create
from postroom.backup.restore import RestoreContext, RestoreResult, restore
from postroom.clock import Clock
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from postroom.storage.sqlite.backup_file import SqliteBackupFormat, write_snapshot
from postroom.storage.sqlite.storage import SqliteStorage
from tests.scenario.moving_house import Onlooker
from tests.scenario.town import Town

FILE, TARGET = "town.backup", "the new town"


def backup_format(clock: Clock) -> BackupFormat:
    return SqliteBackupFormat(STORAGE_NAMES, clock)


async def back_up(storage: Storage, clock: Clock, folder: Path, file: str = FILE) -> WrittenBackup:
    """As its engine does it: a snapshot of a file, or a copy in order."""
    is_file = isinstance(storage, SqliteStorage)
    snapshot = partial(write_snapshot, folder / "contract.db") if is_file else None
    context = BackupContext(
        storage, "the town", clock, backup_format(clock), snapshot, lambda _part, _done: None
    )
    return await create(context, folder / file)


async def restore_into(
    target: Storage, file: Path, clock: Clock, observer: Onlooker | None = None
) -> RestoreResult:
    observer = observer or Onlooker()
    contents = await backup_format(clock).open(file)
    try:
        context = RestoreContext(
            contents,
            target,
            f"the backup {file.name}",
            TARGET,
            clock,
            observer.may_go_on,
            observer.on_progress,
        )
        return await restore(context)
    finally:
        await contents.close()


async def moved_town(town: Town, file: Path) -> tuple[Town, RestoreResult]:
    """The town that is restored from a backup elsewhere; its sink and its clock are the same."""
    storage = MemoryStorage(town.clock, STORAGE_NAMES)
    restored = await restore_into(storage, file, town.clock)
    return Town(storage, town.clock, town.sink, town.folder), restored
