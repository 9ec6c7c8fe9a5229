"""Stage ∞, sweep: what time brings, and what accidents left lying about.

Before: anything.
After: open batches that nobody has touched for long have a work item again; the archive is no older
than it should be; deleted lists are gone to the last row.
Dies half-way: every broom stroke is bounded and can be repeated.
Commit point: each deletion by itself; the entry by which a thing is found goes last.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.domain.delivery import Ledger
from postroom.domain.message import Message
from postroom.domain.work_item import BatchItem
from postroom.records import archive, batches, lists, messages, subscribers
from postroom.storage.port import BATCH_CHANGES_MAX, Storage, Tables

MAIL_QUEUE = "azuremailqueue"
FORGOTTEN_AFTER = timedelta(minutes=15)  # longer than any claim: its item must be lost
ARCHIVED_MESSAGES_A_SWEEP = 20
LIST_BATCHES_A_SWEEP = 100


async def put_forgotten_items(storage: Storage, message: Message, now: datetime) -> int:
    """Put an item for every open batch that has been due but untouched for long; how many."""
    put = 0
    for group in batches.groups(message.batches):
        for ledger, _ in await batches.load_group(storage.tables, message.ref, group):
            if _is_forgotten(ledger, now):
                date = messages.date_of(message)
                item = BatchItem(date, message.ref, ledger.first, True, ledger.batch)
                await storage.queues.put(MAIL_QUEUE, item.body())
                put += 1
    return put


def _is_forgotten(ledger: Ledger, now: datetime) -> bool:
    if not ledger.is_open:
        return False
    due_s = max(ledger.touched_at, ledger.next_retry_at())
    return due_s + FORGOTTEN_AFTER.total_seconds() < now.timestamp()


async def expire_archive(storage: Storage, now: datetime, *, keep_days: int) -> int:
    """Delete the oldest archived messages past their age, bodies and all; how many."""
    expired = 0
    async for date, ref in messages.archived_before(
        storage.tables, now - timedelta(days=keep_days)
    ):
        await _expire(storage, date, ref)
        expired += 1
        if expired == ARCHIVED_MESSAGES_A_SWEEP:
            break
    return expired


async def _expire(storage: Storage, date: str, ref: str) -> None:
    tables = storage.tables
    message = await messages.find_archived(tables, ref)
    if message and await messages.find_live(tables, ref) is None:
        for batch in range(message.batches):
            await archive.delete_batch(tables, ref, batch)
        for group in batches.groups(message.batches):
            await batches.delete_archived_group(tables, ref, group)
        await storage.blobs.delete(f"{ref}.htm")
        await storage.blobs.delete(f"{ref}.txt")
        await messages.delete_archived(tables, ref)
    await messages.delete_archive_entry(tables, date, ref)


async def finish_deletions(tables: Tables) -> int:
    """Delete what is left of deleted lists; how many rows."""
    deleted = 0
    async for name in lists.being_deleted(tables):
        deleted += await delete_rows_of(tables, name, at_most=LIST_BATCHES_A_SWEEP)
    return deleted


async def delete_rows_of(tables: Tables, name: str, *, at_most: int) -> int:
    """Delete a deleted list's rows, at most so many batches of them; how many rows."""
    deleted = 0
    for _ in range(at_most):
        rows = await subscribers.rows_of_list(tables, name, limit=BATCH_CHANGES_MAX)
        if not rows:
            await lists.forget(tables, name)
            break
        await subscribers.delete_rows(tables, name, rows)
        deleted += len(rows)
    return deleted
