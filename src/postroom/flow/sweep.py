"""Stage ∞, sweep: what time brings, and what accidents left lying about.

Before: anything.
After: open batches that nobody has touched for long have a work item again; the archive is no older
than it should be; deleted lists are gone to the last row.
Dies half-way: every broom stroke is bounded and can be repeated.
Commit point: each deletion by itself; the entry by which a thing is found goes last.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

import msgspec
import structlog

from postroom.domain.delivery import Ledger
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.work_item import BatchItem
from postroom.records import archive, batches, leases, lists, messages, subscribers
from postroom.storage.port import BATCH_CHANGES_MAX, MAIL_QUEUE, Conflict, Storage, Tables

log = structlog.get_logger("sweep")
FORGOTTEN_AFTER = timedelta(minutes=15)  # longer than any claim: its item must be lost
EXPIRED_BATCHES_A_SWEEP = 300
LIST_BATCHES_A_SWEEP = 100


async def put_forgotten_items(storage: Storage, now: datetime) -> int:
    """Put an item for every open batch that has been due but untouched for long; how many.

    While items wait to be taken, a batch may just wait for its turn: nothing is put then, or every
    sweep of a long mailing would put another item for every batch.
    """
    put = 0
    is_idle = not await storage.queues.peek(MAIL_QUEUE, limit=1)
    async for message in messages.live_messages(storage.tables):
        await _put_due_again(storage.tables, message, now)
        if is_idle and message.status in GOING_OUT | {Status.CANCELLED}:
            for group in batches.groups(message.batches):
                put += await _put_items_of(storage, message, group, now)
    if put:
        log.warning("forgotten_items_put", items=put)
    return put


async def _put_due_again(tables: Tables, message: Message, now: datetime) -> None:
    """Without its due entry nobody would ever look at a message again."""
    is_waiting = message.due_at is not None and message.status is not Status.DRAFT
    if is_waiting and not await messages.has_due(tables, message):
        await messages.put_due(tables, message, now)


async def _put_items_of(storage: Storage, message: Message, group: int, now: datetime) -> int:
    items: list[str] = []
    for ledger, etag in await batches.load_group(storage.tables, message.ref, group):
        if _is_forgotten(ledger, now) and await _may_put(storage.tables, ledger, etag, now):
            date = messages.date_of(message)
            item = BatchItem(date, message.ref, ledger.first, True, ledger.batch)
            items.append(item.body())
    await storage.queues.put(MAIL_QUEUE, *items)
    return len(items)


def _is_forgotten(ledger: Ledger, now: datetime) -> bool:
    if not ledger.is_open:
        return False
    due_s = max(ledger.touched_at, ledger.next_retry_at())
    return due_s + FORGOTTEN_AFTER.total_seconds() < now.timestamp()


async def _may_put(tables: Tables, ledger: Ledger, etag: str, now: datetime) -> bool:
    """Note it, so that it is not done again at every sweep; False if somebody is at it.

    A batch that a sender owns is left as it is: whoever settles it must find it so.
    """
    if ledger.owner:
        return not await leases.is_alive(tables, ledger.owner, now)
    touched = msgspec.structs.replace(ledger, touched_at=now.timestamp())
    with contextlib.suppress(Conflict):
        await batches.replace_ledger(tables, touched, etag)
        return True
    return False


async def expire_archive(storage: Storage, now: datetime, *, keep_days: int) -> int:
    """Delete what is past its age in the archive, oldest first, bodies and all.

    So many batches at a time; the archived row keeps how far it got. How many batches.
    """
    before = now - timedelta(days=keep_days)
    room = EXPIRED_BATCHES_A_SWEEP
    async for date, ref in messages.archived_before(storage.tables, before):
        room -= await _expire(storage, date, ref, before, room)
        if room <= 0:
            break
    return EXPIRED_BATCHES_A_SWEEP - room


async def _expire(storage: Storage, date: str, ref: str, before: datetime, room: int) -> int:
    """How many batches were deleted; a message that was revived since is younger than its entry."""
    tables = storage.tables
    found = await messages.find_archived(tables, ref)
    is_old = found is not None and (found[0].completed_at or before) <= before
    if found is None or not is_old or await messages.find_live(tables, ref):
        await messages.delete_archive_entry(tables, date, ref)
        return 1
    try:
        message, etag = await _marked(tables, *found)
    except Conflict:  # somebody revives it at this moment
        return 1
    last = min(message.walked + room, message.batches)
    for batch in range(message.walked, last):
        await archive.delete_batch(tables, ref, batch)
        await batches.delete_batch(tables, ref, batch)
    if last < message.batches:
        swept = msgspec.structs.replace(message, walked=last)
        await messages.replace_archived(tables, swept, etag)
    else:
        await _expire_message(storage, message)
        await messages.delete_archive_entry(tables, date, ref)
    return last - message.walked + 1


async def _marked(tables: Tables, message: Message, etag: str) -> tuple[Message, str]:
    """From this write on nobody can revive it; Conflict if somebody was faster."""
    if message.is_expiring:
        return message, etag
    marked = msgspec.structs.replace(message, is_expiring=True, walked=0)
    return marked, await messages.replace_archived(tables, marked, etag)


async def _expire_message(storage: Storage, message: Message) -> None:
    for group in batches.groups(message.batches):
        await batches.delete_group(storage.tables, message.ref, group)
    await storage.blobs.delete(f"{message.ref}.htm")
    await storage.blobs.delete(f"{message.ref}.txt")
    await messages.leave_directory(storage.tables, message.ref)
    await messages.delete_archived(storage.tables, message.ref)


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
