"""Whether a message waits for the scheduler at this moment; only looks."""

from __future__ import annotations

from datetime import datetime

from postroom.domain.message import Status
from postroom.records import messages
from postroom.storage.port import Tables


async def waits_for_scheduler(tables: Tables, now: datetime) -> bool:
    """Due, and not all of its work items are put. Those that are, wait for senders."""
    async for entry in messages.due_entries(tables, now):
        if entry.due_at <= now:
            found = await messages.find_live(tables, entry.ref)
            if found and found.value.status in (Status.PENDING, Status.QUEUING):
                return True
    return False
