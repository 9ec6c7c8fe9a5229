"""The state of a migration, in each of its two storages: `service` / `migration` / `state`.

In the source the row marks the storage as closed, so that nothing starts there; in the target it
marks the storage as being filled, and records how far. A storage may be used if it has no such row,
or if the row marks it as open.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum

import msgspec

from postroom.records.rows import find_row, to_properties, write_row
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables, Unavailable

TABLE, PARTITION = "service", "migration"
_KEY = "state"


class MigrationStatus(StrEnum):
    CLOSED = "closed"  # a source that is being copied
    MOVED = "moved"  # a source that was copied and must no longer be used
    OPEN = "open"  # a source that was opened again
    FILLING = "filling"  # a target
    RESTORING = "restoring"  # it is being filled from a backup


INCOMPLETE = frozenset({MigrationStatus.FILLING, MigrationStatus.RESTORING})


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a migration. `id` identifies the source, on both sides."""

    id: str
    status: MigrationStatus
    closing: str  # a new id each time the source is closed, after which all is compared again
    other: str  # describes the storage on the other side
    # Only in a target: the process that fills it, and the position up to which all is copied.
    run: str = ""
    stage: str = ""
    partition: str = ""
    key: str = ""
    items: dict[str, int] = {}


class TakenOver(Exception):
    """Another process is filling the target now."""


async def find(tables: Tables) -> Stored[Migration] | None:
    return await find_row(tables, TABLE, PARTITION, _KEY, Migration)


async def write(tables: Tables, migration: Migration) -> str:
    """Write the row unconditionally; return its etag."""
    return await tables.upsert(TABLE, PARTITION, _KEY, to_properties(migration))


async def claim(tables: Tables, migration: Migration, etag: str | None) -> str:
    """Return the new etag; Conflict if the row changed, or exists and no etag is given."""
    return await write_row(tables, TABLE, PARTITION, _KEY, to_properties(migration), etag)


async def check_run(tables: Tables, run: str) -> str:
    """Return the etag; TakenOver if another process fills the target, or if it is complete."""
    found = await find(tables)
    if found is None or found.value.run != run:
        raise TakenOver
    return found.etag


async def replace(tables: Tables, migration: Migration, etag: str) -> str:
    """Return the new etag, even if an earlier attempt took effect; TakenOver as in check_run."""
    properties = to_properties(migration)
    with contextlib.suppress(Conflict):
        return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)
    etag = await check_run(tables, migration.run)
    return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)


async def delete(tables: Tables, run: str) -> None:
    """Delete the row of a complete target; TakenOver if another process fills it."""
    found = await find(tables)
    if found is None:
        return
    if found.value.run != run:
        raise TakenOver
    try:
        await tables.delete(TABLE, PARTITION, _KEY, found.etag)
    except Conflict:
        raise TakenOver from None


class StorageClosed(Unavailable):
    """A migration from or to this storage has begun, so it must not be used."""


async def why_closed(tables: Tables) -> str:
    """A sentence why this storage must not be used; empty if it is open."""
    found = await find(tables)
    if found is None:
        return ""
    migration = found.value
    match migration.status:
        case MigrationStatus.OPEN:
            return ""
        case MigrationStatus.FILLING:
            return (
                f"This storage is being filled from {migration.other} and is not complete yet. "
                "Finish the migration first."
            )
        case MigrationStatus.RESTORING:
            return (
                f"This storage is being restored from {migration.other} and is not complete yet. "
                "Run “postroom restore” again to finish it."
            )
        case MigrationStatus.CLOSED:
            return f"This storage is being copied to {migration.other}. Finish the migration first."
        case MigrationStatus.MOVED:
            return f"This storage was moved to {migration.other}. Set POSTROOM_STORAGE to that one."
