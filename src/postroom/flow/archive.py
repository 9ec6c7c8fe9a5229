"""Stage 7 of 7, archive: put away a message once every recipient has an outcome.

Before: report.py found no delivery queued or sending, and people have decided on the held ones.
After: the message is in the archive, where its deliveries already are, and it has no due entry.
When it is old enough, sweep.py deletes the rest, with headers and ledgers.
Dies half-way: the message is copied before it is deleted, and readers look among the live messages
first, so it is never missing. schedule.py deletes a due entry that is left behind.
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
    """A message with held deliveries stays live, because a person has to decide on them."""
    return message.completed_at is not None and not message.books.held


async def put_away(
    tables: Tables, message: Message, etag: str, entry: DueEntry, now: datetime
) -> None:
    """Move the message to the archive. Conflict if it has been revived since."""
    await messages.put_archived(tables, message, now)
    await messages.delete_live(tables, message.ref, etag)
    with contextlib.suppress(Conflict):  # reviving puts a new entry first, which stays
        await messages.delete_due_entry(tables, entry)
