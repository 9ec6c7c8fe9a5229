"""Scheduled backups: the leading scheduler makes one every few hours, and keeps the last ones.

Before: the settings name a folder, an interval and a number.
After: the folder has a new, verified backup; older ones beyond the number are deleted; the result
is recorded. A failure is recorded and logged, and the backup is tried again.
Steps: is one due? > write > read it again > delete older ones > record.
Dies half-way: the record still names the one before, so another scheduler makes one at once.
    while writing            the temporary file is deleted by a later backup once it is a day old
    before it is verified    it stays; nothing older was deleted
    before the record        an extra backup, which a later one deletes
Commit point: the record. Two schedulers that both believe they lead make two backups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from postroom.backup.create import PART, SUFFIX, BackupContext, WrittenBackup, create, verify
from postroom.domain.backup import BackupRecord, BackupWatch
from postroom.domain.errors import BadInput, PostroomError
from postroom.records import backups
from postroom.storage.port import StorageError, Unavailable

log = structlog.get_logger("backup")
RETRY = timedelta(minutes=10)  # after a failure
REST_S = 60.0  # between two looks at the record
ABANDONED_AFTER = timedelta(days=1)  # a temporary file of a process that died
FAILURE_CHARS_MAX = 300


@dataclass
class BackupKeeper:
    """One iteration is `step`; worker.py has the loop around it."""

    context: BackupContext
    folder: Path
    every: timedelta
    keep: int
    leads: Callable[[], bool]
    watch: BackupWatch = field(default_factory=BackupWatch)
    _making: asyncio.Task[WrittenBackup] | None = field(default=None, init=False)

    async def step(self) -> bool:
        """Make a backup if one is due; there is never more to do at once."""
        tables = self.context.storage.tables
        record = self.watch.record = await backups.find(tables)
        now = self.context.clock.now()
        if not self.leads() or not is_due(record, now, self.every):
            return False
        self._making = asyncio.create_task(self._make())
        try:
            written = await self._making
        except asyncio.CancelledError:
            return False  # we stop; the next scheduler makes one
        except (PostroomError, StorageError, OSError) as error:
            record = failed(record, str(error), now)
            log.error("backup_failed", words=record.failure, failures=record.failures)
        else:
            took_s = (self.context.clock.now() - now).total_seconds()
            record = BackupRecord(
                tried_at=now,
                made_at=written.manifest.made_at,
                file=str(written.path),
                size_bytes=written.size_bytes,
                took_s=took_s,
            )
            log.info("backup_made", file=written.path.name, bytes=written.size_bytes, took_s=took_s)
        finally:
            self._making = None
        self.watch.record = record
        await backups.write(tables, record)
        return False

    async def rest_s(self) -> float:
        return REST_S

    def stop(self) -> None:
        """Make no more backups, and abandon the one in progress."""
        if self._making:
            self._making.cancel()

    async def _make(self) -> WrittenBackup:
        """Write one, verify it, and only then delete what is too old."""
        if not await asyncio.to_thread(self.folder.is_dir):
            raise BadInput(f"There is no folder {self.folder}. Create it, or mount its disk.")
        written = await create(self.context, self.folder)
        _, damage = await verify(self.context.format, written.path)
        if damage:
            await asyncio.to_thread(written.path.unlink, missing_ok=True)
            raise Unavailable(f"The new backup could not be read again. {damage}")
        await asyncio.to_thread(
            prune, self.folder, self.keep, written.path, self.context.clock.now()
        )
        return written


def is_due(record: BackupRecord | None, now: datetime, every: timedelta) -> bool:
    """Also true if the record is from the future: then the clock was set back."""
    if record is None or record.tried_at > now:
        return True
    if record.is_failing:
        return now >= record.tried_at + min(RETRY, every)
    return now >= record.tried_at + every


def failed(before: BackupRecord | None, words: str, now: datetime) -> BackupRecord:
    """The record after a failure; it still names the last backup that worked."""
    before = before or BackupRecord(tried_at=now)
    words = words[:FAILURE_CHARS_MAX] or "for an unknown reason"
    return msgspec.structs.replace(
        before, tried_at=now, failure=words, failures=before.failures + 1
    )


def prune(folder: Path, keep: int, newest: Path, now: datetime) -> None:
    """Delete all but the newest of our backups, and temporary files that are no longer written."""
    ours = sorted(folder.glob(f"postroom-*{SUFFIX}"))
    others = [path for path in ours if path != newest]
    for path in others[: max(0, len(others) - keep + 1)]:
        path.unlink(missing_ok=True)
    for path in folder.glob(f".postroom-*{SUFFIX}.*"):
        is_ours = PART in path.name
        if is_ours and path.stat().st_mtime < (now - ABANDONED_AFTER).timestamp():
            path.unlink(missing_ok=True)
