"""Subscribers as rows of their list's partition.

email:<address key>          the subscriber; stays, marked, when somebody is gone
guid:<guid>                  pointer to the address key, written with the subscriber
left:<time>:<address key>    who left when: a sender learns by one range query whom to skip
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec

from postroom.domain.errors import AlreadyThere
from postroom.domain.subscriber import Gone, Subscriber
from postroom.records.rows import FORMAT, all_rows, from_properties, to_properties
from postroom.storage.port import (
    Change,
    Conflict,
    Delete,
    Insert,
    Replace,
    Row,
    Tables,
    Upsert,
    Value,
    Within,
)

TABLE = "mailinglist"
_EMAIL, _GUID, _LEFT = "email:", "guid:", "left:"
_END = "~~~~"  # sorts after every key that follows a prefix


def joining(subscriber: Subscriber) -> list[Change]:
    """The rows of a new subscriber: one batch, or part of an import's batch."""
    return [
        Insert(_EMAIL + subscriber.key, to_properties(subscriber)),
        Insert(_GUID + subscriber.guid, _pointer(subscriber)),
    ]


async def join(tables: Tables, subscriber: Subscriber) -> None:
    try:
        await tables.batch(TABLE, subscriber.list_name, joining(subscriber))
    except Conflict:
        raise AlreadyThere(f"{subscriber.address} is on {subscriber.list_name} already.") from None


async def find(tables: Tables, list_name: str, key: str) -> tuple[Subscriber, str] | None:
    """The subscriber with this address key, gone or not, and the row's etag."""
    row = await tables.get(TABLE, list_name, _EMAIL + key)
    return (subscriber_of(row), row.etag) if row else None


async def find_by_guid(tables: Tables, list_name: str, guid: str) -> tuple[Subscriber, str] | None:
    """Only who is there: the pointer goes when its owner does."""
    pointer = await tables.get(TABLE, list_name, _GUID + guid)
    if pointer is None:
        return None
    found = await find(tables, list_name, str(pointer.properties["key"]))
    return found if found and found[0].guid == guid and not found[0].gone else None


async def replace(tables: Tables, subscriber: Subscriber, etag: str) -> None:
    """Conflict if somebody else changed the subscriber meanwhile."""
    key = _EMAIL + subscriber.key
    await tables.replace(TABLE, subscriber.list_name, key, to_properties(subscriber), etag)


async def join_again(tables: Tables, subscriber: Subscriber, etag: str) -> None:
    """Somebody who was gone is back, under a new GUID."""
    await tables.batch(
        TABLE,
        subscriber.list_name,
        [
            Replace(_EMAIL + subscriber.key, to_properties(subscriber), etag),
            Insert(_GUID + subscriber.guid, _pointer(subscriber)),
        ],
    )


async def leave(
    tables: Tables, subscriber: Subscriber, etag: str, *, why: Gone, now: datetime
) -> None:
    """Mark, pointer and departure in one write. Conflict if the row changed meanwhile."""
    gone = msgspec.structs.replace(
        subscriber, gone=why, verified=False, since=now, attributes={}, asked_at=None
    )
    await tables.batch(
        TABLE,
        subscriber.list_name,
        [
            Replace(_EMAIL + subscriber.key, to_properties(gone), etag),
            Delete(_GUID + subscriber.guid),
            Upsert(
                f"{_LEFT}{_stamp(now)}:{subscriber.key}", {"v": FORMAT, "guid": subscriber.guid}
            ),
        ],
    )


async def verified_after(
    tables: Tables, list_name: str, after_key: str, *, limit: int
) -> tuple[list[Subscriber], bool]:
    """The next verified subscribers in key order, and whether these were the last."""
    # The space sorts before every character of a key: strictly after `after_key`.
    start = f"{_EMAIL}{after_key} " if after_key else _EMAIL
    keys = Within(list_name, start, _EMAIL + _END)
    found: list[Subscriber] = []
    after: str | None = None
    while True:
        page = await tables.scan(
            TABLE, keys, where={"verified": True}, limit=limit - len(found), after=after
        )
        found += map(subscriber_of, page.rows)
        if page.next is None or len(found) == limit:
            return found, page.next is None
        after = page.next


def subscriber_of(row: Row) -> Subscriber:
    return from_properties(row.properties, Subscriber)


async def everyone(tables: Tables, list_name: str) -> AsyncIterator[Subscriber]:
    keys = Within(list_name, _EMAIL, _EMAIL + _END)
    async for row in all_rows(tables, TABLE, keys):
        yield subscriber_of(row)


async def left_since(
    tables: Tables, list_name: str, since: datetime
) -> AsyncIterator[tuple[datetime, str]]:
    """(when, GUID) of those who left. By GUID, so that somebody who came back is not meant."""
    keys = Within(list_name, _LEFT + _stamp(since), _LEFT + _END)
    async for row in all_rows(tables, TABLE, keys):
        milliseconds = int(row.key[len(_LEFT) :].partition(":")[0])
        yield datetime.fromtimestamp(milliseconds / 1000, UTC), str(row.properties["guid"])


async def rows_of_list(tables: Tables, list_name: str, *, limit: int) -> list[Row]:
    """Some rows of the list, whatever they are, or none if there are none: for deleting it."""
    after: str | None = None
    while True:
        page = await tables.scan(TABLE, Within(list_name), limit=limit, after=after)
        if page.rows or page.next is None:
            return page.rows
        after = page.next


async def delete_rows(tables: Tables, list_name: str, rows: list[Row]) -> None:
    """As they were read: a list of the same name that was made since is another one."""
    await tables.batch(TABLE, list_name, [Delete(row.key, row.etag) for row in rows])


def _pointer(subscriber: Subscriber) -> dict[str, Value]:
    return {"v": FORMAT, "key": subscriber.key}


def _stamp(at: datetime) -> str:
    """Milliseconds since the epoch, in 15 digits, so that they sort."""
    return f"{int(at.timestamp() * 1000):015d}"
