"""Write a backup: one file with everything, made while all roles keep running.

Before: any storage, in use.
After: a file that only its owner can read, with every row, blob and work item, and a manifest:
version, time, counts and checksums.
Steps: write to a temporary name beside the target > add the manifest > wait for the disk > rename.
Dies half-way: the temporary file is left; no command accepts its name as a backup. The next
scheduled backup deletes it once it is a day old. An existing file of the same name is not changed.
Commit point: the rename.

An engine that can write a snapshot of one moment does (SQLite). On others, copying.py reads
everything in an order that keeps the copy safe.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from postroom.backup.copying import OnProgress, copy_everything
from postroom.clock import Clock
from postroom.domain.backup import Manifest
from postroom.domain.errors import BadInput
from postroom.migration.row_pairs import BlobSource, RowSource
from postroom.storage.port import Storage, StorageFull, Unavailable

SUFFIX = ".postroom-backup"
PART = ".part"  # the end of a temporary name
_PRIVATE = 0o600  # it holds addresses, password hashes and the installation secret
_DISK_FULL = {28, 122}  # ENOSPC, EDQUOT


class BackupContents(Protocol):
    """A backup that is open for reading."""

    manifest: Manifest

    @property
    def tables(self) -> RowSource: ...
    @property
    def blobs(self) -> BlobSource: ...

    async def items(self, queue: str) -> list[str]:
        """The bodies of the items that waited on a queue."""
        ...

    async def find_damage(self) -> str:
        """Read everything; return what is wrong as a sentence, "" if the backup is complete."""
        ...

    async def close(self) -> None: ...


class BackupFormat(Protocol):
    """Writes and opens the files of backups."""

    async def create(self, path: Path) -> Storage:
        """A new storage in an empty file, to be filled and closed."""
        ...

    async def seal(self, path: Path, manifest: Manifest) -> Manifest:
        """Count everything, add the manifest, and wait until all of it is on the disk."""
        ...

    async def open(self, path: Path) -> BackupContents: ...


@dataclass(frozen=True)
class BackupContext:
    """What is backed up. `snapshot` writes all of one moment into a file, if the engine can."""

    storage: Storage
    source_name: str
    clock: Clock
    format: BackupFormat
    snapshot: Callable[[Path], Awaitable[None]] | None
    on_progress: OnProgress


@dataclass(frozen=True)
class WrittenBackup:
    path: Path
    manifest: Manifest
    size_bytes: int


async def create(context: BackupContext, to: Path) -> WrittenBackup:
    """Write a backup to a file, or into a folder under a name with the time."""
    made_at = context.clock.now()
    path = await asyncio.to_thread(_path_in, to, made_at)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    manifest = Manifest(
        id=secrets.token_hex(8),
        made_at=made_at,
        version=version("postroom"),
        source=context.source_name,
        is_snapshot=context.snapshot is not None,
    )
    try:
        await asyncio.to_thread(_create_private, part)
        if context.snapshot:
            await context.snapshot(part)
        else:
            await _fill(context, part)
        manifest = await context.format.seal(part, manifest)
        size = await asyncio.to_thread(_put_in_place, part, path)
    except OSError as error:
        kind = StorageFull if error.errno in _DISK_FULL else Unavailable
        raise kind(f"The backup cannot be written to {path}: {error.strerror}.") from error
    finally:
        _delete_all(part)
    return WrittenBackup(path, manifest, size)


async def verify(context: BackupFormat, path: Path) -> tuple[Manifest, str]:
    """Read the whole backup; return its manifest, and what is wrong with it ("": nothing)."""
    contents = await context.open(path)
    try:
        return contents.manifest, await contents.find_damage()
    finally:
        await contents.close()


def _path_in(to: Path, made_at: datetime) -> Path:
    path = to / dated_name(made_at) if to.is_dir() else to
    if not path.parent.is_dir():
        raise BadInput(f"There is no folder {path.parent}. Create it first.")
    return path


def dated_name(at: datetime) -> str:
    """A name that sorts by time."""
    return f"postroom-{at:%Y%m%dT%H%M%SZ}{SUFFIX}"


async def _fill(context: BackupContext, part: Path) -> None:
    target = await context.format.create(part)
    try:
        await copy_everything(context.storage, target, context.on_progress)
    finally:
        await target.close()


def _create_private(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    os.fchmod(handle, _PRIVATE)
    os.close(handle)


def _put_in_place(part: Path, path: Path) -> int:
    """Rename, wait until the folder is on the disk, and return the size."""
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path.stat().st_size


def _delete_all(part: Path) -> None:
    """Delete what a failure left: the file, and the log of an engine beside it."""
    for path in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm", "-journal"))):
        path.unlink(missing_ok=True)
