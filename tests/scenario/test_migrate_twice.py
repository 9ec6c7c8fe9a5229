"""Moving house: a command that slept while another one finished touches nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from postroom.domain.errors import WrongState
from postroom.migration import filling, migrate, state, table_writer
from postroom.migration.state import TakenOver
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Storage
from tests.clock import MovableClock
from tests.scenario.moving_house import LIST, Fate, Mortal, everything, move

RUNS_MAX = 350
READS = {"get", "scan", "list", "claim", "length", "peek"}


class Nap(Fate):
    """A process that is suspended before one of its reads, while the world goes on."""

    def __init__(
        self, at: int, clock: MovableClock, meanwhile: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__()
        self.night: asyncio.Task[None] | None = None
        self._read_at = at
        self._clock = clock
        self._meanwhile = meanwhile

    async def call(self, method: Callable[..., Any], *values: Any, **named: Any) -> Any:
        self.calls += method.__name__ in READS
        if self.calls == self._read_at and self.night is None:
            self._clock.move(60)  # whatever it had claimed shows again
            self.night = asyncio.create_task(self._meanwhile())
        if self.night:
            await asyncio.shield(self.night)  # all of it sleeps
        return await method(*values, **named)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "BATCH_CHANGES_MAX", 4)
    monkeypatch.setattr(filling, "ROWS_PER_CHECKPOINT", 30)


@pytest.mark.slow
async def test_whoever_sleeps_while_another_finishes_changes_nothing_of_the_open_target(
    source: Storage, clock: MovableClock, small: None
) -> None:
    """Suspended by Ctrl-Z, say, and taken for hung."""
    for at in range(1, RUNS_MAX):
        target = MemoryStorage(clock, STORAGE_NAMES, page_rows=50)

        async def the_other_finishes(target: Storage = target) -> None:
            await move(source, target, clock)
            await target.tables.upsert("mailinglist", LIST, "email:new@contoso.edu", {"Format": 1})
            await target.tables.upsert(
                "mailinglist", LIST, "mailinglist", {"Format": 1, "new": True}
            )
            await target.queues.put(SINGLE_MAIL_QUEUE, "a new item")
            await target.queues.put(DEAD_LETTER_QUEUE, "a new letter")
            await target.blobs.put("new.txt", b"new")

        nap = Nap(at, clock, the_other_finishes)
        try:
            await move(Mortal(source, nap), Mortal(target, nap), clock)
        except (TakenOver, WrongState):
            assert nap.night, at
        if nap.night is None:
            return
        await nap.night
        expected = MemoryStorage(clock, STORAGE_NAMES)
        await migrate.reopen(source.tables)
        await the_other_finishes(expected)
        assert await everything(target, clock) == await everything(expected, clock), at
        assert await state.why_closed(target.tables) == "", at
        await migrate.reopen(source.tables)
    raise AssertionError("it reads more than anybody can watch")
