"""Stage 6 of 7, report: add up the books of a message from its ledgers.

Before: send.py changed states in the ledgers; fan_out.py counted the batches.
After: the message row has the current books. A fully queued message with no delivery queued
or sending is completed, and archive.py continues with it.
Dies half-way: nothing was added to any total; the next report counts again.
Commit point: the message row.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from postroom.domain.delivery import GROUP_BATCHES
from postroom.domain.message import Books, Message, Status
from postroom.records import batches, messages
from postroom.records.stored import Stored
from postroom.storage.port import Tables


async def books_of(tables: Tables, message: Message) -> Message:
    """The message with its current books; closed groups are added up once and not read again.

    Only batches that fan-out has counted are included, so the books always balance with the
    audience. The books of a completed message do not change.
    """
    if message.completed_at:
        return message
    closed_groups = int(message.closed_groups, 16)
    closed_books = message.closed_books
    books = Books()
    for group in batches.groups(message.batches):
        if closed_groups >> group & 1:
            continue
        ledgers = [
            ledger
            for ledger, _ in await batches.load_group(tables, message.ref, group)
            if ledger.batch < message.batches
        ]
        counted = sum((ledger.books() for ledger in ledgers), Books())
        if len(ledgers) == GROUP_BATCHES and not counted.open and not counted.held:
            closed_groups |= 1 << group
            closed_books += counted
        else:
            books += counted
    return msgspec.structs.replace(
        message,
        closed_groups=f"{closed_groups:x}",
        closed_books=closed_books,
        books=closed_books + books,
    )


async def report(tables: Tables, message: Message, etag: str, now: datetime) -> Stored[Message]:
    """Count, complete the message if nothing is open, write. Conflict if the message changed."""
    counted = await books_of(tables, message)
    is_counted = counted.is_fully_queued and counted.books.total == counted.audience
    if is_counted and not counted.books.open:
        is_cancelled = message.status is Status.CANCELLED
        status = Status.CANCELLED if is_cancelled else Status.COMPLETED
        counted = msgspec.structs.replace(counted, status=status, completed_at=now)
    if counted == message:
        return Stored(message, etag)
    return Stored(counted, await messages.replace(tables, counted, etag))
