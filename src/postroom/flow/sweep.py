"""Stage ∞, sweep: delete what has expired, and repair what crashes left behind.

Before: anything.
After: open batches that have not been touched for a long time have a work item again; nothing in
the archive is older than allowed; deleted lists have no rows left; sign-ups that were never
confirmed are deleted; picture files without a row are deleted; the counts of every list are folded.
Dies half-way: every chore is bounded and can be repeated.
Commit point: each deletion on its own; the entry by which a thing is found is deleted last.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

import msgspec
import structlog

from postroom.domain.consent import ConsentSource, Event, SourceKind, Trace
from postroom.domain.delivery import Ledger
from postroom.domain.message import GOING_OUT, Message, Status
from postroom.domain.work_item import BatchItem
from postroom.records import (
    archive,
    batches,
    bodies,
    counts,
    leases,
    lists,
    media,
    messages,
    sign_ups,
    subscribers,
)
from postroom.records.leases import RenewalTracker
from postroom.records.names import MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.storage.port import BATCH_CHANGES_MAX, Conflict, Storage, Tables

log = structlog.get_logger("sweep")
FORGOTTEN_AFTER = timedelta(minutes=15)  # longer than any claim: the item must be lost
EXPIRED_BATCHES_A_SWEEP = 300
LIST_BATCHES_A_SWEEP = 100
SIGN_UPS_A_SWEEP = 500  # of a list, in a minute: more than any form accepts
_IN_TIME = Trace(source=ConsentSource(SourceKind.NOT_CONFIRMED))


async def put_forgotten_items(
    storage: Storage, now: datetime, renewals: RenewalTracker | None = None
) -> int:
    """Put an item for every open batch that is long overdue and untouched; return how many.

    Nothing is put while other items wait to be claimed: a batch may then simply be waiting its
    turn, and every sweep of a long mailing would put another item for every batch.
    """
    put = 0
    is_idle = not await storage.queues.peek(MAIL_QUEUE, limit=1)
    async for message in messages.live_messages(storage.tables):
        is_scheduled = message.due_at is not None and message.status is not Status.DRAFT
        if is_scheduled and not await messages.has_due(storage.tables, message):
            await messages.put_due(storage.tables, message, now)  # else nobody would read it again
        if is_idle and message.status in GOING_OUT | {Status.CANCELLED}:
            for group in batches.groups(message.batches):
                put += await _put_items_of(storage, message, group, now, renewals)
    if put:
        log.warning("forgotten_items_put", items=put)
    return put


async def _put_items_of(
    storage: Storage, message: Message, group: int, now: datetime, renewals: RenewalTracker | None
) -> int:
    items: list[str] = []
    async for ledger, etag in batches.readable_ledgers(storage.tables, message.ref, group):
        is_forgotten = _is_forgotten(ledger, now)
        if is_forgotten and await _may_put(storage.tables, ledger, etag, now, renewals):
            date = messages.date_of(message)
            item = BatchItem(date, message.ref, ledger.first, True, ledger.batch)
            items.append(item.body())
    await storage.queues.put(MAIL_QUEUE, *items)
    return len(items)


def _is_forgotten(ledger: Ledger, now: datetime) -> bool:
    if not ledger.is_open:
        return False
    now_s = now.timestamp()
    long_s = FORGOTTEN_AFTER.total_seconds()
    if ledger.touched_at > now_s + long_s:
        return True  # by a clock that was ahead; an extra item is harmless
    return max(ledger.touched_at, ledger.next_retry_at()) + long_s < now_s


async def _may_put(
    tables: Tables, ledger: Ledger, etag: str, now: datetime, renewals: RenewalTracker | None
) -> bool:
    """Mark the ledger, so that the next sweep puts no second item; False if a sender has it.

    A batch that a dead sender owns is left for the sender that settles it.
    """
    if ledger.owner:
        return not await leases.is_alive(tables, ledger.owner, now, renewals)
    touched = msgspec.structs.replace(ledger, touched_at=now.timestamp())
    with contextlib.suppress(Conflict):
        await batches.replace_ledger(tables, touched, etag)
        return True
    return False


async def expire_archive(storage: Storage, now: datetime, *, keep_days: int) -> int:
    """Delete archived messages that are too old, oldest first, with their bodies.

    Deletes a bounded number of batches and returns it; the archived row keeps the progress.
    """
    before = now - timedelta(days=keep_days)
    room = EXPIRED_BATCHES_A_SWEEP
    async for date, ref in messages.archived_before(storage.tables, before):
        try:
            room -= await _expire(storage, date, ref, before, room)
        except Unreadable as error:  # written by a newer version, which will delete it
            log.error("not_expired", ref=ref, error=str(error)[:200])
        if room <= 0:
            break
    return EXPIRED_BATCHES_A_SWEEP - room


async def _expire(storage: Storage, date: str, ref: str, before: datetime, room: int) -> int:
    """Delete up to `room` batches of one message; return how much of the room was used."""
    tables = storage.tables
    found = await messages.find_archived(tables, ref)
    is_old = found is not None and (found.value.completed_at or before) <= before
    if found is None or not is_old or await messages.find_live(tables, ref):
        await messages.delete_archive_entry(tables, date, ref)
        return 1
    message, etag = found
    if not message.is_expiring:  # from this write on it cannot be revived
        message = msgspec.structs.replace(message, is_expiring=True)
        try:
            etag = await messages.replace_archived(tables, message, etag)
        except Conflict:  # it is being revived
            return 1
    last = min(message.expired_batches + room, message.batches)
    for batch in range(message.expired_batches, last):
        await archive.delete_batch(tables, ref, batch)
        await batches.delete_batch(tables, ref, batch)
    if last < message.batches:
        swept = msgspec.structs.replace(message, expired_batches=last)
        await messages.replace_archived(tables, swept, etag)
    else:
        for group in batches.groups(message.batches):
            await batches.delete_group(tables, ref, group)
        await bodies.delete_all(storage.blobs, ref)
        await messages.leave_directory(tables, ref)
        await messages.delete_archived(tables, ref)
        await messages.delete_archive_entry(tables, date, ref)
    return last - message.expired_batches + 1


async def finish_deletions(tables: Tables) -> int:
    """Delete what is left of deleted lists; return how many rows."""
    deleted = 0
    async for name in lists.being_deleted(tables):
        deleted += await delete_rows_of(tables, name, at_most=LIST_BATCHES_A_SWEEP)
    return deleted


async def delete_rows_of(tables: Tables, name: str, *, at_most: int) -> int:
    """Delete rows of a deleted list, `at_most` batches of them; return how many rows."""
    deleted = 0
    for _ in range(at_most):
        rows = await subscribers.rows_of_list(tables, name, limit=BATCH_CHANGES_MAX)
        if not rows:
            await lists.forget(tables, name)
            break
        await subscribers.delete_rows(tables, name, rows)
        deleted += len(rows)
    return deleted


async def expire_sign_ups(tables: Tables, now: datetime, *, keep_days: int) -> int:
    """Delete sign-ups that were not confirmed within `keep_days`; return how many."""
    before = now - timedelta(days=keep_days)
    expired = 0
    async for mailing_list in lists.every_list(tables):
        with contextlib.suppress(Conflict):  # another scheduler is doing it
            expired += await _expire_sign_ups_of(tables, mailing_list.name, before, now)
    if expired:
        log.info("sign_ups_expired", people=expired)
    return expired


async def _expire_sign_ups_of(tables: Tables, name: str, before: datetime, now: datetime) -> int:
    entries = await sign_ups.asked_before(tables, name, before, limit=SIGN_UPS_A_SWEEP)
    idle: list[sign_ups.SignUpEntry] = []
    for entry in entries:
        found = await subscribers.find(tables, name, entry.key)
        if found and found.value.expires and sign_ups.asked_at(found.value) < before:
            await subscribers.expire(tables, *found, entry, _IN_TIME.consent(Event.EXPIRED, now))
        else:  # confirmed, unsubscribed, or asked again since, which has its own entry
            idle.append(entry)
    await sign_ups.forget(tables, name, idle)
    return len(entries) - len(idle)


async def fold_counts(tables: Tables) -> int:
    """Fold the counts of every list; return how many changes."""
    folded = 0
    async for mailing_list in lists.every_list(tables):
        try:
            folded += await counts.fold(tables, mailing_list.name)
        except Conflict:
            continue  # another scheduler folds, or the list is being deleted
        except Unreadable as error:
            log.error("counts_not_folded", list=mailing_list.name, error=str(error)[:200])
    return folded


async def delete_orphaned_pictures(storage: Storage, now: datetime) -> int:
    """Delete files of pictures whose upload or deletion died half-way; return how many."""
    deleted = await media.delete_orphans(storage, now)
    if deleted:
        log.info("pictures_swept", files=deleted)
    return deleted
