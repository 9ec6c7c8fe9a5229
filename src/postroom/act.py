"""The context of a use case: what it works on, when, and on whose behalf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from postroom.clock import Clock
from postroom.domain.consent import COMMAND_LINE, Consent, Event, Trace
from postroom.storage.port import Storage, Tables
from postroom.wakeup import SCHEDULER, SENDER


@dataclass(frozen=True)
class Act:
    """One action of a person or a program. Use cases wake the roles that continue their work."""

    storage: Storage
    clock: Clock
    now: datetime  # when the action began: in a repeated call, the time of the first try
    trace: Trace = COMMAND_LINE  # for the consent record
    wake: Callable[[str], None] = lambda role: None

    @property
    def tables(self) -> Tables:
        return self.storage.tables

    def consent(self, event: Event) -> Consent:
        return self.trace.consent(event, self.now)

    def wake_scheduler(self) -> None:
        self.wake(SCHEDULER)

    def wake_senders(self) -> None:
        self.wake(SENDER)
