"""The lanes of a sender for batches: which are free, and the tasks that use the others.

A lane keeps its journal page. After a storage error its item reappears when its claim expires, and
the lane is free again. After a bug it is not: the process ends, and its journal page must stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from postroom.sending.journal import FileJournal, FileJournals
from postroom.storage.port import StorageError
from postroom.transport.port import Lane, Transport
from postroom.wakeup import WakeUpListener

log = structlog.get_logger("sender")
Work = Coroutine[Any, Any, None]


class LanePool:
    def __init__(
        self, transport: Transport, journals: FileJournals, wakeup: WakeUpListener, *, lanes: int
    ) -> None:
        self.size = lanes
        self._transport = transport
        self._journals = journals
        self._wakeup = wakeup
        self._free: list[tuple[Lane, FileJournal]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []

    def open(self) -> None:
        self._journals.open()
        for number in range(self.size):
            self._free.append((self._transport.lane(), self._journals.lane(number)))

    @property
    def free(self) -> int:
        return len(self._free)

    def start(self, work: Callable[[Lane, FileJournal], Work]) -> None:
        """Run the work on a free lane."""
        lane = self._free.pop()
        self.run(work(*lane), lambda: self._free.append(lane))

    def run(self, work: Work, when_done: Callable[[], None]) -> None:
        """Run the work alongside the lanes; the sender wakes up when it ends."""
        task = asyncio.create_task(self._run(work, when_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def raise_bug(self) -> None:
        """Raise the first unexpected exception of any work, so that the process ends."""
        if self._bugs:
            raise self._bugs[0]

    async def close_idle(self) -> None:
        """Close the connections of free lanes; a lane connects again when it is used."""
        for lane, _journal in self._free:
            await lane.close()

    async def finish(self, grace_s: float) -> None:
        """Wait for work in progress; anything that does not end in time stays in the journal."""
        if self._tasks:
            _done, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def close(self) -> None:
        await self.close_idle()
        for _lane, journal in self._free:
            journal.close()
        await self._transport.close()
        self._journals.close()

    async def _run(self, work: Work, when_done: Callable[[], None]) -> None:
        try:
            await work
        except StorageError as error:  # nothing was announced: the item reappears
            log.warning("item_left", error=type(error).__name__, words=str(error)[:200])
            when_done()
        except Exception as bug:  # noqa: BLE001 - ends the process; the journal page must stay
            self._bugs.append(bug)
        else:
            when_done()
        self._wakeup.ring()
