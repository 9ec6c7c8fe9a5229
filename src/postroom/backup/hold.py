"""Hold messages of a restored backup that may have been sent since the backup was made.

Before: every row of the backup is in the storage, which nothing uses yet.
After: every message that was being sent, or whose time has come, is paused with the reason, and no
ledger names a sender. A person resumes it, which sends to everyone not recorded as sent, or cancels
it. Drafts, messages for later and completed ones are not changed.
    ledgers            outcomes in the archive are recorded; what was announced when the backup was
                       made is in doubt, as if its sender had died. Journals do not count: one on
                       this machine may be about a later attempt, and journals are only consulted
                       about a sender that a ledger names
    imports            a running one is stopped, because it may mail confirmations; it can continue
    sessions           deleted: everybody signs in again
    scheduled backups  their record is deleted, because it is about another machine
Dies half-way: all of it is done again; what is already done does not change.
Commit point: each row on its own; the storage is opened afterwards (restore.py).
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from postroom.domain.delivery import Ledger, State, Verdict, judge_in_hindsight, judged
from postroom.domain.job_status import JobStatus
from postroom.domain.message import (
    GOING_OUT,
    Message,
    RestoreHold,
    Status,
    held_by_restore,
    requeued,
)
from postroom.domain.retry import RetryRules
from postroom.flow import fan_out, report
from postroom.importing import jobs
from postroom.records import archive, backups, batches, counts, messages, users
from postroom.records.rows import Unreadable
from postroom.storage.port import Tables

# A delivery in doubt is queued again or held, however long ago it was first refused.
_NEVER_GIVES_UP = RetryRules(window_s=math.inf)
_WAITING = GOING_OUT | {Status.PENDING, Status.PAUSED}


async def hold_everything(tables: Tables, made_at: datetime, now: datetime) -> list[Message]:
    """Hold everything, and return the messages that wait for a person."""
    held: list[Message] = []
    async for message in messages.live_messages(tables):
        await _settle_ledgers(tables, message, now)
        if kept := await _hold(tables, message.ref, made_at, now):
            held.append(kept)
    await _stop_imports(tables, now)
    await users.end_all_sessions(tables)
    await backups.forget(tables)
    return held


async def _hold(tables: Tables, ref: str, made_at: datetime, now: datetime) -> Message | None:
    """Pause one message, if it may have been sent since; return it if it is held."""
    found = await messages.find_live(tables, ref)
    if found is None:
        return None
    message = found.value
    if message.status is Status.CANCELLED and message.completed_at is None:
        if message.batches_requeued:  # their items, which would close its books, are not restored
            await messages.replace(tables, requeued(message), found.etag)
        return None
    is_later = message.status is Status.PENDING and message.due_at and message.due_at > now
    if message.status not in _WAITING or is_later:
        return None
    hold = RestoreHold(made_at, await _count_open(tables, message))
    kept = held_by_restore(message, hold)
    await messages.replace(tables, kept, found.etag)
    return kept


async def _count_open(tables: Tables, message: Message) -> int:
    """Count who is not recorded as sent, or estimate it if the audience is not complete."""
    try:
        audience = message.audience
        if not message.fanned_out:
            verified = (await counts.read(tables, message.list_name)).verified
            audience = max(message.size, verified)
        books = (await report.books_of(tables, message)).books
    except Unreadable:
        return message.size
    return max(0, audience - (books.total - books.open))


async def _settle_ledgers(tables: Tables, message: Message, now: datetime) -> None:
    """Settle all ledgers, including those of batches that the message does not count yet."""
    last = await _complete_ledgers(tables, message, now)
    for group in batches.groups(last):
        found = [each async for each in batches.readable_ledgers(tables, message.ref, group)]
        for each in found:
            if each.value.is_open:
                await _settle(tables, message, each.value, each.etag, now)


async def _complete_ledgers(tables: Tables, message: Message, now: datetime) -> int:
    """Write a ledger for each uncounted batch without one; return the number of batches."""
    whole = message
    while header := await batches.find_header(tables, message.ref, whole.batches):
        await batches.insert_ledgers(tables, [fan_out.new_ledger(whole, header, now)])
        whole = msgspec.structs.replace(whole, batches=whole.batches + 1)
    return whole.batches


async def _settle(
    tables: Tables, message: Message, ledger: Ledger, etag: str, now: datetime
) -> None:
    ends = await archive.ends_of(tables, ledger)
    now_s = now.timestamp()
    verdicts = judge_in_hindsight(
        ledger, ends, None, on_doubt=message.on_doubt, rules=_NEVER_GIVES_UP, now_s=now_s
    )
    for at in ledger.positions(State.QUEUED):
        if at in ends:  # rows were read at different times (copying.py)
            verdicts[at] = Verdict(ends[at].state, ends[at].words)
    if verdicts or ledger.owner:
        settled = msgspec.structs.replace(judged(ledger, verdicts, now_s=now_s), owner="")
        await batches.replace_ledger(tables, settled, etag)


async def _stop_imports(tables: Tables, now: datetime) -> None:
    for running in await jobs.running(tables):
        job, etag = await jobs.read(tables, running.id)
        stopped = msgspec.structs.replace(job, status=JobStatus.STOPPED, ended_at=now, run="")
        await jobs.replace(tables, stopped, etag)
