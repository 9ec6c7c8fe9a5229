"""The context of a use case: what it works on, when, and on whose behalf.

Every change that an administrator or a program asks for is made inside `audited`:

    async with act.audited(AuditKind.LIST, name, AuditAction.DELETE):
        await lists.start_deleting(act.tables, name)

Dies half-way: the entry of the audit log is written before the change, so nothing changes without
one. An entry whose end was not recorded is shown as such: the change may or may not have been made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from postroom.clock import Clock
from postroom.domain.audit import AuditAction, AuditActor, AuditKind, AuditOutcome, new_entry
from postroom.domain.consent import COMMAND_LINE, Consent, Event, Trace
from postroom.domain.errors import PostroomError
from postroom.records import audit
from postroom.storage.port import Conflict, Storage, Tables
from postroom.wakeup import SCHEDULER, SENDER


@dataclass(frozen=True)
class Act:
    """One action of a person or a program. Use cases wake the roles that continue their work."""

    storage: Storage
    clock: Clock
    now: datetime  # when the action began: in a repeated call, the time of the first try
    trace: Trace = COMMAND_LINE  # for the consent record
    wake: Callable[[str], None] = lambda role: None
    actor: AuditActor | None = None  # for the audit log; None: a subscriber, or Postroom itself

    @property
    def tables(self) -> Tables:
        return self.storage.tables

    def consent(self, event: Event) -> Consent:
        return self.trace.consent(event, self.now)

    @asynccontextmanager
    async def audited(
        self,
        kind: AuditKind,
        name: str,
        action: AuditAction,
        *,
        before: str = "",
        after: str = "",
    ) -> AsyncIterator[None]:
        """Record what is done within the block, and by whom, before and after it is done."""
        if self.actor is None:
            yield
            return
        now = self.clock.now()
        entry = new_entry(self.actor, kind, name, action, now, before=before, after=after)
        begun = await audit.begin(self.tables, entry)
        try:
            yield
        except (PostroomError, Conflict):
            await audit.end(self.tables, begun, AuditOutcome.REFUSED)
            raise
        except Exception:
            await audit.end(self.tables, begun, AuditOutcome.FAILED)
            raise
        await audit.end(self.tables, begun, AuditOutcome.DONE)

    def wake_scheduler(self) -> None:
        self.wake(SCHEDULER)

    def wake_senders(self) -> None:
        self.wake(SENDER)
