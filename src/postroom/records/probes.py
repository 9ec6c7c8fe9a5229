"""Checks that the storage answers; they leave nothing behind."""

from __future__ import annotations

from postroom.records.rows import FORMAT_ONLY
from postroom.storage.port import Tables

_TABLE = "service"
_PARTITION = "doctor"


async def read(tables: Tables) -> None:
    """Raises what storage raises if it cannot be read."""
    await tables.get(_TABLE, _PARTITION, "none")


async def write(tables: Tables, key: str) -> None:
    """Write a row and delete it again; `key` keeps two processes apart."""
    await tables.upsert(_TABLE, _PARTITION, key, FORMAT_ONLY)
    await tables.delete(_TABLE, _PARTITION, key)
