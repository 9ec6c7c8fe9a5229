"""Stage 7 of 7, archive: put away a message once every recipient has an outcome.

Before: report.py found nobody queued and nobody being sent; people have decided on the held.
After: the message stands in the archive, where its deliveries are already, its due entry is gone;
age makes sweep.py delete the rest, with headers and ledgers.
Dies half-way: it is copied before it is deleted, and a reader looks among the living first, so that
the message is never missing. A due entry that is left behind is cleared away by schedule.py.
Commit point: the deletion of the live message row.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from postroom.domain.message import Message
from postroom.records import messages
from postroom.records.messages import DueEntry
from postroom.storage.port import Conflict, Tables


def is_ready(message: Message) -> bool:
    """Held deliveries keep a message among the living: a person has to decide on them."""
    return message.completed_at is not None and not message.books.held


async def put_away(
    tables: Tables, message: Message, etag: str, entry: DueEntry, now: datetime
) -> None:
    """Conflict if the message was revived meanwhile."""
    await messages.put_archived(tables, message, now)
    await messages.delete_live(tables, message.ref, etag)
    with contextlib.suppress(Conflict):  # who revives it puts the entry first: that one stays
        await messages.delete_due_entry(tables, entry)
