"""Restore a backup into an empty storage, of any engine.

Before: a backup file, and a storage with nothing in it, or an unfinished restore.
After: the storage has every row and blob of the backup; both were read again and are equal; what
may have been sent since the backup is held for a person (hold.py).
Steps: read the whole backup and compare its checksums > mark the storage > copy tables and blobs >
compare > put work items > hold > unmark.
Dies half-way: the storage is marked, so roles and commands refuse to start there, with a sentence
on what to do. The same command continues; one with another backup starts over. Nothing is mailed
before the mark is deleted.
    before the mark           nothing happened
    among tables or blobs     continues at the last recorded position; equal rows are skipped
    while comparing           compares again
    among work items          the queue is emptied, and filled again
    while holding             held again; what is already held does not change
Commit point: the deletion of the mark.

Work items: batches, imports and feedback get theirs again from rows. Single mails (confirmations
and test emails) become dead letters with the reason, so that a person can put them back; dead
letters stay dead letters. Leases are not in a backup.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import msgspec

from postroom.backup.create import BackupContents
from postroom.backup.hold import hold_everything
from postroom.domain.dead_letter import Reason, dead_letter
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.message import Message
from postroom.migration import state
from postroom.migration.comparison import BLOBS, Comparison, compare_contents
from postroom.migration.filling import (
    FillingContext,
    Stopped,
    TargetMark,
    copy_blobs,
    copy_table,
)
from postroom.migration.queue_copy import empty_queue
from postroom.migration.row_pairs import is_empty
from postroom.migration.state import Migration, MigrationStatus, TakenOver
from postroom.migration.table_writer import call_with_retries
from postroom.records.names import DEAD_LETTER_QUEUE, QUEUES, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.retry import retry_on_conflict

COMPARING, ITEMS, HOLDING = "comparing", "items", "holding"
STAGES = (*TABLES, BLOBS, COMPARING, ITEMS, HOLDING)
BEGIN_TRIES_MAX = 5  # while another command begins, or records its position
ITEMS_AT_ONCE = 32


@dataclass(frozen=True)
class RestoreContext(FillingContext):
    source: BackupContents


@dataclass(frozen=True)
class RestoreResult:
    """What was restored, and what waits for a person."""

    parts: list[Comparison]
    held: list[Message]
    single_mails: int  # that became dead letters


async def restore(context: RestoreContext) -> RestoreResult:
    """Restore everything; BadInput if the backup is damaged, WrongState if storage is in use."""
    context.on_progress("reading the backup", 0)
    if damage := await context.source.find_damage():
        raise BadInput(f"{context.source_name} cannot be restored. {damage} Use another backup.")
    mark = await retry_on_conflict(
        partial(_begin, context), tries=BEGIN_TRIES_MAX, at_last=TakenOver()
    )
    parts: list[Comparison] = []
    for stage, next_stage in list(pairwise(STAGES))[STAGES.index(mark.row.stage) :]:
        if stage == BLOBS:
            await copy_blobs(context, mark)
        elif stage == COMPARING:
            parts = await _compare(context, mark)
        elif stage == ITEMS:
            await _put_items(context, mark)
        else:
            await copy_table(context, mark, stage)
        await mark.record(next_stage)
    await mark.check()
    manifest = context.source.manifest
    target = context.target.tables
    held = await hold_everything(target, manifest.made_at, context.clock.now())
    await call_with_retries(partial(state.delete, target, mark.row.run), context.clock)
    single_mails = len(await context.source.items(SINGLE_MAIL_QUEUE))
    return RestoreResult(parts, held, single_mails)


async def _begin(context: RestoreContext) -> TargetMark:
    """Mark the storage; Conflict if another command does so at this moment."""
    target = context.target
    manifest = context.source.manifest
    found = await state.find(target.tables)
    if found is None and not await is_empty(target, TABLES, QUEUES):
        raise WrongState(
            f"{context.target_name} is not empty, and a restore overwrites nothing. Set "
            "POSTROOM_STORAGE to a new file or account, or move the old one away, and run the "
            "command again."
        )
    if found and found.value.status is not MigrationStatus.RESTORING:
        raise WrongState(await state.why_closed(target.tables) or _WAS_MIGRATED)
    run = secrets.token_hex(8)
    if found and found.value.id == manifest.id:
        row = msgspec.structs.replace(found.value, run=run, other=context.source_name)
    else:
        row = Migration(
            id=manifest.id,
            status=MigrationStatus.RESTORING,
            closing=manifest.id,
            other=context.source_name,
            run=run,
            stage=STAGES[0],
        )
    etag = await state.claim(target.tables, row, found and found.etag)
    return TargetMark.new(context, row, etag)


_WAS_MIGRATED = "This storage was copied elsewhere before, and reopened. Choose an empty one."


async def _compare(context: RestoreContext, mark: TargetMark) -> list[Comparison]:
    """Compare the storage with the backup; if they differ, the next run copies again."""

    def on_progress(name: str, done: int) -> None:
        context.on_progress(f"comparing {name}", done)
        if not context.may_go_on():
            raise Stopped

    parts = await compare_contents(context.source, context.target, on_progress)
    if any(part.differences for part in parts):
        await mark.record(STAGES[0])
        raise WrongState(
            f"{context.target_name} was changed by somebody else during the restore. Stop "
            "everything that uses it, and run the command again."
        )
    return parts


async def _put_items(context: RestoreContext, mark: TargetMark) -> None:
    """Fill the dead letters: those of the backup, and every single mail that was waiting."""
    now = context.clock.now()
    queues = context.target.queues
    await empty_queue(queues, DEAD_LETTER_QUEUE, context.clock, mark.check)
    letters = list(await context.source.items(DEAD_LETTER_QUEUE))
    for body in await context.source.items(SINGLE_MAIL_QUEUE):
        letter = dead_letter(SINGLE_MAIL_QUEUE, body, Reason.RESTORED, now)
        letters.append(msgspec.json.encode(letter).decode())
    for start in range(0, len(letters), ITEMS_AT_ONCE):
        some = letters[start : start + ITEMS_AT_ONCE]
        await mark.check()
        await queues.put(DEAD_LETTER_QUEUE, *some)
        context.on_progress(DEAD_LETTER_QUEUE, start + len(some))
