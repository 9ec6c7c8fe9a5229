"""Action, ask to confirm: send a confirmation email to people on a list who have not confirmed.

Before: people are on a list, unverified; an administrator, or an import, wants them asked.
After: each has an item on the subscribe queue, as after a sign-up, and a row with the time.
confirm.py sends the emails. Nobody is asked more often than domain/asking.py allows.
Dies half-way:
    before the items are put      nothing happened: the next run asks these people
    between items and rows        the next run asks them again: one more email each, to at most
                                  PEOPLE_AT_ONCE people
    after the rows                the next run finds that they were asked, and skips them
A run over a whole list has its own row, written after every group. If its process dies, the
row is no longer updated and counts as stopped. The next run starts from the first address again,
and counts people who were asked since the job began as asked by it.
Commit point: the rows of a group, with `asked_at` and the events, in one write.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.ask_job import AskJob, started
from postroom.domain.asking import CannotAsk, asked, cannot_ask
from postroom.domain.audit import AuditAction, AuditKind
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
PAGE_PEOPLE = 10 * PEOPLE_AT_ONCE  # a bound on memory, and on how old a row gets
COUNT_FOR = timedelta(seconds=4)  # somebody is waiting for the page that shows the number
# A new sign-up waits behind at most this many others, while senders keep up.
ITEMS_AHEAD_MAX = 32
# Polls of a full queue. Then a group is put anyway, because there may be no sender running.
POLLS_MAX = 10
POLL_EVERY_S = 0.1
_SLOW = _("Storage did not respond. Start again: people who have already been asked are skipped.")


class Tally(msgspec.Struct, frozen=True):
    """How many unconfirmed people may be asked now, and why the others are skipped."""

    askable: int = 0
    lately: int = 0
    often: int = 0
    unsubscribed_before: int = 0
    is_whole: bool = True  # False if the list is too long, and only its beginning was counted


async def tally(tables: Tables, list_name: str, clock: Clock) -> Tally:
    """Count exactly if the list can be read within COUNT_FOR."""
    now = clock.now()
    counts: Counter[CannotAsk | None] = Counter()
    after: str | None = None
    while True:
        people, after = await edits.unverified_page(tables, list_name, after, limit=SCAN_ROWS_MAX)
        counts.update(cannot_ask(one, now) for one, _etag in people)
        if after is None or clock.now() - now >= COUNT_FOR:
            break
    return Tally(
        askable=counts[None],
        lately=counts[CannotAsk.LATELY],
        often=counts[CannotAsk.OFTEN],
        unsubscribed_before=counts[CannotAsk.UNSUBSCRIBED_BEFORE],
        is_whole=after is None,
    )


async def ask_one(act: Act, list_name: str, key: str) -> CannotAsk | None:
    """Ask one person; return why they were not asked, or None."""
    found = await subscribers.find(act.tables, list_name, key)
    if found is None:
        return CannotAsk.INACTIVE
    why = cannot_ask(found.value, act.clock.now(), by_hand=True)
    if why is None:
        name = f"{list_name} {found.value.address}"
        async with act.audited(AuditKind.SUBSCRIBER, name, AuditAction.ASK):
            await ask_together(act, [found], by_hand=True)
    return why


async def ask_together(
    act: Act, people: Sequence[Stored[Subscriber]], *, by_hand: bool = False
) -> int:
    """Ask the people of one list who may be asked; return how many."""
    queues = act.storage.queues
    now = act.clock.now()
    chosen = [each for each in people if cannot_ask(each.value, now, by_hand=by_hand) is None]
    for start in range(0, len(chosen), PEOPLE_AT_ONCE):
        for _poll in range(POLLS_MAX):  # let new sign-ups go first
            waiting = await queues.peek(SINGLE_MAIL_QUEUE, limit=ITEMS_AHEAD_MAX)
            if len(waiting) < ITEMS_AHEAD_MAX:
                break
            await act.clock.sleep(POLL_EVERY_S)
        group = chosen[start : start + PEOPLE_AT_ONCE]
        items = [ConfirmItem(one.guid, one.list_name).body() for one, _etag in group]
        await queues.put(SINGLE_MAIL_QUEUE, *items)
        act.wake_senders()
        try:
            await _record(act, group, now)
        except Conflict:  # somebody confirmed or unsubscribed at this moment
            await _record_one_by_one(act, group, now, by_hand=by_hand)
    return len(chosen)


async def _record_one_by_one(
    act: Act, people: Sequence[Stored[Subscriber]], now: datetime, *, by_hand: bool
) -> None:
    async def record(one: Subscriber) -> None:
        found = await subscribers.find(act.tables, one.list_name, one.key)
        if found and cannot_ask(found.value, now, by_hand=by_hand) is None:
            await _record(act, [found], now)

    for one, _etag in people:
        with contextlib.suppress(Conflict):  # then the next run asks them again
            await retry_on_conflict(partial(record, one))


async def _record(act: Act, people: Sequence[Stored[Subscriber]], now: datetime) -> None:
    consent = act.trace.consent(Event.INVITED, now)  # not act.now: a run may last for hours
    changed = [
        SubscriberEdit(each.value, asked(each.value, now), each.etag, consent) for each in people
    ]
    await edits.replace_together(act.tables, people[0].value.list_name, changed, now)


async def start(
    tables: Tables, list_name: str, *, by: str, total: int, run: str, now: datetime
) -> Stored[AskJob]:
    """Return the job and its row's etag, ready to run; WrongState if one is already running."""
    await lists.read(tables, list_name)
    found = await ask_jobs.find(tables, list_name)
    job = started(found.value if found else None, list_name, by, total, run, now)
    try:
        return Stored(job, await ask_jobs.put(tables, job, found.etag if found else None))
    except Conflict:
        raise WrongState(_("Somebody else started this at the same moment.")) from None


async def stop(tables: Tables, list_name: str) -> None:
    """Ask the process that runs the job to stop, through its row."""

    async def ask_to_stop() -> None:
        found = await ask_jobs.find(tables, list_name)
        if found and found.value.is_running:
            job = msgspec.structs.replace(found.value, is_stop_asked=True)
            await ask_jobs.put(tables, job, found.etag)

    await retry_on_conflict(ask_to_stop)


async def run(
    act: Act, job: AskJob, etag: str, may_go_on: Callable[[], bool] = lambda: True
) -> AskJob:
    """Ask everybody on the list who may be asked; return the job as it ended."""
    progress = _Progress(act, job, etag)
    status = JobStatus.FAILED
    mistake = str(_SLOW)
    try:
        status = JobStatus.DONE if await _ask_everybody(progress, may_go_on) else JobStatus.STOPPED
        mistake = ""
    except StorageError as error:
        log.warning("asking_failed", list=job.list_name, error=type(error).__name__)
    except NotFound as error:
        mistake = str(error)
    with contextlib.suppress(StorageError):  # then the row reads as stopped
        await progress.record(status=status, mistake=mistake, ended_at=act.clock.now())
    return progress.job


async def _ask_everybody(progress: _Progress, may_go_on: Callable[[], bool]) -> bool:
    """Ask page by page, group by group; False if it was stopped."""
    tables = progress.act.tables
    name = progress.job.list_name
    after: str | None = None
    while True:
        people, after = await edits.unverified_page(tables, name, after, limit=PAGE_PEOPLE)
        if await lists.find(tables, name) is None:
            raise NotFound(_("The list {name} was deleted.", name=name))
        for start in range(0, max(1, len(people)), PEOPLE_AT_ONCE):
            if not may_go_on() or not await progress.ask(people[start : start + PEOPLE_AT_ONCE]):
                return False
        if after is None:
            return True


@dataclass
class _Progress:
    """The progress of a run, in memory and in its row."""

    act: Act
    job: AskJob
    etag: str

    async def ask(self, people: Sequence[Stored[Subscriber]]) -> bool:
        """Ask a group and record the progress; return whether the run may continue."""
        now = self.act.clock.now()
        # An earlier run of this job, which was stopped or died, may have asked some of them.
        count = sum(
            one.asked_at is not None
            and one.asked_at >= self.job.created_at
            and cannot_ask(one, now) is CannotAsk.LATELY
            for one, _etag in people
        )
        count += await ask_together(self.act, people)
        return await self.record(
            asked=self.job.asked + count, skipped=self.job.skipped + len(people) - count
        )

    async def record(self, **changes: Any) -> bool:
        """Write the row; False if somebody asked to stop, or another process has taken over."""
        tables = self.act.tables
        current: Stored[AskJob] | None = Stored(self.job, self.etag)

        async def write() -> bool:
            nonlocal current
            found = current or await ask_jobs.find(tables, self.job.list_name)
            current = None  # after a conflict it is read again
            if found is None or found.value.run != self.job.run:
                return False
            job = msgspec.structs.replace(found.value, seen_at=self.act.clock.now(), **changes)
            self.etag = await ask_jobs.put(tables, job, found.etag)
            self.job = job
            return not job.is_stop_asked

        return await retry_on_conflict(write)
