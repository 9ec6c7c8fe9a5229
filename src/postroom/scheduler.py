"""The scheduler role: the holder of the lease takes every due message one step further.

Any number may run, but only one is active. Everything it writes is guarded by etags or inserted
only if absent, so a scheduler that stalls past its lease and wakes up can do no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from postroom import spans
from postroom.clock import Clock
from postroom.domain.message import Message, Status
from postroom.flow import archive, fan_out, feedback, report, schedule, sweep
from postroom.flow.schedule import Agenda, DueMessage, Leftovers
from postroom.importing import upload as import_upload
from postroom.importing import worker as import_worker
from postroom.intervals import LOCAL, Intervals
from postroom.process_locks import ProcessLocks
from postroom.records import (
    audit,
    dead_letters,
    idempotency,
    instances,
    leases,
    messages,
    throttles,
    traces,
    trials,
    users,
)
from postroom.records.leases import Lease, RenewalTracker
from postroom.records.messages import DueEntry
from postroom.records.names import MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.records.suppression_filter import SuppressionFilter
from postroom.storage.port import CLAIM_ITEMS_MAX, Conflict, Storage, StorageError

BUSY_SWEEPS_LATER = 5  # times the usual pause
FEW = 5_000  # deliveries, less than a second's work of a sender
FIRST_BATCHES = 10  # of a new message, written at once even if the queue is full
log = structlog.get_logger("scheduler")


@dataclass
class Scheduler:
    """One iteration is `step`; worker.py has the loop around it."""

    storage: Storage
    clock: Clock
    owner: str
    locks: ProcessLocks | None = None  # None: nobody on this machine is asked
    intervals: Intervals = LOCAL
    items_ahead: int = CLAIM_ITEMS_MAX  # items that may wait before messages do; 0: any number
    keep_archive_days: int = 365
    unconfirmed_days: int = 30
    keep_traces: tuple[float, int] = (14.0, 1_000_000)  # days and rows
    audit_days: int = 730
    dead_letter_days: int = 90
    is_test_mode: bool = False  # mails are stored, not sent
    suppressions: SuppressionFilter | None = None  # None: nobody is suppressed
    lease: Lease | None = None
    _reported: dict[str, float] = field(default_factory=dict)  # when to report again
    _next_at: float | None = None  # when the next message is due, as far as we know
    _swept_at: float | None = None
    _tidied_at: float | None = None
    _renew_at: float = 0.0  # the lease
    _renewal_tracker: RenewalTracker = field(init=False)
    _leftovers: Leftovers = field(init=False)
    _is_full: bool = False  # a message waits for room in the queue
    _queued_last: str = ""  # ref of the message that had room last
    _taken_over: set[str] = field(default_factory=set)  # refs of messages that others had begun

    def __post_init__(self) -> None:
        self._renewal_tracker = RenewalTracker(self.clock)
        self._leftovers = Leftovers(self.clock)
        if self.locks:
            self.locks.hold(self.owner)

    async def step(self) -> bool:
        """Take every due message one step further; return whether there is more to do at once."""
        if not await self._leads():
            return False
        is_busy = False
        agenda = await schedule.read_agenda(self.storage.tables, self.clock.now())
        self._next_at = agenda.next_at
        self._is_full = False
        refs = [entry.ref for entry in agenda.due]
        first = refs.index(self._queued_last) + 1 if self._queued_last in refs else 0
        for entry in [*agenda.due[first:], *agenda.due[:first]]:  # the one that had room comes last
            is_busy |= await self._try_to_advance(entry, agenda)
            if not await self._leads():
                return False
        self._leftovers.keep(agenda.due)
        self._reported = {ref: at for ref, at in self._reported.items() if ref in refs}
        self._taken_over &= set(refs)
        await self._sweep(is_busy=is_busy)
        return is_busy

    @property
    def is_sending(self) -> bool:
        """Whether messages are being sent, as far as the last step saw."""
        return bool(self._reported)

    async def stop(self) -> None:
        """Let another scheduler lead at once."""
        lease, self.lease = self.lease, None
        try:
            if lease:
                await leases.give_up(self.storage.tables, lease)
        except StorageError:
            return  # the lock file stays and shows the next one that we have ended
        if self.locks:
            self.locks.release(self.owner)

    async def rest_s(self) -> float:
        """How long nothing will be due, as far as the last step saw."""
        rest_s = min(self.intervals.schedule_s, self.intervals.lease_s / 3)
        if self.lease and self._is_full:
            rest_s = min(rest_s, self.intervals.room_s)
        if self.lease:
            ahead = [until - self.clock.monotonic() for until in self._reported.values()]
            if self._next_at is not None:
                ahead.append(self._next_at - self.clock.now().timestamp())
            rest_s = max(0.0, min([rest_s, *ahead]))
        return rest_s

    async def step_and_report(self) -> bool:
        """A step that counts the books of every message, even if they were just counted."""
        self._reported.clear()
        return await self.step()

    async def _leads(self) -> bool:
        """Renew the lease when a third of it is used up."""
        now = self.clock.now()
        now_s = self.clock.monotonic()
        if self.lease and now_s < self._renew_at:
            return True
        was_leading = self.lease is not None
        self.lease = await leases.hold(
            self.storage.tables,
            leases.SCHEDULER,
            self.owner,
            now=now,
            lease_s=self.intervals.lease_s,
            kept=self.lease,
            troubles=self.storage.troubles,
            renewals=self._renewal_tracker,
            is_dead=self.locks.is_dead if self.locks else lambda owner: False,
        )
        self._renew_at = now_s + self.intervals.lease_s / 3
        if was_leading != (self.lease is not None):
            log.info("scheduler_leads" if self.lease else "scheduler_stands_by", owner=self.owner)
        return self.lease is not None

    @property
    def _leadership(self) -> str:
        """An id for the period in which this scheduler holds the lease."""
        return f"{self.owner}/{self.lease.fence}" if self.lease else self.owner

    async def _try_to_advance(self, entry: DueEntry, agenda: Agenda) -> bool:
        """Advance one message; one that cannot continue must not hold up the others."""
        try:
            tables = self.storage.tables
            due = await schedule.due_message(tables, entry, agenda, self._leftovers)
            if due is None:
                self._reported.pop(entry.ref, None)
            if due is None:
                return False
            with spans.span("advance message", **{"postroom.message": entry.ref}):
                return await self._advance(due)
        except Conflict:  # a person or another scheduler changed it: read it again
            return True
        except Exception as error:
            if isinstance(error, StorageError) and not isinstance(error, Unreadable):
                raise
            log.exception("message_stuck", ref=entry.ref)
            return False

    async def _advance(self, due: DueMessage) -> bool:
        """Take the next step of one message; return whether it needs another one at once."""
        message = due.message
        tables = self.storage.tables
        now = self.clock.now()
        if message.status is Status.PENDING:
            if not due.entry.is_due:  # so that a clock set back does not stop it half-way
                await messages.note_due(tables, due.entry)
            name, is_test = self._leadership, self.is_test_mode
            await schedule.start(tables, message, due.etag, now, scheduler=name, is_test=is_test)
            log.info("message_started", ref=message.ref, list=message.list_name)
            return True
        if message.status is Status.QUEUING or not message.is_fully_queued:
            return await self._fan_out(due, now)
        if message.completed_at is None:
            return await self._report(due, now)
        if archive.is_ready(message):
            await archive.put_away(tables, message, due.etag, due.entry, now)
            log.info("message_archived", ref=message.ref, audience=message.audience)
        return False

    async def _fan_out(self, due: DueMessage, now: datetime) -> bool:
        """Write another page if senders need it soon, so that messages share the senders."""
        message = due.message
        room = await self._room() if message.batches else FIRST_BATCHES
        if not room:
            self._is_full = True
            return await self._report(due, now)
        self._queued_last = message.ref
        self._note_take_over(message)
        step, _ = await fan_out.advance(
            self.storage,
            message,
            due.etag,
            now,
            room=room,
            renewals=self._renewal_tracker,
            scheduler=self._leadership,
            suppressions=self.suppressions,
        )
        if step.fanned_out and not message.fanned_out:
            log.info("message_queued", ref=step.ref, audience=step.audience, batches=step.batches)
        return step != message

    def _note_take_over(self, message: Message) -> None:
        """Log once that another scheduler, or one before a restart, had begun the message."""
        if message.batches and message.queued_by not in ("", self._leadership):
            if message.ref not in self._taken_over:
                log.warning("message_taken_over", ref=message.ref, batch=message.batches - 1)
            self._taken_over.add(message.ref)

    async def _room(self) -> int:
        """How many batches may be written; a whole page if the queue is empty.

        Items that are not due yet do not count: they would keep others out for hours.
        """
        if self._is_full:
            return 0
        if not self.items_ahead:
            return fan_out.PAGE_BATCHES
        waiting = len(await self.storage.queues.peek(MAIL_QUEUE, limit=self.items_ahead))
        return self.items_ahead - waiting if waiting else fan_out.PAGE_BATCHES

    async def _report(self, due: DueMessage, now: datetime) -> bool:
        ref = due.message.ref
        if self.clock.monotonic() < self._reported.get(ref, 0.0):
            return False
        message, _ = await report.report(self.storage.tables, due.message, due.etag, now)
        is_nearly_done = message.is_fully_queued and message.books.open < FEW
        intervals = self.intervals
        every_s = intervals.last_report_s if is_nearly_done else intervals.report_s
        self._reported[ref] = self.clock.monotonic() + every_s
        if message.completed_at is None:
            return False
        del self._reported[ref]
        log.info("message_" + message.status, ref=ref, audience=message.audience)
        return True

    async def _sweep(self, *, is_busy: bool) -> None:
        """Do the chores that are due, less often while messages need steps."""
        storage, tables = self.storage, self.storage.tables
        now = self.clock.now()
        now_s = self.clock.monotonic()
        keep_days, wait_days = self.keep_archive_days, self.unconfirmed_days
        trace_days, traces_max = self.keep_traces
        later = BUSY_SWEEPS_LATER if is_busy else 1
        if self._swept_at is None or now_s >= self._swept_at + self.intervals.sweep_s * later:
            self._swept_at = now_s
            put = sweep.put_forgotten_items
            await self._try_to_sweep("items", lambda: put(storage, now, self._renewal_tracker))
        if self._tidied_at is not None and now_s < self._tidied_at + self.intervals.tidy_s * later:
            return
        self._tidied_at = now_s
        chores: dict[str, Callable[[], Awaitable[object]]] = {
            "archive": lambda: sweep.expire_archive(storage, now, keep_days=keep_days),
            "lists": lambda: sweep.finish_deletions(tables),
            "sign-ups": lambda: sweep.expire_sign_ups(tables, now, keep_days=wait_days),
            "counts": lambda: sweep.fold_counts(tables),
            "pictures": lambda: sweep.delete_orphaned_pictures(storage, now),
            "leases": lambda: leases.forget_long_expired(tables, now),
            "instances": lambda: instances.forget_ended(tables, now),
            "sessions": lambda: users.forget_ended(tables, now),
            "idempotency": lambda: idempotency.forget_old(tables, now),
            "throttles": lambda: throttles.forget_expired(tables, now),
            "test mails": lambda: trials.forget_old(tables, now),
            "traces": lambda: traces.expire(tables, now, keep_days=trace_days, rows_max=traces_max),
            "imports": lambda: import_upload.sweep(storage, now),
            "import items": lambda: import_worker.put_forgotten_items(storage, now),
            "feedback": lambda: feedback.put_forgotten_items(storage),
            "audit log": lambda: audit.expire(tables, now, keep_days=self.audit_days),
            "dead letters": lambda: dead_letters.expire(
                storage.queues, now, keep_days=self.dead_letter_days
            ),
        }
        if self.suppressions:
            chores["suppressions"] = self.suppressions.save_snapshot
        for name, chore in chores.items():
            await self._try_to_sweep(name, chore)

    async def _try_to_sweep(self, name: str, chore: Callable[[], Awaitable[object]]) -> None:
        """Run one chore; one that fails must not hold up the others."""
        try:
            await chore()
        except Exception as error:
            if isinstance(error, StorageError) and not isinstance(error, Unreadable):
                raise
            log.exception("not_swept", chore=name)
