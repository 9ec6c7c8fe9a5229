"""Stage 2 of 7, schedule: find the messages that are due and start them.

Before: compose.py left a message pending, with a due entry under its date.
After: the message is queuing, and fan_out.py continues with it.
Dies half-way: before the write the message is still pending and found again; after it, queuing.
Commit point: the message's status. A due entry only points to the message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from postroom.clock import Clock
from postroom.domain.message import Message, Status
from postroom.records import counts, messages, subscribers
from postroom.records.messages import DueEntry
from postroom.records.rows import Unreadable
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables

# An entry is put before its message is ready, and a message may come back from the archive, so that
# no newer entry counts as a leftover.
LEFTOVER_AFTER = timedelta(minutes=10)


class DueMessage(msgspec.Struct, frozen=True):
    """A message that needs a step of the scheduler."""

    message: Message
    etag: str
    entry: DueEntry


class Agenda(msgspec.Struct, frozen=True):
    """The due entries up to tomorrow, read at one moment."""

    due: list[DueEntry]
    next_at: float | None  # when the next one is due, in seconds since the epoch
    prefetched: dict[str, Stored[Message]]  # messages of due entries that were read with them


async def read_agenda(tables: Tables, now: datetime) -> Agenda:
    due: list[DueEntry] = []
    later: list[float] = []
    async for entry in messages.due_entries(tables, now):
        if entry.is_due or entry.due_at <= now:
            due.append(entry)
        else:
            later.append(entry.due_at.timestamp())
    prefetched = await messages.find_live_together(tables, [entry.ref for entry in due])
    return Agenda(due, min(later, default=None), prefetched)


class Leftovers:
    """Due entries without a message, and when each was first seen, by our monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: dict[tuple[str, str], float] = {}  # by ref and etag

    def is_old(self, entry: DueEntry) -> bool:
        now_s = self._clock.monotonic()
        since_s = self._since_s.setdefault((entry.ref, entry.etag), now_s)
        return now_s - since_s > LEFTOVER_AFTER.total_seconds()

    def keep(self, entries: Iterable[DueEntry]) -> None:
        """Forget all entries but these."""
        there = {(entry.ref, entry.etag) for entry in entries}
        self._since_s = {key: at for key, at in self._since_s.items() if key in there}


async def due_message(
    tables: Tables, entry: DueEntry, agenda: Agenda, leftovers: Leftovers
) -> DueMessage | None:
    """The message of an entry, unless it waits for a person, was rescheduled or is gone."""
    found = agenda.prefetched.get(entry.ref) or await messages.find_live(tables, entry.ref)
    if found is None or _moved(found.value, entry):
        if leftovers.is_old(entry):  # of a message that was archived, deleted or rescheduled
            with contextlib.suppress(Conflict):
                await messages.delete_due_entry(tables, entry)
        return None
    if found.value.status in (Status.DRAFT, Status.PAUSED):
        return None
    return DueMessage(*found, entry)


async def start(
    tables: Tables,
    message: Message,
    etag: str,
    now: datetime,
    *,
    scheduler: str = "",
    is_test: bool = False,
) -> None:
    """Change pending to queuing. Conflict if it has been edited, cancelled or started since.

    The start is first noted in the list's log of departures (records/departures.py). After a crash
    in between, both are done again.
    """
    await subscribers.mark_message_start(tables, message.list_name, now)
    try:
        expected = (await counts.read(tables, message.list_name)).verified
    except Unreadable:
        expected = 0  # only shown to people, so it must not stop the message
    started = msgspec.structs.replace(
        message,
        status=Status.QUEUING,
        queuing_at=now,
        queued_by=scheduler,
        expected=expected,
        is_test=is_test,
    )
    await messages.replace(tables, started, etag)


def _moved(message: Message, entry: DueEntry) -> bool:
    return message.due_at != entry.due_at


async def waits_for_scheduler(tables: Tables, now: datetime) -> bool:
    """Return whether a message is due and not all of its work items are queued."""
    async for entry in messages.due_entries(tables, now):
        if entry.due_at <= now:
            found = await messages.find_live(tables, entry.ref)
            if found and found.value.status in (Status.PENDING, Status.QUEUING):
                return True
    return False
