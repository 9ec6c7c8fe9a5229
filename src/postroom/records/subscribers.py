"""Subscribers as rows of their list's partition.

email:<address key>          the subscriber; the row stays, marked, when they unsubscribe
guid:<guid>                  look-up row by GUID, written with the subscriber. It stays when they
                             unsubscribe, so that every link ever sent can be followed
left:<time>:<address key>    a departure; a sender finds all of them by one range query
left:<time>:                 a message to the list began

The `left:` rows are a log. Its writers make sure that no row has a much earlier time than the
existing rows, however wrong the clock of their machine is. So a sender that has read the log up to
some row only has to continue from shortly before it.

Every change of a subscription is written here, and the same batch has the change of the counts
(counts.py), the event for the consent record (consents.py) and a sign-up's entry (sign_ups.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from postroom.domain.consent import Consent
from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, Subscriber, SubscriberFilter
from postroom.domain.texts import _
from postroom.records import consents, counts, lists, sign_ups
from postroom.records.rows import (
    FORMAT,
    all_rows,
    find_row,
    first_rows,
    from_properties,
    to_properties,
)
from postroom.records.sortable_time import parse_sortable, sortable
from postroom.records.stored import Stored
from postroom.storage.port import (
    SCAN_ROWS_MAX,
    Change,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Properties,
    Replace,
    Row,
    Tables,
    Upsert,
    Value,
)

TABLE = "mailinglist"
ROWS_READ_MAX = 3000  # rows read for a page: some tens of milliseconds on any engine
EMAIL, _GUID, _LEFT = "email:", "guid:", "left:"
MOVES_MAX = 10  # changes of address over which a link is followed
LOG_SKEW = timedelta(minutes=10)  # how far before the newest departure it knows a sender reads
_LOG_TRIES_MAX = 10
_attributes = msgspec.json.Decoder(dict[str, str]).decode
END = "~~~~"  # sorts after every key that follows a prefix


def joining(subscriber: Subscriber) -> list[Change]:
    """Return the rows of a new subscriber, for a batch that also changes the counts.

    People who are added as unsubscribed were never sent a link, so they need no look-up row.
    """
    row = Insert(EMAIL + subscriber.key, to_properties(subscriber))
    if subscriber.inactive_reason:
        return [row]
    return [row, Insert(_GUID + subscriber.guid, _pointer(subscriber))]


async def join(tables: Tables, newcomer: Subscriber, consent: Consent | None = None) -> str:
    """Add a subscriber; the etag. An import writes no consent event: the row has its source."""
    changes = [*joining(newcomer), *_beside(None, newcomer, consent)]
    try:
        return (await tables.batch(TABLE, newcomer.list_name, changes))[0]
    except Conflict:
        raise AlreadyThere(
            _("{address} is already on {name}.", address=newcomer.address, name=newcomer.list_name)
        ) from None


async def join_together(tables: Tables, newcomers: Sequence[Subscriber], now: datetime) -> None:
    """Add at most 49 subscribers, without events. Conflict, and none is added, if one exists."""
    changes = [change for one in newcomers for change in joining(one)]
    changes.append(counts.newcomers(newcomers, now))
    await tables.batch(TABLE, newcomers[0].list_name, changes)


async def find(tables: Tables, list_name: str, key: str) -> Stored[Subscriber] | None:
    """Find the subscriber with this address key, unsubscribed or not."""
    return await find_row(tables, TABLE, list_name, EMAIL + key, Subscriber)


async def find_list_of(tables: Tables, guid: str) -> str | None:
    """Find the list on which somebody has, or had, this GUID.

    It takes one read for every list, but only items of other programs need it. An index over all
    lists would need one more row per subscriber, and no transaction spans two partitions.
    """
    async for name in lists.every_name(tables):
        if await tables.get(TABLE, name, _GUID + guid):
            return name
    return None


async def find_by_guid(tables: Tables, list_name: str, guid: str) -> Stored[Subscriber] | None:
    """Find a current subscriber, unless they unsubscribed and joined again since."""
    there = (await find_linked(tables, list_name, guid)).there
    return there if there and there.value.guid == guid else None


class LinkedSubscriber(msgspec.Struct, frozen=True):
    """The person to whom an old link belongs now."""

    is_known: bool  # it was sent to a subscriber of this list
    there: Stored[Subscriber] | None = None  # the current one, under any GUID, and the etag
    inactive: Subscriber | None = None  # the one who unsubscribed or moved


async def find_linked(tables: Tables, list_name: str, guid: str) -> LinkedSubscriber:
    """Find the subscriber with the address the link was sent to, or the one they changed to."""
    pointer = await tables.get(TABLE, list_name, _GUID + guid)
    if pointer is None:
        return LinkedSubscriber(False)
    key = str(pointer.properties["AddressKey"])
    inactive: Subscriber | None = None
    for _move in range(MOVES_MAX):
        found = await find(tables, list_name, key)
        if found is None or not found.value.inactive_reason:
            return LinkedSubscriber(True, found, inactive)
        inactive = found.value
        if not inactive.moved_to:
            break
        key = inactive.moved_to
    return LinkedSubscriber(True, inactive=inactive)


async def replace(
    tables: Tables, before: Subscriber, after: Subscriber, etag: str, consent: Consent | None = None
) -> None:
    """Replace the subscriber. Conflict if they have changed since.

    A change of `verified` comes with its event and with a new `since`.
    """
    row = Replace(EMAIL + after.key, to_properties(after), etag)
    await tables.batch(TABLE, after.list_name, [row, *_beside(before, after, consent)])


async def join_again(
    tables: Tables, before: Subscriber, newcomer: Subscriber, etag: str, consent: Consent
) -> Stored[Subscriber]:
    """Re-add somebody who had unsubscribed, under a new GUID; return what is stored."""
    back = msgspec.structs.replace(
        newcomer, import_source=before.import_source, imported_at=before.imported_at
    )
    changes = [
        Replace(EMAIL + back.key, to_properties(back), etag),
        Insert(_GUID + back.guid, _pointer(back)),
        *_beside(before, back, consent),
    ]
    etags = await tables.batch(TABLE, back.list_name, changes)
    return Stored(back, etags[0])


class AddressChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of address within a list: two rows, two events, another GUID."""

    before: Subscriber
    after: Subscriber
    replaced: Stored[Subscriber] | None  # the row that the new address had before
    removed: Consent  # of the old address
    added: Consent  # of the new one
    left_at: datetime  # the real time: senders read departures from just before now


async def move(tables: Tables, move: AddressChange, etag: str) -> str:
    """Move to a new address; its row's etag. Conflict if a row or the address has changed since.

    The old row stays, removed and with a departure, so that it is no longer mailed and no import
    re-adds it. It names the new address, so that links in old emails still work.
    """
    before = move.before
    after = move.after
    there = move.replaced
    inactive = _made_inactive(before, InactiveReason.REMOVED, move.removed.at, moved_to=after.key)
    left_at = await _end_of_log(tables, before.list_name, move.left_at)
    key = EMAIL + after.key
    properties = to_properties(after)
    changes = [
        Replace(key, properties, there.etag) if there else Insert(key, properties),
        Insert(_GUID + after.guid, _pointer(after)),
        Replace(EMAIL + before.key, to_properties(inactive), etag),
        _departure(before, left_at),
        *_beside(before, inactive, move.removed),
        *_beside(there.value if there else None, after, move.added),
    ]
    etags = await tables.batch(TABLE, after.list_name, changes)
    await repeat_departure(tables, before, left_at)
    return etags[0]


async def leave(
    tables: Tables,
    subscriber: Subscriber,
    etag: str,
    *,
    why: InactiveReason,
    consent: Consent,
    left_at: datetime | None = None,
) -> None:
    """Unsubscribe, with mark and departure in one write. `left_at` is now if `consent` is older."""
    inactive = _made_inactive(subscriber, why, consent.at)
    left_at = await _end_of_log(tables, subscriber.list_name, left_at or consent.at)
    changes = [
        Replace(EMAIL + subscriber.key, to_properties(inactive), etag),
        _departure(subscriber, left_at),
        *_beside(subscriber, inactive, consent),
    ]
    await tables.batch(TABLE, subscriber.list_name, changes)
    await repeat_departure(tables, subscriber, left_at)


async def expire(
    tables: Tables, subscriber: Subscriber, etag: str, entry: sign_ups.SignUpEntry, consent: Consent
) -> None:
    """Delete a sign-up that was never confirmed. Conflict if the row has changed since.

    People who had unsubscribed before are unsubscribed again, because a stranger's sign-up must
    not re-add them.
    """
    key = EMAIL + subscriber.key
    why = subscriber.inactive_reason_before
    inactive = _made_inactive(subscriber, why, consent.at) if why else None
    changes = [
        Replace(key, to_properties(inactive), etag) if inactive else Delete(key, etag),
        Delete(_GUID + subscriber.guid),
        Delete(entry.row_key),
        *counts.changes([(subscriber, inactive)], consent.at),
        consents.event_row(subscriber.key, consent),
    ]
    await tables.batch(TABLE, subscriber.list_name, changes)


async def mark_message_start(tables: Tables, list_name: str, now: datetime) -> None:
    """Mark where a message starts, so that every later departure comes after this row."""
    row: Properties = {"Format": FORMAT, "SubscriberGUID": ""}
    await tables.upsert(TABLE, list_name, f"{_LEFT}{sortable(now)}:", row)


async def _end_of_log(tables: Tables, list_name: str, now: datetime) -> datetime:
    """Return the time for a new row: now, or that of the newest row if our clock is behind."""
    keys = KeysWithin(list_name, _LEFT + sortable(now), _LEFT + END)
    newest = now
    async for row in all_rows(tables, TABLE, keys):
        newest = max(newest, parse_sortable(row.key.split(":", 2)[1]))
    return newest


async def repeat_departure(tables: Tables, subscriber: Subscriber, left_at: datetime) -> None:
    """Log a departure again if newer rows arrived while it was being written.

    A sender that has read those does not read as far back as the first row. If the process dies
    before this is done, its caller gets no answer, and trying again repeats it.
    """
    for _try in range(_LOG_TRIES_MAX):
        newest = await _end_of_log(tables, subscriber.list_name, left_at)
        if newest <= left_at + LOG_SKEW / 2:
            return
        left_at = newest
        row = _departure(subscriber, left_at)
        await tables.upsert(TABLE, subscriber.list_name, row.key, row.properties)
    raise Conflict("the log of departures grows too fast")


def _departure(subscriber: Subscriber, at: datetime) -> Upsert:
    row: Properties = {"Format": FORMAT, "SubscriberGUID": subscriber.guid}
    return Upsert(f"{_LEFT}{sortable(at)}:{subscriber.key}", row)


def _made_inactive(
    subscriber: Subscriber, why: InactiveReason, now: datetime, moved_to: str | None = None
) -> Subscriber:
    return msgspec.structs.replace(
        subscriber,
        inactive_reason=why,
        verified=False,
        since=now,
        attributes={},
        asked_at=None,
        expires=False,
        inactive_reason_before=None,
        moved_to=moved_to,
        confirmation=None,
    )


def _beside(
    before: Subscriber | None, after: Subscriber, consent: Consent | None
) -> Iterator[Change]:
    yield from counts.changes([(before, after)], after.since)
    if consent:
        yield consents.event_row(after.key, consent)
    if after.expires:
        yield sign_ups.entry(after)


class SubscriberPage(msgspec.Struct, frozen=True):
    """Some people of a list in key order, and how far the list was read for them."""

    people: list[Subscriber]
    looked_at: int  # rows
    next: str | None  # the next page begins after this key; None: there is none


async def scan_people(
    tables: Tables,
    list_name: str,
    *,
    prefix: str = "",
    filter_: SubscriberFilter = SubscriberFilter.ALL,
    after: str = "",
    limit: int,
) -> SubscriberPage:
    """Return the next people with this key prefix and status.

    Reads at most ROWS_READ_MAX rows, so that a rare status in a long list costs no more than a
    common one. A page may be short, even empty, and not be the last.
    """
    # The space sorts before every character of a key: strictly after `after`.
    start = f"{EMAIL}{after} " if after else EMAIL
    keys = KeysWithin(list_name, max(start, EMAIL + prefix), EMAIL + prefix + END)
    people: list[Subscriber] = []
    rows_read = 0
    last = ""
    next_: str | None = None
    while rows_read < ROWS_READ_MAX:
        rows = limit - len(people) if filter_ is SubscriberFilter.ALL else SCAN_ROWS_MAX
        found = await tables.scan(TABLE, keys, limit=rows, after=next_)
        for row in found.rows:
            rows_read += 1
            last = row.key.removeprefix(EMAIL)
            if _fits(row, filter_):
                people.append(from_properties(row.properties, Subscriber))
            if len(people) == limit:
                is_end = found.next is None and row is found.rows[-1]
                return SubscriberPage(people, rows_read, None if is_end else last)
        next_ = found.next
        if next_ is None:
            return SubscriberPage(people, rows_read, None)
    return SubscriberPage(people, rows_read, last)


def _fits(row: Row, filter_: SubscriberFilter) -> bool:
    """Check the row as it is, because most rows that are read are not shown."""
    verified = bool(row.properties.get("Verified"))
    return filter_.fits(verified=verified, is_inactive="InactiveReason" in row.properties)


async def everyone(
    tables: Tables, list_name: str, filter_: SubscriberFilter = SubscriberFilter.ALL
) -> AsyncIterator[Subscriber]:
    async for row in all_rows(tables, TABLE, KeysWithin(list_name, EMAIL, EMAIL + END)):
        if _fits(row, filter_):
            yield from_properties(row.properties, Subscriber)


async def attributes_of_all(
    tables: Tables, list_name: str, filter_: SubscriberFilter
) -> AsyncIterator[dict[str, str]]:
    """Yield the attributes alone, which is half the work of `everyone`."""
    async for row in all_rows(tables, TABLE, KeysWithin(list_name, EMAIL, EMAIL + END)):
        if _fits(row, filter_):
            yield _attributes(str(row.properties.get("Attributes", "{}")))


class DeparturesFound(msgspec.Struct, frozen=True):
    """Departures from a list, and the list itself (None: deleted).

    A departure names GUID and address key: people who joined again have another GUID, and people
    who moved to another address with the same GUID have not left.
    """

    mailing_list: MailingList | None
    departures: list[tuple[datetime, tuple[str, str]]]


async def left_since(tables: Tables, list_name: str, since: datetime) -> DeparturesFound:
    """Read them by one range query, because the row of a list comes right after its departures."""
    found: MailingList | None = None
    departures: list[tuple[datetime, tuple[str, str]]] = []
    keys = KeysWithin(list_name, _LEFT + sortable(since), lists.KEY + END)
    async for row in all_rows(tables, TABLE, keys):
        if row.key == lists.KEY:
            found = from_properties(row.properties, MailingList)
        else:
            _left, at, key = row.key.split(":", 2)
            guid = str(row.properties["SubscriberGUID"])
            departures.append((parse_sortable(at), (guid, key)))
    return DeparturesFound(found, departures)


async def rows_of_list(tables: Tables, list_name: str, *, limit: int) -> list[Row]:
    """Return some rows of a list, of any kind, to delete them; empty if there are no more."""
    rows, _more = await first_rows(tables, TABLE, KeysWithin(list_name), limit=limit)
    return rows


async def delete_rows(tables: Tables, list_name: str, rows: list[Row]) -> None:
    """Delete rows as they were read, so that a new list of the same name keeps its own."""
    await tables.batch(TABLE, list_name, [Delete(row.key, row.etag) for row in rows])


def _pointer(subscriber: Subscriber) -> dict[str, Value]:
    return {"Format": FORMAT, "AddressKey": subscriber.key}
