"""Copy everything from one storage into another, and prove it.

Before: nothing works on either storage; the target is empty, or an earlier run was at it.
After: the target has every row, blob and work item; both were read again and are equal; the source
is as it was, and closed: nothing starts there until somebody opens it.
Steps: nobody at work? > close the source > mark the target > tables > blobs > items > compare >
the source has moved > unmark the target.
Dies half-way: the same command goes on. Nothing starts on a target that is marked.
    before the source is closed    nothing happened
    before the target is marked    the source's row has an id, and the empty target is marked by it
    among tables or blobs          both are walked side by side from the place last noted: what is
                                   there and equal is passed over, the rest is written again
    among items                    the target's queue is emptied, and filled anew
    while comparing                compared again
    before the target is unmarked  compared again, then unmarked
The source changes meanwhile (a web role nobody stopped): the comparison finds it, the place goes
back to the beginning, and the next run writes what differs and deletes what is gone.
Two at once: the later one takes the mark over; the other looks at it before it writes, at most once
a second, and ends. So does one that was suspended meanwhile: the target may be open by then.
Commit point: the deletion of the target's mark.
"""

from __future__ import annotations

import secrets
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec

from postroom.clock import Clock
from postroom.domain.errors import NotFound, WrongState
from postroom.migration import comparison, queue_copy, state
from postroom.migration.comparison import BLOBS, Compared
from postroom.migration.row_pairs import Place, blob_names, is_empty, row_pairs
from postroom.migration.state import Migration, Standing, TakenOver
from postroom.migration.table_writer import Flight, Writer, surely
from postroom.records import leases
from postroom.records.names import QUEUES, SINGLE_MAIL_QUEUE, TABLES
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage, Tables

ITEMS, COMPARING = "items", "comparing"
STAGES = (*TABLES, BLOBS, ITEMS, COMPARING)
ROWS_A_NOTE = 10_000  # gone over again at most after a death
BLOBS_A_NOTE = 200
ROWS_TOLD_EVERY = 1000
BATCHES_IN_FLIGHT = 16  # enough for a line of 20 ms, and for a group commit to pay
BLOBS_IN_FLIGHT = 4  # each may have 64 MiB
SURE_FOR = timedelta(seconds=1)  # that the target is ours: a look before every write would cost
BEGINNINGS_MAX = 5  # while another command begins or notes its place
# No mail to a single person waits longer for its next try (confirm.py, send_test_mail.py).
HIDDEN_S_MAX = 35 * 60.0


class Stopped(Exception):
    """Told to stop; the place is noted."""


class Watch(Protocol):
    """Who looks on."""

    def may_go_on(self) -> bool: ...

    def reached(self, stage: str, done: int) -> None:
        """So many of this stage are gone over, in this run."""
        ...


@dataclass(frozen=True)
class Journey:
    """From where to where, each with its name for people."""

    source: Storage
    target: Storage
    source_name: str
    target_name: str
    clock: Clock
    watch: Watch


async def migrate(journey: Journey) -> list[Compared]:
    """All the steps; what the comparison found. The source has moved if that is no difference."""
    await _check_quiet(journey)
    log = await _begin(journey)
    for stage in STAGES[STAGES.index(log.mark.stage) : -1]:
        await _copy(journey, log, stage)
    found = await _compare(journey, log.mark)
    if any(part.differences for part in found):
        await log.note(STAGES[0])
        return found
    await _check_quiet(journey)
    await _finish(journey, log)
    return found


async def compare(journey: Journey) -> list[Compared]:
    """Both as they are now; nothing is changed."""
    return await comparison.compare(
        journey.source, journey.target, lambda name, done: _tell(journey, name, done)
    )


async def reopen(tables: Tables) -> None:
    """Let roles start again on a source; a migration that goes on later begins anew."""
    found = await state.find(tables)
    if found is None or found.value.standing is Standing.OPEN:
        raise NotFound("This storage is open. There is nothing to do.")
    if found.value.standing is Standing.FILLING:
        raise WrongState(await state.why_closed(tables))
    await state.write(tables, msgspec.structs.replace(found.value, standing=Standing.OPEN))


class AlreadyMoved(WrongState):
    """The source was moved before."""


async def _check_quiet(journey: Journey) -> None:
    now = journey.clock.now()
    for storage, name in (
        (journey.source, journey.source_name),
        (journey.target, journey.target_name),
    ):
        if living := await leases.living(storage.tables, now):
            raise WrongState(
                f"The role {living[0].name} is running on {name}. Stop every role there. If it was "
                "killed, try again in a minute."
            )


# --- The rows on both sides ---------------------------------------------------------------------


@dataclass
class _Log:
    """The mark in the target, and how far everything is surely in."""

    journey: Journey
    mark: Migration
    etag: str
    sure_until: datetime

    async def may_write(self) -> None:
        """TakenOver if the target is another's, or open: we may have slept for hours."""
        now = self.journey.clock.now()
        if now < self.sure_until:
            return
        await state.check_run(self.journey.target.tables, self.mark.run)
        self.sure_until = now + SURE_FOR

    async def note(self, stage: str, place: Place = ("", ""), **changes: Any) -> None:
        partition, key = place
        self.mark = msgspec.structs.replace(
            self.mark, stage=stage, partition=partition, key=key, **changes
        )
        self.etag = await self._surely_replaced()

    async def _surely_replaced(self) -> str:
        tables = self.journey.target.tables
        return await surely(lambda: state.replace(tables, self.mark, self.etag), self.journey.clock)

    def place_in(self, stage: str) -> Place | None:
        """Where the stage goes on; None: from its beginning."""
        place = (self.mark.partition, self.mark.key)
        return place if stage == self.mark.stage and any(place) else None


async def _begin(journey: Journey) -> _Log:
    """Looked at anew if another command changes either row meanwhile."""
    for _ in range(BEGINNINGS_MAX):
        with suppress(Conflict):
            return await _begun(journey)
    raise TakenOver


async def _begun(journey: Journey) -> _Log:
    """Close the source, then mark the target: in this order a death leaves what can be told."""
    now = journey.clock.now()
    here = await state.find(journey.source.tables)
    there = await state.find(journey.target.tables)
    await _check_ends(journey, here and here.value, there and there.value)
    closed = await _close(journey, here)
    run = secrets.token_hex(8)
    if there and there.value.closing == closed.closing:
        mark = msgspec.structs.replace(there.value, run=run)
    else:
        mark = Migration(
            id=closed.id,
            standing=Standing.FILLING,
            closing=closed.closing,
            other=journey.source_name,
            run=run,
            stage=STAGES[0],
        )
    etag = await state.take(journey.target.tables, mark, there and there.etag)
    return _Log(journey, mark, etag, now + SURE_FOR)


async def _check_ends(journey: Journey, here: Migration | None, there: Migration | None) -> None:
    """WrongState, with what to do, unless this is a beginning or goes on with one."""
    source, target = journey.source_name, journey.target_name
    if here and here.standing is Standing.FILLING:
        raise WrongState(
            f"{source} is being filled itself, from {here.other}: finish that migration first."
        )
    is_other = here and here.other != target
    if here and here.standing is Standing.MOVED and (there is None or is_other):
        raise AlreadyMoved(f"{source} was already moved to {here.other}.")
    if there is None:
        if await is_empty(journey.source, TABLES, QUEUES):
            raise WrongState(f"{source} is empty: there is nothing to move.")
        if not await is_empty(journey.target, TABLES, QUEUES):
            raise WrongState(f"{target} is not empty: choose a storage with nothing in it.")
    elif here is None or here.id != there.id or there.standing is not Standing.FILLING:
        raise WrongState(
            f"{target} belongs to another migration: choose a storage with nothing in it."
        )


async def _close(journey: Journey, found: Stored[Migration] | None) -> Migration:
    """From here on nothing starts on the source; Conflict if its row has changed."""
    here, etag = found or (None, None)
    if here and here.standing is not Standing.OPEN and here.other == journey.target_name:
        return here
    is_closed = here is not None and here.standing is Standing.CLOSED
    closed = Migration(
        id=here.id if here else secrets.token_hex(8),
        standing=Standing.CLOSED,
        closing=here.closing if here and is_closed else secrets.token_hex(8),
        other=journey.target_name,
    )
    await state.take(journey.source.tables, closed, etag)
    return closed


async def _finish(journey: Journey, log: _Log) -> None:
    """The source first: dying between the two leaves a target that can still be finished."""
    found = await state.find(journey.source.tables)
    is_closed = found is not None and found.value.standing is not Standing.OPEN
    if found is None or not is_closed or found.value.closing != log.mark.closing:
        raise WrongState(f"{journey.source_name} was opened meanwhile: run it again.")
    moved = msgspec.structs.replace(found.value, standing=Standing.MOVED)
    await surely(lambda: state.write(journey.source.tables, moved), journey.clock)
    await surely(lambda: state.forget(journey.target.tables, log.mark), journey.clock)


# --- Copying ------------------------------------------------------------------------------------


async def _copy(journey: Journey, log: _Log, stage: str) -> None:
    """One stage, from where it stands; then the next one begins."""
    changes: dict[str, Any] = {}
    if stage == BLOBS:
        await _copy_blobs(journey, log)
    elif stage == ITEMS:
        changes["items"] = await _carry_items(journey, log)
    else:
        await _copy_table(journey, log, stage)
    await log.note(STAGES[STAGES.index(stage) + 1], **changes)


async def _copy_table(journey: Journey, log: _Log, table: str) -> None:
    tables = journey.source.tables, journey.target.tables
    pairs = row_pairs(*tables, table, log.place_in(table))
    async with Flight(BATCHES_IN_FLIGHT) as flight, aclosing(pairs):
        writer, done = Writer(flight, tables[1], table, journey.clock, log.may_write), 0
        async for pair in pairs:
            await writer.mend(pair)
            done += 1
            if done % ROWS_TOLD_EVERY == 0:
                journey.watch.reached(table, done)
            if done % ROWS_A_NOTE == 0 or not journey.watch.may_go_on():
                await writer.finish()
                await _arrive(log, table, pair.place)
        await writer.finish()


async def _copy_blobs(journey: Journey, log: _Log) -> None:
    """Names cannot be begun from the middle; those up to the place are not looked at."""
    after = log.place_in(BLOBS) or ("", "")
    names = blob_names(journey.source.blobs, journey.target.blobs)
    async with Flight(BLOBS_IN_FLIGHT) as flight, aclosing(names):
        done = 0
        async for name, is_here, is_there in names:
            if name <= after[1]:
                continue
            await flight.start(_mend_blob(log, name, is_here, is_there))
            done += 1
            journey.watch.reached(BLOBS, done)
            if done % BLOBS_A_NOTE == 0 or not journey.watch.may_go_on():
                await flight.finish()
                await _arrive(log, BLOBS, ("", name))


async def _arrive(log: _Log, stage: str, place: Place) -> None:
    """Everything up to this place is in."""
    await log.note(stage, place)
    if not log.journey.watch.may_go_on():
        raise Stopped


async def _mend_blob(log: _Log, name: str, is_here: bool, is_there: bool) -> None:
    source, target = log.journey.source.blobs, log.journey.target.blobs
    content = await source.get(name) if is_here else None
    if content is not None and is_there and await target.get(name) == content:
        return

    async def mend() -> None:
        await log.may_write()
        await (target.delete(name) if content is None else target.put(name, content))

    await surely(mend, log.journey.clock)


async def _carry_items(journey: Journey, log: _Log) -> dict[str, int]:
    """How many of each queue. What is hidden now shows by and by; the mail queue is not waited for.

    Of that, the ledgers know who is still to be mailed: sweep.py puts what is missing. Nobody else
    knows of an item on the subscribe queue.
    """
    was_begun = log.place_in(ITEMS) is not None
    await log.note(ITEMS, ("", "begun"))
    carried: dict[str, int] = {}
    for queue in QUEUES:
        wait_s = queue_copy.EMPTIED_WITHIN_S if was_begun else 0.0
        carried[queue] = await queue_copy.carry(
            journey.source.queues,
            journey.target.queues,
            queue,
            journey.clock,
            wait_s=HIDDEN_S_MAX if queue == SINGLE_MAIL_QUEUE else wait_s,
            may_go_on=partial(_may_carry_on, journey, queue),
            may_write=log.may_write,
        )
        if not journey.watch.may_go_on():
            raise Stopped
    return carried


def _may_carry_on(journey: Journey, queue: str, done: int) -> bool:
    journey.watch.reached(queue, done)
    return journey.watch.may_go_on()


async def _compare(journey: Journey, mark: Migration) -> list[Compared]:
    return await comparison.compare(
        journey.source,
        journey.target,
        lambda name, done: _tell(journey, name, done),
        carried=mark.items,
    )


def _tell(journey: Journey, name: str, done: int) -> None:
    journey.watch.reached(f"comparing {name}", done)
    if not journey.watch.may_go_on():
        raise Stopped
