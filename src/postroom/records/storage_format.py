"""The format of the whole storage: service / format / storage.

It decides which versions may use the storage at all, while the format number of a row decides which
may read that row. It is raised when an older version would do harm even with rows that it can read;
the changelog mentions it. A version that finds no mark, or an older one, writes its own; one that
finds a newer mark stops before it changes anything.
"""

from __future__ import annotations

import contextlib

from postroom.records.rows import FORMAT
from postroom.storage.port import Conflict, Properties, Tables

STORAGE_FORMAT = 1
_TABLE, _PARTITION, _KEY = "service", "format", "storage"


async def why_newer(tables: Tables) -> str:
    """A sentence why this program must not use the storage; empty if it may."""
    row = await tables.get(_TABLE, _PARTITION, _KEY)
    found = row.properties.get("StorageFormat", 0) if row else 0
    if isinstance(found, int) and found <= STORAGE_FORMAT:
        return ""
    return (
        f"This storage is used by a newer Postroom (format {found}; this one supports "
        f"{STORAGE_FORMAT}). Nothing was changed. Install the newer version on this machine, or "
        "restore a backup that was made before the upgrade."
    )


async def mark(tables: Tables) -> None:
    """Write our format, unless the storage has it; for roles, after `why_newer`."""
    row = await tables.get(_TABLE, _PARTITION, _KEY)
    ours: Properties = {"Format": FORMAT, "StorageFormat": STORAGE_FORMAT}
    with contextlib.suppress(Conflict):  # another role was first
        if row is None:
            await tables.insert(_TABLE, _PARTITION, _KEY, ours)
        elif row.properties.get("StorageFormat") != STORAGE_FORMAT:
            await tables.replace(_TABLE, _PARTITION, _KEY, ours, row.etag)
