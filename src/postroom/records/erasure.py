"""Deletes the rows that a list has about one person: the subscriber and the consent record.

Rows of messages that were sent to them expire with those messages. The suppression entry, which has
only a hash of the address, must be stored first, because it makes senders skip the person.
"""

from __future__ import annotations

from datetime import datetime

from postroom.records import consents, counts, subscribers
from postroom.records.retry import retry_on_conflict
from postroom.records.subscribers import TABLE
from postroom.storage.port import Change, Delete, Tables

_EMAIL, _GUID = "email:", "guid:"


async def erase_from_list(tables: Tables, list_name: str, key: str, now: datetime) -> bool:
    """Delete everything a list has about an address; return whether there was a subscriber."""

    async def erase() -> bool:
        found = await subscribers.find(tables, list_name, key)
        if found is None:
            return False
        one, etag = found
        changes: list[Change] = [Delete(_EMAIL + key, etag), *counts.changes([(one, None)], now)]
        await tables.batch(TABLE, list_name, changes)
        await tables.delete(TABLE, list_name, _GUID + one.guid)
        return True

    was_there = await retry_on_conflict(erase)
    await consents.delete_all(tables, list_name, key)
    return was_there
