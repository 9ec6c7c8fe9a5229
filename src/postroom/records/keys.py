"""Access keys as rows: `service`, partition `key`, row key = the key's SHA-256."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec

from postroom.domain.access_key import (
    DEFAULT_RIGHTS,
    AccessKey,
    NoSuchKey,
    Right,
    is_key,
    is_key_id,
    key_hash,
    key_id,
    new_key,
)
from postroom.records.rows import (
    Unreadable,
    all_rows,
    from_properties,
    to_properties,
    unreadable_logged,
)
from postroom.storage.port import Conflict, KeysWithin, Row, Tables, Value

USE_NOTED_EVERY = timedelta(hours=1)  # a write an hour, not one a call
_TABLE = "service"
_PARTITION = "key"
_AFTER_HEX = "g"


async def create(
    tables: Tables,
    name: str,
    lists: tuple[str, ...],
    now: datetime,
    rights: tuple[Right, ...] = DEFAULT_RIGHTS,
) -> tuple[str, AccessKey]:
    """Create a key; return its secret, which cannot be shown again, and what is stored of it."""
    secret = new_key()
    hashed = key_hash(secret)
    key = AccessKey(id=key_id(hashed), name=name, lists=lists, rights=rights, created_at=now)
    await tables.insert(_TABLE, _PARTITION, hashed, _properties(key))
    return secret, key


async def find(tables: Tables, key: str) -> AccessKey | None:
    row = await tables.get(_TABLE, _PARTITION, key_hash(key)) if is_key(key) else None
    return _access_key(row) if row else None


async def every_key(tables: Tables) -> AsyncIterator[AccessKey]:
    """Yield all keys; rows that cannot be read are logged and skipped."""
    async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION)):
        with unreadable_logged(table=_TABLE, partition=_PARTITION):
            yield _access_key(row)


async def revoke(tables: Tables, id_: str) -> AccessKey:
    """Delete a key for good. If two keys ever have the same id, both are deleted, to be safe."""
    revoked = None
    if is_key_id(id_):
        async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION, id_, id_ + _AFTER_HEX)):
            await tables.delete(_TABLE, _PARTITION, row.key)
            revoked = _access_key(row)
    if revoked is None:
        raise NoSuchKey(id_)
    return revoked


async def note_use(tables: Tables, key: str, now: datetime) -> None:
    """Note the use at most once an hour, guarded so that a key revoked meanwhile stays revoked."""
    row = await tables.get(_TABLE, _PARTITION, key_hash(key))
    if row is None:
        return
    known = _access_key(row)
    if known.last_used_at and abs(now - known.last_used_at) < USE_NOTED_EVERY:
        return
    used = msgspec.structs.replace(known, last_used_at=now)
    with contextlib.suppress(Conflict):  # revoked, or noted by another process
        await tables.replace(_TABLE, _PARTITION, row.key, _properties(used), row.etag)


def _properties(key: AccessKey) -> dict[str, Value]:
    """Tuples as text: neither the name of a list nor a right contains a space."""
    return to_properties(key) | {"Lists": " ".join(key.lists), "Rights": " ".join(key.rights)}


def _access_key(row: Row) -> AccessKey:
    """Refuse a row without lists, which would be a key for all lists; the same with rights."""
    flat = dict(row.properties)
    try:
        lists = str(flat.pop("Lists")).split()
        rights = tuple(map(Right, str(flat.pop("Rights")).split()))
    except (KeyError, ValueError) as error:
        raise Unreadable(f"The row of a key has no readable lists or rights: {error}.") from error
    key = from_properties(flat, AccessKey)
    return msgspec.structs.replace(key, lists=tuple(lists), rights=rights)
