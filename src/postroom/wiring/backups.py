"""Backups according to the settings: of which storage, into which file, and when."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

from postroom.backup.copying import OnProgress
from postroom.backup.create import BackupContext, BackupFormat
from postroom.backup.keeper import BackupKeeper
from postroom.backup.restore import RestoreContext
from postroom.clock import Clock
from postroom.records.names import STORAGE_NAMES
from postroom.settings import Settings
from postroom.storage.port import Storage
from postroom.storage.sqlite.backup_file import SqliteBackupFormat
from postroom.wiring.engines import engine_of, opened_storage
from postroom.wiring.parts import Parts, create_private_folder


def backup_format(clock: Clock) -> BackupFormat:
    return SqliteBackupFormat(STORAGE_NAMES, clock)


def backup_context(
    settings: Settings, storage: Storage, clock: Clock, on_progress: OnProgress
) -> BackupContext:
    engine = engine_of(settings)
    return BackupContext(
        storage, engine.name, clock, backup_format(clock), engine.snapshot, on_progress
    )


def build_backup_keeper(parts: Parts, leads: Callable[[], bool]) -> BackupKeeper | None:
    """The keeper of scheduled backups, if the settings name a folder; it works while `leads()`."""
    settings = parts.settings
    if settings.backup_folder is None:
        return None
    return BackupKeeper(
        backup_context(settings, parts.storage, parts.clock, lambda _part, _done: None),
        settings.backup_folder,
        timedelta(hours=settings.backup_every_h),
        settings.backup_keep,
        leads,
        parts.backups,
    )


@contextlib.asynccontextmanager
async def restore_context(
    settings: Settings,
    clock: Clock,
    file: Path,
    may_go_on: Callable[[], bool],
    on_progress: OnProgress,
) -> AsyncIterator[RestoreContext]:
    """The backup and the storage to restore into, both open; the storage is created if missing."""
    contents = await backup_format(clock).open(file)
    try:
        create_private_folder(settings.data)
        async with opened_storage(settings, clock, create=True) as storage:
            yield RestoreContext(
                contents,
                storage,
                f"the backup {file.name}",
                engine_of(settings).name,
                clock,
                may_go_on,
                on_progress,
            )
    finally:
        await contents.close()
