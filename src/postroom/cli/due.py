"""Check whether a message is waiting for the scheduler."""

from __future__ import annotations

from datetime import datetime

from postroom.domain.message import Status
from postroom.records import messages
from postroom.storage.port import Tables


async def waits_for_scheduler(tables: Tables, now: datetime) -> bool:
    """Return whether a message is due and not all of its work items are queued."""
    async for entry in messages.due_entries(tables, now):
        if entry.due_at <= now:
            found = await messages.find_live(tables, entry.ref)
            if found and found.value.status in (Status.PENDING, Status.QUEUING):
                return True
    return False
