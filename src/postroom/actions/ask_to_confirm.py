"""Action, ask to confirm: send a confirmation email to people on a list who have not confirmed.

Before: people are on a list, unverified; an administrator, or an import, wants them asked.
After: each has an item on the subscribe queue, as after a sign-up, and a row that says when.
confirm.py sends the mails. Nobody is asked more often than domain/asking.py allows.
Dies half-way:
    before the items are put      nothing happened: the next run asks these people
    between items and rows        the next run asks them again: one mail more each, and at most
                                  PEOPLE_AT_ONCE people
    after the rows                the next run finds that they were asked, and skips them
A run over a whole list has a row of its own, written after every group. When its process dies, that
row falls silent and reads as stopped. Going on starts from the first address again, and counts
whoever was asked since the job began as asked by it.
Commit point: the rows of a group, with `asked_at` and the events, in one write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.ask_job import AskJob, started
from postroom.domain.asking import CannotAsk, asked, cannot_ask
from postroom.domain.consent import Event
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.job_status import JobStatus
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import _
from postroom.domain.work_item import ConfirmItem
from postroom.records import ask_jobs, edits, lists, subscribers
from postroom.records.edits import SubscriberEdit
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.records.retry import retry_on_conflict
from postroom.records.stored import Stored
from postroom.storage.port import SCAN_ROWS_MAX, Conflict, StorageError, Tables

log = structlog.get_logger("ask")
PEOPLE_AT_ONCE = edits.EDITS_MAX
PAGE_PEOPLE = 10 * PEOPLE_AT_ONCE  # read at a time: a bound on memory, and on how old a row gets
COUNT_FOR = timedelta(seconds=4)  # at most: somebody waits for the page that shows the number
# Whoever signs up right now waits behind so many others at most, while senders keep up.
ITEMS_AHEAD_MAX = 32
# So long a full queue is waited for. Then a group is put anyway: there may be no sender running.
LOOKS_MAX = 10
LOOK_EVERY_S = 0.1
_SLOW = _("Storage did not answer. Whoever was asked is not asked again when you go on.")


class Tally(msgspec.Struct):
    """How many unconfirmed people may be asked now, and why the others are skipped."""

    askable: int = 0
    lately: int = 0
    often: int = 0
    left_before: int = 0
    is_whole: bool = True  # False: the list is too long, and only its beginning was counted


async def tally(tables: Tables, list_name: str, clock: Clock) -> Tally:
    """Exact for any list that can be read within COUNT_FOR."""
    now, found = clock.now(), Tally()
    after: str | None = None
    while True:
        people, after = await edits.unverified_page(tables, list_name, after, limit=SCAN_ROWS_MAX)
        for one, _etag in people:
            match cannot_ask(one, now):
                case None:
                    found.askable += 1
                case CannotAsk.LATELY:
                    found.lately += 1
                case CannotAsk.OFTEN:
                    found.often += 1
                case CannotAsk.LEFT_BEFORE:
                    found.left_before += 1
        found.is_whole = after is None
        if after is None or clock.now() - now >= COUNT_FOR:
            return found


# --- Some people --------------------------------------------------------------------------------


async def ask_one(act: Act, list_name: str, key: str) -> CannotAsk | None:
    """Why this person was not asked; None if they were."""
    found = await subscribers.find(act.tables, list_name, key)
    if found is None:
        return CannotAsk.GONE
    why = cannot_ask(found.value, act.clock.now())
    if why is None:
        await ask_together(act, [found])
    return why


async def ask_together(act: Act, people: Sequence[Stored[Subscriber]]) -> int:
    """Ask those of one list who may be asked; how many."""
    now = act.clock.now()
    chosen = [each for each in people if cannot_ask(each.value, now) is None]
    for start in range(0, len(chosen), PEOPLE_AT_ONCE):
        await _wait_for_room(act)
        await _ask_group(act, chosen[start : start + PEOPLE_AT_ONCE], now)
    return len(chosen)


async def _ask_group(act: Act, people: Sequence[Stored[Subscriber]], now: datetime) -> None:
    items = [ConfirmItem(each.value.guid, each.value.list_name).body() for each in people]
    await act.storage.queues.put(SINGLE_MAIL_QUEUE, *items)
    act.wake_senders()
    try:
        await _note(act, people, now)
    except Conflict:  # somebody confirmed or left at this moment: the others are noted one by one
        for each in people:
            await _note_alone(act, each.value, now)


async def _note(act: Act, people: Sequence[Stored[Subscriber]], now: datetime) -> None:
    consent = act.trace.consent(Event.INVITED, now)  # a run may last for hours
    changed = [
        SubscriberEdit(each.value, asked(each.value, now), each.etag, consent) for each in people
    ]
    await edits.replace_together(act.tables, people[0].value.list_name, changed, now)


async def _note_alone(act: Act, one: Subscriber, now: datetime) -> None:
    async def note() -> None:
        found = await subscribers.find(act.tables, one.list_name, one.key)
        if found and cannot_ask(found.value, now) is None:
            await _note(act, [found], now)

    with contextlib.suppress(Conflict):  # then the next run asks them again: one email more
        await retry_on_conflict(note)


async def _wait_for_room(act: Act) -> None:
    """Let people who sign up go first."""
    for _look in range(LOOKS_MAX):
        waiting = await act.storage.queues.peek(SINGLE_MAIL_QUEUE, limit=ITEMS_AHEAD_MAX)
        if len(waiting) < ITEMS_AHEAD_MAX:
            return
        await act.clock.sleep(LOOK_EVERY_S)


# --- A whole list -------------------------------------------------------------------------------


async def start(
    tables: Tables, list_name: str, *, by: str, total: int, run: str, now: datetime
) -> Stored[AskJob]:
    """The job, and its row's etag, ready to run; WrongState if one is running already."""
    await lists.read(tables, list_name)
    found = await ask_jobs.find(tables, list_name)
    job = started(found.value if found else None, list_name, by, total, run, now)
    try:
        return Stored(job, await ask_jobs.put(tables, job, found.etag if found else None))
    except Conflict:
        raise WrongState(_("Somebody else started this at the same moment.")) from None


async def stop(tables: Tables, list_name: str) -> None:
    """The process that runs it finds this in the row."""

    async def ask_to_stop() -> None:
        found = await ask_jobs.find(tables, list_name)
        if found and found.value.is_running:
            job = msgspec.structs.replace(found.value, is_stop_asked=True)
            await ask_jobs.put(tables, job, found.etag)

    await retry_on_conflict(ask_to_stop)


async def run(
    act: Act, job: AskJob, etag: str, may_go_on: Callable[[], bool] = lambda: True
) -> AskJob:
    """Ask everybody on the list who may be asked; the job as it ended."""
    progress = _Progress(act, job, etag)
    status, mistake = JobStatus.FAILED, str(_SLOW)
    try:
        is_through = await _ask_everybody(act, progress, may_go_on)
        status, mistake = (JobStatus.DONE if is_through else JobStatus.STOPPED), ""
    except StorageError as error:
        log.warning("asking_failed", list=job.list_name, error=type(error).__name__)
    except NotFound as error:
        mistake = str(error)
    with contextlib.suppress(StorageError):  # then the row falls silent
        await progress.note(status=status, mistake=mistake, ended_at=act.clock.now())
    return progress.job


async def _ask_everybody(act: Act, progress: _Progress, may_go_on: Callable[[], bool]) -> bool:
    """Page by page, group by group; False if it was stopped."""
    tables, name = act.tables, progress.job.list_name
    after: str | None = None
    while True:
        people, after = await edits.unverified_page(tables, name, after, limit=PAGE_PEOPLE)
        if await lists.find(tables, name) is None:
            raise NotFound(_("The list {name} was deleted.", name=name))
        for start in range(0, max(1, len(people)), PEOPLE_AT_ONCE):
            if not may_go_on():
                return False
            group = people[start : start + PEOPLE_AT_ONCE]
            if not await progress.ask(group):
                return False
        if after is None:
            return True


@dataclass
class _Progress:
    """How far a run is, in memory and in its row."""

    act: Act
    job: AskJob
    etag: str

    async def ask(self, people: Sequence[Stored[Subscriber]]) -> bool:
        """Ask a group and write down how far it is; whether the run may go on."""
        before = sum(self._is_asked_by_this_job(each.value) for each in people)
        count = before + await ask_together(self.act, people)
        return await self.note(
            asked=self.job.asked + count, skipped=self.job.skipped + len(people) - count
        )

    async def note(self, **told: Any) -> bool:
        """Write the row; False if somebody asked to stop, or another process has taken over."""
        tables = self.act.tables
        known: Stored[AskJob] | None = Stored(self.job, self.etag)

        async def write() -> bool:
            nonlocal known
            found = known or await ask_jobs.find(tables, self.job.list_name)
            known = None  # after a conflict it is read again
            if found is None or found.value.run != self.job.run:
                return False
            job = msgspec.structs.replace(found.value, seen_at=self.act.clock.now(), **told)
            self.etag = await ask_jobs.put(tables, job, found.etag)
            self.job = job
            return not job.is_stop_asked

        return await retry_on_conflict(write)

    def _is_asked_by_this_job(self, one: Subscriber) -> bool:
        """Before this run, by one that was stopped or died."""
        is_since = one.asked_at is not None and one.asked_at >= self.job.created_at
        return is_since and cannot_ask(one, self.act.clock.now()) is CannotAsk.LATELY
