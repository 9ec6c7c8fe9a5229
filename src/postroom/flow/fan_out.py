"""Stage 3 of 7, fan out: turn the audience into batches of deliveries, a page at a time.

Before: schedule.py left a message queuing; or it was resumed, retried or cancelled, and the items
of its batches must be put again.
After: send.py finds a work item for every open batch; the message is processing.
Dies half-way: the next step adopts the batches that were written but not yet counted, puts their
items again, and continues after the last address of the last batch. It makes no difference if
people subscribe or unsubscribe in the meantime: nobody is in two batches, and nobody is left out.
    before a batch's rows     nothing happened
    before its ledger         adopted: the ledger is made from the header, which is never deleted
    before its item           adopted: the item is put, with the restart flag
    before the count          adopted again: the second item finds the batch claimed or finished
Commit point: the batch's rows, all or nothing, with a header that only the first writer can insert.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import assert_never

import msgspec

from postroom.domain.delivery import (
    BATCH_DELIVERIES_MAX,
    GROUP_BATCHES,
    DeliveryEnd,
    Ledger,
    State,
    awaits,
    revived,
    with_states,
)
from postroom.domain.message import Message, Revive, Status
from postroom.domain.work_item import BatchItem
from postroom.records import archive, batches, leases, lists, messages, recipients
from postroom.records.leases import RenewalTracker
from postroom.records.names import MAIL_QUEUE
from postroom.records.recipients import Recipient
from postroom.records.stored import Stored
from postroom.records.suppression_filter import SuppressionFilter
from postroom.storage.port import Storage

PAGE_BATCHES = 80  # written between two counts on the message row


async def advance(
    storage: Storage,
    message: Message,
    etag: str,
    now: datetime,
    *,
    room: int = PAGE_BATCHES,
    renewals: RenewalTracker | None = None,
    scheduler: str = "",
    suppressions: SuppressionFilter | None = None,
) -> Stored[Message]:
    """Take one bounded step of a queuing (or cancelled) message; return its new row and etag.

    Writes at most a page, and at most `room` batches of new people. Row and etag stay the same
    while it waits for a sender that is sending a batch. Conflict means that a person or another
    scheduler changed the message: read it again.
    """
    if message.batches_requeued < message.batches:
        step = await _requeue_group(storage, message, now, renewals)
    elif not message.fanned_out:
        room = min(room, PAGE_BATCHES)
        step = await _next_page(storage, message, now, room, scheduler, suppressions)
    else:
        step = msgspec.structs.replace(message, status=Status.PROCESSING)
    if step.is_fully_queued:
        step = msgspec.structs.replace(step, revive=Revive.NOTHING)
    if step == message:
        return Stored(message, etag)
    return Stored(step, await messages.replace(storage.tables, step, etag))


async def _next_page(
    storage: Storage,
    message: Message,
    now: datetime,
    room: int,
    scheduler: str,
    suppressions: SuppressionFilter | None,
) -> Message:
    """Adopt what an earlier step wrote, then write the next batches, then count them."""
    while ledger := await _uncounted(storage, message, now):
        await storage.queues.put(MAIL_QUEUE, _item(message, ledger, restart=True))
        message = _counted(message, ledger)
    is_over = message.status is Status.CANCELLED
    if not is_over:
        found = await lists.find(storage.tables, message.list_name)
        # A new list of the same name is another list.
        is_over = found is None or found.created_at != message.list_created_at
    if is_over:
        return msgspec.structs.replace(message, fanned_out=True)
    people, was_last = await recipients.verified_after(
        storage.tables,
        message.list_name,
        message.cursor,
        limit=room * BATCH_DELIVERIES_MAX,
        merge_fields=message.merge_fields,
    )
    cursor = people[-1].key if people else message.cursor
    if suppressions is not None:
        keys = [one.key for one in people]
        if excluded := await suppressions.suppressed(keys, message.list_name):
            people = [one for one in people if one.key not in excluded]
    message = await _write_batches(storage, message, people, now, scheduler)
    return msgspec.structs.replace(message, fanned_out=was_last, cursor=cursor)


async def _uncounted(storage: Storage, message: Message, now: datetime) -> Ledger | None:
    """The ledger of the next batch, if a scheduler wrote that batch before it died."""
    header = await batches.find_header(storage.tables, message.ref, message.batches)
    if header is None:
        return None
    ledger = new_ledger(message, header, now)
    await batches.insert_ledgers(storage.tables, [ledger])
    return ledger


async def _write_batches(
    storage: Storage, message: Message, people: Sequence[Recipient], now: datetime, scheduler: str
) -> Message:
    size = BATCH_DELIVERIES_MAX
    audience = [people[start : start + size] for start in range(0, len(people), size)]
    # Commit point, one batch after the other. Conflict: another scheduler is writing them.
    headers = await batches.write_batches(storage.tables, message, audience)
    ledgers: list[Ledger] = []
    for header in headers:
        ledgers.append(new_ledger(message, header, now))
        message = _counted(message, ledgers[-1])
    for _group, some in groupby(ledgers, key=lambda ledger: ledger.batch // GROUP_BATCHES):
        await batches.insert_ledgers(storage.tables, list(some))
    if ledgers:
        restart = message.restarts > 0 or scheduler != message.queued_by
        items = [_item(message, ledger, restart=restart) for ledger in ledgers]
        await storage.queues.put(MAIL_QUEUE, *items)
    return message


async def _requeue_group(
    storage: Storage, message: Message, now: datetime, renewals: RenewalTracker | None
) -> Message:
    """Put the items of one group of batches again, and revive deliveries as people decided."""
    group = message.batches_requeued // GROUP_BATCHES
    known = await batches.load_group(storage.tables, message.ref, group)
    known = [await _follow(storage, message, *entry, now) for entry in known]
    if any(_awaits_decision(message, ledger) for ledger, _ in known):
        await _put_items_of_dead_senders(storage, message, known, now, renewals)
        return message  # wait, or a sender would lose what it is sending
    items = [_item(message, ledger, restart=True) for ledger, _ in known if ledger.is_open]
    await storage.queues.put(MAIL_QUEUE, *items)
    requeued = min((group + 1) * GROUP_BATCHES, message.batches)
    return msgspec.structs.replace(message, batches_requeued=requeued)


def _awaits_decision(message: Message, ledger: Ledger) -> bool:
    return message.revive is not Revive.NOTHING and awaits(ledger, message.decision)


async def _follow(
    storage: Storage, message: Message, ledger: Ledger, etag: str, now: datetime
) -> Stored[Ledger]:
    """Apply a person's decision, unless a sender is sending the batch.

    Once for each ledger: the mark is in the same write, so that a later pass for the same decision
    (after a pause or a crash) leaves alone deliveries that failed or were held since.
    """
    if ledger.owner or not _awaits_decision(message, ledger):
        return Stored(ledger, etag)
    ref, batch = ledger.ref, ledger.batch
    ledger, etag, changed = await _revive(storage, message, ledger, etag, now)
    changed = msgspec.structs.replace(changed, decided=message.decision)
    rows = batches.BatchRows()
    if changed.is_final:  # read before the ledger is final: has no rows of a later retry
        rows = await batches.load_batch(storage.tables, ref, batch)
    etag = await batches.replace_ledger(storage.tables, changed, etag)
    await batches.delete_deliveries(storage.tables, ref, batch, rows)
    return Stored(changed, etag)


async def _revive(
    storage: Storage, message: Message, ledger: Ledger, etag: str, now: datetime
) -> tuple[Ledger, str, Ledger]:
    """Restore rows first, then the ledger: it never queues a delivery whose row is missing.

    Returns the ledger as it is stored, its etag, and what it has to become.
    """
    revive = message.revive
    revived_state = State.FAILED if revive is Revive.FAILED else State.HELD
    if revived_state not in ledger.states:
        return ledger, etag, ledger
    now_s = now.timestamp()
    match revive:
        case Revive.FAILED:
            if not ledger.reviving:  # a sender deletes the rows of a ledger that looks final
                ledger = msgspec.structs.replace(ledger, reviving=True)
                etag = await batches.replace_ledger(storage.tables, ledger, etag)
            restored = await _restore_failed(storage, message, ledger)
            changed = revived(ledger, restored, now_s=now_s)
        case Revive.HELD:
            changed = revived(ledger, ledger.positions(State.HELD), now_s=now_s)
        case Revive.HELD_AS_SENT:
            changed = await _held_as_sent(storage, ledger, now)
        case Revive.NOTHING:
            changed = ledger
        case _:
            assert_never(revive)
    return ledger, etag, changed


async def _restore_failed(storage: Storage, message: Message, ledger: Ledger) -> list[int]:
    """Restore the rows of failed deliveries; return the positions that could be restored."""
    failed = set(ledger.positions(State.FAILED))
    deliveries = [
        old.delivery
        async for old in archive.load(storage.tables, ledger.ref, ledger.batch)
        if old.ended.state is State.FAILED and old.delivery.position in failed
    ]
    await batches.restore_deliveries(storage.tables, message, ledger, deliveries)
    return [delivery.position for delivery in deliveries]


async def _put_items_of_dead_senders(
    storage: Storage,
    message: Message,
    known: Sequence[Stored[Ledger]],
    now: datetime,
    renewals: RenewalTracker | None,
) -> None:
    """Put an item for each batch whose sender died, unless other items are waiting.

    A pause may have completed the item of the batch. The ledger is left alone, because its sender
    may only have stalled and must find what it wrote.
    """
    if await storage.queues.peek(MAIL_QUEUE, limit=1):
        return
    for ledger, _ in known:
        owner = ledger.owner
        if owner and not await leases.is_alive(storage.tables, owner, now, renewals):
            await storage.queues.put(MAIL_QUEUE, _item(message, ledger, restart=True))


async def _held_as_sent(storage: Storage, ledger: Ledger, now: datetime) -> Ledger:
    """Record held deliveries as sent, because a person knows that they arrived."""
    held = ledger.positions(State.HELD)
    deliveries = await batches.load_deliveries(storage.tables, ledger.ref, ledger.batch)
    ended = DeliveryEnd(State.SENT, "marked as sent by a user", now)
    known = [at for at in held if at in deliveries]  # rows may be lost: they are held for that
    await archive.write(storage.tables, ledger, deliveries, dict.fromkeys(known, ended))
    states = with_states(ledger, dict.fromkeys(held, State.SENT))
    deferred = {at: wait for at, wait in ledger.deferred.items() if at not in held}
    return msgspec.structs.replace(
        ledger, states=states, deferred=deferred, touched_at=now.timestamp()
    )


def new_ledger(message: Message, header: batches.Header, now: datetime) -> Ledger:
    """The ledger of the next batch of the message: everybody in it is queued."""
    return Ledger(
        ref=message.ref,
        batch=message.batches,
        states=State.QUEUED.value * header.size,
        first=header.first,
        last=header.last,
        touched_at=now.timestamp(),
    )


def _counted(message: Message, ledger: Ledger) -> Message:
    return msgspec.structs.replace(
        message,
        cursor=ledger.last,
        batches=message.batches + 1,
        batches_requeued=message.batches + 1,
        audience=message.audience + len(ledger.states),
    )


def _item(message: Message, ledger: Ledger, *, restart: bool) -> str:
    date = messages.date_of(message)
    return BatchItem(date, message.ref, ledger.first, restart, ledger.batch).body()
