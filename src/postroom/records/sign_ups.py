"""Sign-ups that wait for a confirmation, by time.

asked:<time>:<address key>    written with the sign-up, and again at every repeated sign-up

So people who never confirmed are found by one range query, however long the list is. An entry only
points to the subscriber's row, which shows whether they confirmed, unsubscribed or signed up again.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from postroom.domain.subscriber import Subscriber
from postroom.records.rows import FORMAT_ONLY, first_rows
from postroom.records.sortable_time import sortable
from postroom.storage.port import BATCH_CHANGES_MAX, Delete, KeysWithin, Tables, Upsert

_TABLE = "mailinglist"
_ASKED = "asked:"


class SignUpEntry(NamedTuple):
    row_key: str
    key: str  # of the address


def entry(subscriber: Subscriber) -> Upsert:
    """Return the entry of a sign-up, for the batch that writes it."""
    return Upsert(f"{_ASKED}{sortable(asked_at(subscriber))}:{subscriber.key}", FORMAT_ONLY)


def asked_at(subscriber: Subscriber) -> datetime:
    """Return when they last signed up."""
    return subscriber.asked_at or subscriber.since


async def asked_before(
    tables: Tables, list_name: str, before: datetime, *, limit: int
) -> list[SignUpEntry]:
    keys = KeysWithin(list_name, _ASKED, _ASKED + sortable(before))
    rows, _more = await first_rows(tables, _TABLE, keys, limit=limit)
    return [SignUpEntry(row.key, row.key.split(":", 2)[2]) for row in rows]


async def forget(tables: Tables, list_name: str, entries: list[SignUpEntry]) -> None:
    """Delete the entries. Conflict if another process deletes the same ones."""
    for start in range(0, len(entries), BATCH_CHANGES_MAX):
        few = entries[start : start + BATCH_CHANGES_MAX]
        await tables.batch(_TABLE, list_name, [Delete(each.row_key) for each in few])
