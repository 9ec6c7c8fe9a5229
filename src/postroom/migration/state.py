"""The state of a migration, in each of its two storages: `service` / `migration` / `state`.

In the source the row says that the storage is closed, so that nothing starts there; in the target
that it is being filled, and how far. A storage without the row, or with one that says open, may be
used.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum

import msgspec

from postroom.records.rows import stored, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables, Unavailable

TABLE, PARTITION = "service", "migration"
_KEY = "state"


class Standing(StrEnum):
    CLOSED = "closed"  # a source that is being copied
    MOVED = "moved"  # a source that was copied and must no longer be used
    OPEN = "open"  # a source that was opened again
    FILLING = "filling"  # a target


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a migration. `id` identifies the source, on both sides."""

    id: str
    standing: Standing
    closing: str  # names one closing of the source: after a new one all is compared again
    other: str  # describes the storage on the other side
    # Only in a target: the process that fills it, and up to where all is copied.
    run: str = ""
    stage: str = ""
    partition: str = ""
    key: str = ""
    items: dict[str, int] = {}


class TakenOver(Exception):
    """Another process fills the target now."""


async def find(tables: Tables) -> Stored[Migration] | None:
    row = await tables.get(TABLE, PARTITION, _KEY)
    return stored(row, Migration) if row else None


async def write(tables: Tables, migration: Migration) -> str:
    """Write the row, whatever it says now; the etag."""
    return await tables.upsert(TABLE, PARTITION, _KEY, to_properties(migration))


async def take(tables: Tables, migration: Migration, etag: str | None) -> str:
    """The new etag; Conflict if the row changed, or exists and no etag is given."""
    properties = to_properties(migration)
    if etag is None:
        return await tables.insert(TABLE, PARTITION, _KEY, properties)
    return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)


async def check_run(tables: Tables, run: str) -> None:
    """TakenOver if another process fills the target, or if it is filled already."""
    found = await find(tables)
    if found is None or found.value.run != run:
        raise TakenOver


async def replace(tables: Tables, migration: Migration, etag: str) -> str:
    """The new etag, also of an earlier attempt; TakenOver if another process fills the target."""
    properties = to_properties(migration)
    with contextlib.suppress(Conflict):
        return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)
    found = await find(tables)
    if found is None or found.value.run != migration.run:
        raise TakenOver
    return await tables.replace(TABLE, PARTITION, _KEY, properties, found.etag)


async def forget(tables: Tables, migration: Migration) -> None:
    """Delete the row of a filled target; TakenOver if another process fills it."""
    found = await find(tables)
    if found is None:
        return
    if found.value.run != migration.run:
        raise TakenOver
    with contextlib.suppress(Conflict):
        await tables.delete(TABLE, PARTITION, _KEY, found.etag)
        return
    raise TakenOver


class StorageClosed(Unavailable):
    """A migration from or to this storage has begun, so nobody may work with it."""


async def why_closed(tables: Tables) -> str:
    """Why nobody may work with this storage, in a sentence; empty if it is open."""
    found = await find(tables)
    if found is None:
        return ""
    migration = found.value
    match migration.standing:
        case Standing.OPEN:
            return ""
        case Standing.FILLING:
            return (
                f"This storage is being filled from {migration.other} and is not complete yet. "
                "Finish the migration first."
            )
        case Standing.CLOSED:
            return f"This storage is being copied to {migration.other}. Finish the migration first."
        case Standing.MOVED:
            return f"This storage was moved to {migration.other}. Set POSTROOM_STORAGE to that one."
