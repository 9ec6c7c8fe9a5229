"""Changes to several subscribers of one list in one write.

As in subscribers.py, the batch also has the change of the counts (counts.py), the events for
the consent record (consents.py) and the entries of sign-ups (sign_ups.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from postroom.domain.consent import Consent
from postroom.domain.subscriber import Subscriber
from postroom.records import consents, counts, sign_ups
from postroom.records.rows import stored, to_properties
from postroom.records.stored import Stored
from postroom.records.subscribers import TABLE
from postroom.storage.port import BATCH_CHANGES_MAX, Change, KeysWithin, Replace, Tables

EDITS_MAX = (BATCH_CHANGES_MAX - 1) // 3  # a row, an event and a sign-up each, and the counts
_EMAIL, _END = "email:", "~~~~"


class SubscriberEdit(NamedTuple):
    before: Subscriber
    after: Subscriber
    etag: str  # of the row with `before`
    consent: Consent | None = None


async def replace_together(
    tables: Tables, list_name: str, edits: Sequence[SubscriberEdit], at: datetime
) -> None:
    """Replace at most EDITS_MAX. Conflict, and none is replaced, if one has changed."""
    changes: list[Change] = []
    for edit in edits:
        changes.append(Replace(_EMAIL + edit.after.key, to_properties(edit.after), edit.etag))
        changes += [consents.event_row(edit.after.key, edit.consent)] if edit.consent else []
        changes += [sign_ups.entry(edit.after)] if edit.after.expires else []
    changes += counts.changes([(edit.before, edit.after) for edit in edits], at)
    await tables.batch(TABLE, list_name, changes)


async def unverified_page(
    tables: Tables, list_name: str, after: str | None, *, limit: int
) -> tuple[list[Stored[Subscriber]], str | None]:
    """Return people who have not confirmed, in key order, and where the next page begins, if any.

    A page may be short, even empty, and not be the last, because it skips people who unsubscribed.
    """
    keys = KeysWithin(list_name, _EMAIL, _EMAIL + _END)
    page = await tables.scan(TABLE, keys, where={"Verified": False}, limit=limit, after=after)
    found = [stored(row, Subscriber) for row in page.rows]
    return [each for each in found if not each.value.inactive_reason], page.next
