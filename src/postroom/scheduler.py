"""The scheduler role: whoever holds the lease moves every due message one step on, again and again.

Any number may run; one acts. All it writes is guarded by etags or inserted only if absent, so one
that stalls past its lease and wakes up can do no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from postroom.clock import Clock
from postroom.domain.message import Status
from postroom.flow import archive, fan_out, report, schedule, sweep
from postroom.flow.schedule import Due
from postroom.records import idempotency, leases, users
from postroom.records.leases import Lease
from postroom.records.messages import DueEntry
from postroom.storage.port import Conflict, Storage, StorageError

LEASE = "scheduler"
BUSY_SWEEPS_LATER = 5  # times the usual pause
log = structlog.get_logger("scheduler")


@dataclass
class Scheduler:
    """One iteration is `step`; worker.py has the loop around it."""

    storage: Storage
    clock: Clock
    owner: str
    lease_s: float = 30.0
    report_every_s: float = 1.0
    sweep_every_s: float = 60.0
    keep_archive_days: int = 365
    unconfirmed_days: int = 30
    lease: Lease | None = None
    _reported: dict[str, datetime] = field(default_factory=dict)
    _swept_at: datetime | None = None

    async def step(self) -> bool:
        """Move every due message one step on; whether there is more to do at once."""
        if not await self._leads():
            return False
        is_busy = False
        seen: set[str] = set()
        async for entry in schedule.due_entries(self.storage.tables, self.clock.now()):
            seen.add(entry.ref)
            is_busy |= await self._try_to_advance(entry)
            if not await self._leads():
                return False
        self._reported = {ref: at for ref, at in self._reported.items() if ref in seen}
        await self._sweep(is_busy=is_busy)
        return is_busy

    async def stop(self) -> None:
        """Let the next one lead at once."""
        if self.lease:
            await leases.give_up(self.storage.tables, self.lease)
            self.lease = None

    async def rest_s(self, at_most_s: float) -> float:
        """How long nothing will be due, as far as storage knows."""
        if self.lease is None:
            return min(at_most_s, self.lease_s / 3)
        if self._reported:
            return min(at_most_s, self.report_every_s)
        now = self.clock.now()
        next_at = await schedule.next_due_at(self.storage.tables, now)
        wait_s = at_most_s if next_at is None else max(0.0, next_at - now.timestamp())
        return min(at_most_s, wait_s, self.lease_s / 3)

    async def step_and_report(self) -> bool:
        """A step that counts every message's books, however lately they were counted."""
        self._reported.clear()
        return await self.step()

    async def _leads(self) -> bool:
        """Renew the lease when a third of it is used up."""
        now = self.clock.now()
        if self.lease and now < self.lease.expires_at - timedelta(seconds=self.lease_s * 2 / 3):
            return True
        was_leading = self.lease is not None
        self.lease = await leases.hold(
            self.storage.tables, LEASE, self.owner, now=now, lease_s=self.lease_s
        )
        if was_leading != (self.lease is not None):
            log.info("scheduler_leads" if self.lease else "scheduler_stands_by", owner=self.owner)
        return self.lease is not None

    async def _try_to_advance(self, entry: DueEntry) -> bool:
        """One message that cannot go on must not hold up the others."""
        try:
            due = await schedule.due_message(self.storage.tables, entry, self.clock.now())
            if due is None:
                self._reported.pop(entry.ref, None)
            return due is not None and await self._advance(due)
        except Conflict:  # a person or another scheduler changed it: look again
            return True
        except StorageError:
            raise
        except Exception:
            log.exception("message_stuck", ref=entry.ref)
            return False

    async def _advance(self, due: Due) -> bool:
        """The next step of one message; whether it wants another one at once."""
        message, etag, now = due.message, due.etag, self.clock.now()
        tables = self.storage.tables
        if message.status is Status.PENDING:
            await schedule.start(tables, due, now)
            log.info("message_started", ref=message.ref, list=message.list_name)
            return True
        if message.status is Status.QUEUING or not fan_out.is_gone_over(message):
            step, _ = await fan_out.go_on(self.storage, message, etag, now)
            return step != message
        if message.completed_at is None:
            return await self._report(due, now)
        if archive.is_ready(message):
            await archive.put_away(tables, message, etag, now)
            log.info("message_archived", ref=message.ref, audience=message.audience)
        return False

    async def _report(self, due: Due, now: datetime) -> bool:
        ref = due.message.ref
        if self._is_reported_lately(ref, now):
            return False
        message, _ = await report.report(self.storage.tables, due.message, due.etag, now)
        self._reported[ref] = self.clock.now()
        if message.completed_at is None:
            return False
        del self._reported[ref]
        log.info("message_" + message.status, ref=ref, audience=message.audience)
        return True

    def _is_reported_lately(self, ref: str, now: datetime) -> bool:
        at = self._reported.get(ref)
        return at is not None and now < at + timedelta(seconds=self.report_every_s)

    async def _sweep(self, *, is_busy: bool) -> None:
        """Now and then; seldom while messages want to get on, but not never."""
        now = self.clock.now()
        every_s = self.sweep_every_s * (BUSY_SWEEPS_LATER if is_busy else 1)
        if self._swept_at and now < self._swept_at + timedelta(seconds=every_s):
            return
        self._swept_at = now
        storage, keep_days = self.storage, self.keep_archive_days
        tables, wait_days = storage.tables, self.unconfirmed_days
        strokes: dict[str, Callable[[], Awaitable[object]]] = {
            "items": lambda: sweep.put_forgotten_items(storage, now),
            "archive": lambda: sweep.expire_archive(storage, now, keep_days=keep_days),
            "lists": lambda: sweep.finish_deletions(tables),
            "sign-ups": lambda: sweep.expire_sign_ups(tables, now, keep_days=wait_days),
            "counts": lambda: sweep.fold_counts(tables),
            "leases": lambda: leases.forget_long_expired(tables, now),
            "sessions": lambda: users.forget_ended(tables, now),
            "idempotency": lambda: idempotency.forget_old(tables, now),
        }
        for name, stroke in strokes.items():
            await self._try_to_sweep(name, stroke)

    async def _try_to_sweep(self, name: str, stroke: Callable[[], Awaitable[object]]) -> None:
        """One stroke that cannot be done must not hold up the others."""
        try:
            await stroke()
        except StorageError:
            raise
        except Exception:
            log.exception("not_swept", stroke=name)
