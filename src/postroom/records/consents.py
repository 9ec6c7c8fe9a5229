"""The consent record as rows of the list's partition.

consent:<address key>:<falling time>-<nonce>    one event; never changed, deleted with its list

The latest comes first, so that showing a long history costs no more than a page. An event is
written in the batch of the change it records, so that neither exists without the other. Sending
never reads these rows. An import writes none, to save a row for each of a million people; the
subscriber's own row has the source of the import.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from postroom.domain.consent import ORDER, Consent, ConsentSource, Event, SourceKind
from postroom.domain.subscriber import Subscriber
from postroom.records.rows import find_row, first_rows, from_properties, to_properties
from postroom.records.sortable_time import sortable_newest_first
from postroom.storage.port import BATCH_CHANGES_MAX, Delete, Insert, KeysWithin, Tables

EVENTS_SHOWN_MAX = 1000  # the latest: more than anybody reads on a page
_TABLE = "mailinglist"
_CONSENT, _EMAIL = "consent:", "email:"
_END = "~"
_NONCE_BYTES = 3  # for events of one address in one millisecond; the key must stay within 512


class ConsentHistory(msgspec.Struct, frozen=True):
    """The latest events of one address on one list, oldest first."""

    events: list[Consent]
    has_older: bool  # there are more on record


def event_row(key: str, consent: Consent) -> Insert:
    """Return the row of one event, for the batch of the change it records."""
    unique = f"{sortable_newest_first(consent.at)}-{secrets.token_hex(_NONCE_BYTES)}"
    return Insert(f"{_CONSENT}{key}:{unique}", to_properties(consent))


async def note_for_all(
    tables: Tables, list_name: str, keys: Sequence[str], consent: Consent
) -> None:
    """Record an event that changes nothing else, for up to a hundred addresses."""
    if keys:
        await tables.batch(_TABLE, list_name, [event_row(key, consent) for key in keys])


async def delete_all(tables: Tables, list_name: str, key: str) -> None:
    """Delete the record of one address on one list, for somebody who is erased."""
    keys = KeysWithin(list_name, f"{_CONSENT}{key}:", f"{_CONSENT}{key}:{_END}")
    while True:
        rows, has_more = await first_rows(tables, _TABLE, keys, limit=BATCH_CHANGES_MAX)
        if rows:
            await tables.batch(_TABLE, list_name, [Delete(row.key) for row in rows])
        if not has_more:
            return


async def history(tables: Tables, list_name: str, key: str) -> ConsentHistory:
    keys = KeysWithin(list_name, f"{_CONSENT}{key}:", f"{_CONSENT}{key}:{_END}")
    rows, _more = await first_rows(tables, _TABLE, keys, limit=EVENTS_SHOWN_MAX + 1)
    found = [from_properties(row.properties, Consent) for row in rows]
    person = await find_row(tables, _TABLE, list_name, _EMAIL + key, Subscriber)
    if person and person.value.imported_at:
        source = person.value.import_source or ConsentSource(SourceKind.IMPORT)
        found.append(Consent(event=Event.IMPORTED, at=person.value.imported_at, source=source))
    found.sort(key=lambda consent: (consent.at, ORDER[consent.event]))
    return ConsentHistory(found[-EVENTS_SHOWN_MAX:], has_older=len(found) > EVENTS_SHOWN_MAX)
