"""Copy everything from one storage into another, and verify the copy.

Before: nothing uses either storage; the target is empty, or was partly filled by an earlier run.
After: the target has every row, blob and work item; both were read again and are equal; the source
is unchanged, and closed: nothing starts there until somebody reopens it.
Steps: check that no role runs > close the source > mark the target > copy tables, blobs and items >
compare > mark the source as moved > unmark the target.
Dies half-way: the same command continues. Nothing starts on a target that is marked.
    before the source is closed    nothing happened
    before the target is marked    the source's row has an id, with which the empty target is marked
    among tables or blobs          both are read together from the last recorded position: equal
                                   rows are skipped, the others are written again
    among items                    the target's queue is emptied, and filled again
    while comparing                compared again
    before the target is unmarked  compared again, then unmarked
If the source changes meanwhile (a web role that was not stopped), the comparison finds it, the
position goes back to the beginning, and the next run writes what differs and deletes what is gone.
If two run at once, the later one takes the mark over. The earlier one checks the mark before it
writes, at most once a second, and ends. So does a process that was suspended, because by then the
target may be in use.
Commit point: the deletion of the target's mark.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

from postroom.domain.errors import NotFound, WrongState
from postroom.migration import comparison, queue_copy, state
from postroom.migration.comparison import BLOBS, Comparison
from postroom.migration.filling import (
    FillingContext,
    Stopped,
    TargetMark,
    copy_blobs,
    copy_table,
)
from postroom.migration.row_pairs import is_empty
from postroom.migration.state import Migration, MigrationStatus, TakenOver
from postroom.migration.table_writer import call_with_retries
from postroom.records import leases
from postroom.records.names import QUEUES, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.retry import retry_on_conflict
from postroom.records.stored import Stored
from postroom.storage.port import Storage, Tables

ITEMS, COMPARING = "items", "comparing"
STAGES = (*TABLES, BLOBS, ITEMS, COMPARING)
BEGIN_TRIES_MAX = 5  # while another command begins, or records its position
# No email to a single person waits longer for its next try (confirm.py, send_test_mail.py).
HIDDEN_S_MAX = 35 * 60.0


class AlreadyMoved(WrongState):
    """The source was moved before."""


@dataclass(frozen=True)
class MigrationContext(FillingContext):
    source: Storage


async def migrate(context: MigrationContext) -> list[Comparison]:
    """Migrate, and return what the comparison found. With any difference, nothing has moved."""
    await _check_no_role_runs(context)
    mark = await retry_on_conflict(
        partial(_begin, context), tries=BEGIN_TRIES_MAX, at_last=TakenOver()
    )
    for stage, next_stage in list(pairwise(STAGES))[STAGES.index(mark.row.stage) :]:
        copied: dict[str, Any] = {}
        if stage == BLOBS:
            await copy_blobs(context, mark)
        elif stage == ITEMS:
            copied["items"] = await _copy_items(context, mark)
        else:
            await copy_table(context, mark, stage)
        await mark.record(next_stage, **copied)
    found = await compare(context, copied=mark.row.items)
    if any(part.differences for part in found):
        await mark.record(STAGES[0])
        return found
    await _check_no_role_runs(context)
    await _finish(context, mark.row)
    return found


async def compare(
    context: MigrationContext, *, copied: Mapping[str, int] | None = None
) -> list[Comparison]:
    """Compare both as they are now; nothing is changed."""

    def on_progress(name: str, done: int) -> None:
        context.on_progress(f"comparing {name}", done)
        if not context.may_go_on():
            raise Stopped

    return await comparison.compare(context.source, context.target, on_progress, copied=copied)


async def reopen(tables: Tables) -> None:
    """Let roles start again on a source; a migration that continues later starts over."""
    found = await state.find(tables)
    if found is None or found.value.status is MigrationStatus.OPEN:
        raise NotFound("This storage is open. There is nothing to do.")
    if found.value.status in state.INCOMPLETE:
        raise WrongState(await state.why_closed(tables))
    await state.write(tables, msgspec.structs.replace(found.value, status=MigrationStatus.OPEN))


async def _check_no_role_runs(context: MigrationContext) -> None:
    now = context.clock.now()
    for storage, name in (
        (context.source, context.source_name),
        (context.target, context.target_name),
    ):
        if living := await leases.living(storage.tables, now):
            raise WrongState(
                f"The role {living[0].name} is running on {name}. Stop every role there. If it was "
                "killed, try again in a minute."
            )


async def _begin(context: MigrationContext) -> TargetMark:
    """Close the source, then mark the target, so that a crash between the two can be recognised.

    Conflict if another command changes either row meanwhile.
    """
    here = await state.find(context.source.tables)
    there = await state.find(context.target.tables)
    await _check_states(context, here and here.value, there and there.value)
    closed = await _close(context, here)
    run = secrets.token_hex(8)
    if there and there.value.closing == closed.closing:
        row = msgspec.structs.replace(there.value, run=run)
    else:
        row = Migration(
            id=closed.id,
            status=MigrationStatus.FILLING,
            closing=closed.closing,
            other=context.source_name,
            run=run,
            stage=STAGES[0],
        )
    etag = await state.claim(context.target.tables, row, there and there.etag)
    return TargetMark.new(context, row, etag)


async def _check_states(
    context: MigrationContext, here: Migration | None, there: Migration | None
) -> None:
    """WrongState, with what to do, unless a migration can begin or continue."""
    source = context.source_name
    target = context.target_name
    if here and here.status in state.INCOMPLETE:
        raise WrongState(f"{source} is itself being filled from {here.other}. Finish that first.")
    is_other = here and here.other != target
    if here and here.status is MigrationStatus.MOVED and (there is None or is_other):
        raise AlreadyMoved(f"{source} was already moved to {here.other}.")
    if there is None:
        if await is_empty(context.source, TABLES, QUEUES):
            raise WrongState(f"{source} is empty. There is nothing to move.")
        if not await is_empty(context.target, TABLES, QUEUES):
            raise WrongState(f"{target} is not empty. Choose an empty storage.")
    elif here is None or here.id != there.id or there.status is not MigrationStatus.FILLING:
        raise WrongState(f"{target} belongs to another migration. Choose an empty storage.")


async def _close(context: MigrationContext, found: Stored[Migration] | None) -> Migration:
    """Let nothing start on the source from now on; Conflict if its row has changed."""
    here, etag = found or (None, None)
    if here and here.status is not MigrationStatus.OPEN and here.other == context.target_name:
        return here
    is_closed = here is not None and here.status is MigrationStatus.CLOSED
    closed = Migration(
        id=here.id if here else secrets.token_hex(8),
        status=MigrationStatus.CLOSED,
        closing=here.closing if here and is_closed else secrets.token_hex(8),
        other=context.target_name,
    )
    await state.claim(context.source.tables, closed, etag)
    return closed


async def _finish(context: MigrationContext, mark: Migration) -> None:
    """Mark the source first: after a crash between the two, the target can still be finished."""
    found = await state.find(context.source.tables)
    is_closed = found is not None and found.value.status is not MigrationStatus.OPEN
    if found is None or not is_closed or found.value.closing != mark.closing:
        raise WrongState(f"{context.source_name} was reopened. Run the command again.")
    moved = msgspec.structs.replace(found.value, status=MigrationStatus.MOVED)
    await call_with_retries(partial(state.write, context.source.tables, moved), context.clock)
    await call_with_retries(partial(state.delete, context.target.tables, mark.run), context.clock)


async def _copy_items(context: MigrationContext, mark: TargetMark) -> dict[str, int]:
    """Return how many items of each queue were copied.

    Items of the mail queue that are hidden now are not waited for, because the ledgers know who is
    still to be mailed, and sweep.py puts what is missing. Items on the subscribe queue are recorded
    nowhere else, so they are waited for.
    """
    was_begun = mark.position_in(ITEMS) is not None
    await mark.record(ITEMS, ("", "begun"))

    def may_go_on(queue: str, done: int) -> bool:
        context.on_progress(queue, done)
        return context.may_go_on()

    copied: dict[str, int] = {}
    for queue in QUEUES:
        wait_s = queue_copy.EMPTIED_WITHIN_S if was_begun else 0.0
        copied[queue] = await queue_copy.copy_queue(
            context.source.queues,
            context.target.queues,
            queue,
            context.clock,
            wait_s=HIDDEN_S_MAX if queue == SINGLE_MAIL_QUEUE else wait_s,
            may_go_on=partial(may_go_on, queue),
            check=mark.check,
        )
        if not context.may_go_on():
            raise Stopped
    return copied
