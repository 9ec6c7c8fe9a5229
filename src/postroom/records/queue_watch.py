"""Watches what waits in a queue and for how long, for the number of senders.

The waiting time is how long the same item has been the first one that could be claimed. The time an
item was put does not help, because it may have been deferred for hours. In a queue that moves, the
waiting time is short however long the queue is; the measured rate then decides.
"""

from __future__ import annotations

from postroom.clock import Clock
from postroom.domain.scaling import QueueSnapshot
from postroom.storage.port import CLAIM_ITEMS_MAX, Queues


class QueueWatch:
    def __init__(self, queues: Queues, clock: Clock, queue: str) -> None:
        self._queues = queues
        self._clock = clock
        self._queue = queue
        self._first = ""
        self._since_s = 0.0

    async def snapshot(self) -> QueueSnapshot:
        """What waits now: one storage call, or two while the queue is long."""
        items = await self._queues.peek(self._queue, limit=CLAIM_ITEMS_MAX)
        now_s = self._clock.monotonic()
        first = items[0].body if items else ""
        if first != self._first:
            self._first = first
            self._since_s = now_s
        waiting = len(items)
        if waiting == CLAIM_ITEMS_MAX:
            waiting = max(waiting, await self._queues.length(self._queue))
        return QueueSnapshot(waiting, now_s - self._since_s if first else 0.0)
