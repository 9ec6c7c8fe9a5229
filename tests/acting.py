"""The context of a use case, for tests that only have storage, or tables, and a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from postroom.act import Act
from postroom.clock import Clock
from postroom.domain.consent import COMMAND_LINE, Trace
from postroom.storage.port import Storage, Tables


@dataclass(frozen=True)
class _Now:
    at: datetime

    def now(self) -> datetime:
        return self.at


@dataclass(frozen=True)
class _OnlyTables:
    tables: Tables


def acting(
    place: Storage | Tables,
    now: datetime,
    trace: Trace = COMMAND_LINE,
    wake: Callable[[str], None] = lambda role: None,
) -> Act:
    """`now` is also what the clock shows."""
    storage: Any = place if hasattr(place, "tables") else _OnlyTables(place)
    return Act(storage, cast(Clock, _Now(now)), now, trace, wake)
