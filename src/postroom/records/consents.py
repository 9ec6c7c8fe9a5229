"""The consent record as rows of the list's partition.

consent:<address key>:<time>-<nonce>    one event; never changed, deleted only with the list

An event is written in the batch of the change it records, so that neither is there without the
other. Nothing that mails people reads these rows. An import writes none: that would be one more
row for each of a million people, so its declared basis stands on the subscriber's own row.
"""

from __future__ import annotations

import secrets
from collections import deque

from postroom.domain.consent import ORDER, Consent, Event
from postroom.domain.subscriber import Subscriber
from postroom.records.rows import all_rows, from_properties, to_properties
from postroom.records.stamps import stamp
from postroom.storage.port import Insert, Tables, Within

EVENTS_SHOWN_MAX = 1000  # the latest; somebody may be asked again and again for years
_TABLE = "mailinglist"
_CONSENT, _EMAIL = "consent:", "email:"
_END = "~"
_NONCE_BYTES = 3  # for events of one address in one millisecond; the key must stay within 512


def noted(key: str, consent: Consent) -> Insert:
    """The row of one event, for the batch of the change it records."""
    nonce = secrets.token_hex(_NONCE_BYTES)
    return Insert(f"{_CONSENT}{key}:{stamp(consent.at)}-{nonce}", to_properties(consent))


async def note(tables: Tables, list_name: str, key: str, consent: Consent) -> None:
    """For an event that changes nothing else."""
    row = noted(key, consent)
    await tables.insert(_TABLE, list_name, row.key, row.properties)


async def history(tables: Tables, list_name: str, key: str) -> list[Consent]:
    """What is known of one address on one list, oldest first, whether they are there or gone."""
    found = deque(await _imported(tables, list_name, key), maxlen=EVENTS_SHOWN_MAX)
    keys = Within(list_name, f"{_CONSENT}{key}:", f"{_CONSENT}{key}:{_END}")
    async for row in all_rows(tables, _TABLE, keys):
        found.append(from_properties(row.properties, Consent))
    return sorted(found, key=lambda consent: (consent.at, ORDER[consent.event]))


async def _imported(tables: Tables, list_name: str, key: str) -> list[Consent]:
    """What the subscriber's own row tells of an import."""
    row = await tables.get(_TABLE, list_name, _EMAIL + key)
    known = from_properties(row.properties, Subscriber) if row else None
    if known is None or known.imported_at is None:
        return []
    source = known.basis or "import"
    return [Consent(event=Event.IMPORTED, at=known.imported_at, source=source)]
