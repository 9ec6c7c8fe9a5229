"""What a migration leaves in each of its two storages: one row, `service` / `migration` / `state`.

In the source it says that the storage is closed, so that nothing starts there; in the target that
it is being filled, and how far. A storage without the row, or with one that says open, is as ever.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum

import msgspec

from postroom.records.rows import from_properties, to_properties
from postroom.storage.port import Conflict, Tables, Unavailable

TABLE, PARTITION = "service", "migration"
_KEY = "state"


class Standing(StrEnum):
    CLOSED = "closed"  # a source that is being copied
    MOVED = "moved"  # a source that was copied, and is not to be worked with any more
    OPEN = "open"  # a source that somebody opened again
    FILLING = "filling"  # a target


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One side of it. `id` tells the source from every other, on both sides."""

    id: str
    standing: Standing
    closing: str  # of the source: a new one, and all must be gone over again
    other: str  # the storage on the other side, in words
    # Only in a target: who fills it, and how far everything is surely in.
    run: str = ""
    stage: str = ""
    partition: str = ""
    key: str = ""
    items: dict[str, int] = {}


class TakenOver(Exception):
    """Another process fills the same target since."""


async def find(tables: Tables) -> tuple[Migration, str] | None:
    row = await tables.get(TABLE, PARTITION, _KEY)
    return (from_properties(row.properties, Migration), row.etag) if row else None


async def write(tables: Tables, migration: Migration) -> str:
    """Whatever stands there; the etag."""
    return await tables.upsert(TABLE, PARTITION, _KEY, to_properties(migration))


async def take(tables: Tables, migration: Migration, etag: str | None) -> str:
    """The new etag; Conflict unless the row is still the one that was seen, or still absent."""
    properties = to_properties(migration)
    if etag is None:
        return await tables.insert(TABLE, PARTITION, _KEY, properties)
    return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)


async def check_run(tables: Tables, run: str) -> None:
    """TakenOver if the target is another's, or filled already."""
    found = await find(tables)
    if found is None or found[0].run != run:
        raise TakenOver


async def replace(tables: Tables, migration: Migration, etag: str) -> str:
    """The new etag, also if an earlier try took effect; TakenOver if the target is another's."""
    properties = to_properties(migration)
    with contextlib.suppress(Conflict):
        return await tables.replace(TABLE, PARTITION, _KEY, properties, etag)
    found = await find(tables)
    if found is None or found[0].run != migration.run:
        raise TakenOver
    return await tables.replace(TABLE, PARTITION, _KEY, properties, found[1])


async def forget(tables: Tables, migration: Migration) -> None:
    """The target is filled; TakenOver if it is another's. Forgotten twice is forgotten."""
    found = await find(tables)
    if found is None:
        return
    if found[0].run != migration.run:
        raise TakenOver
    with contextlib.suppress(Conflict):
        await tables.delete(TABLE, PARTITION, _KEY, found[1])
        return
    raise TakenOver


class StorageClosed(Unavailable):
    """A migration from or to this storage has begun, so nobody may work with it."""


async def why_closed(tables: Tables) -> str:
    """Why nobody may work with this storage, in a sentence; empty if it is open."""
    found = await find(tables)
    if found is None:
        return ""
    migration = found[0]
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
