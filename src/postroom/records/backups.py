"""The state of the scheduled backups, as one row: service / backup / scheduled."""

from __future__ import annotations

from postroom.domain.backup import BackupRecord
from postroom.records.rows import find_row, to_properties
from postroom.storage.port import Tables

_TABLE, _PARTITION, _KEY = "service", "backup", "scheduled"


async def find(tables: Tables) -> BackupRecord | None:
    found = await find_row(tables, _TABLE, _PARTITION, _KEY, BackupRecord)
    return found.value if found else None


async def write(tables: Tables, record: BackupRecord) -> None:
    """Write the record unconditionally: only the leading scheduler makes backups."""
    await tables.upsert(_TABLE, _PARTITION, _KEY, to_properties(record))


async def forget(tables: Tables) -> None:
    await tables.delete(_TABLE, _PARTITION, _KEY)
