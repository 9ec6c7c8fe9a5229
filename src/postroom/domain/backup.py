"""A backup: the manifest of its file, and the state of the scheduled ones."""

from __future__ import annotations

from datetime import datetime

import msgspec

BACKUP_FORMAT = 1  # of the manifest; a newer one is refused


class PartSum(msgspec.Struct, frozen=True):
    """The count and checksum of one table, one queue or all blobs in a backup."""

    name: str
    count: int
    sum: str  # SHA-256 of all of it, in order


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a backup; the checksums prove that it is complete."""

    format: int = BACKUP_FORMAT
    id: str  # of this backup, in no other one
    made_at: datetime  # when it was begun: it may know nothing of what happened since
    version: str  # of the program that made it
    source: str  # describes the storage, for people
    is_snapshot: bool  # of one moment; otherwise read in an order that keeps it safe
    parts: list[PartSum] = []

    @property
    def rows(self) -> int:
        return sum(part.count for part in self.parts)


class BackupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduled backups as of now: the last one that worked, and what went wrong since."""

    tried_at: datetime
    made_at: datetime | None = None  # of the last one that was verified
    file: str = ""
    size_bytes: int = 0
    took_s: float = 0.0
    failure: str = ""  # why the last try failed; empty if it worked
    failures: int = 0  # since the last one that worked

    @property
    def is_failing(self) -> bool:
        return bool(self.failure)


class BackupWatch:
    """The record of scheduled backups as a scheduler last saw it, for its metrics."""

    record: BackupRecord | None = None
