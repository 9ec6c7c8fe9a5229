"""How many senders `serve` runs: checks both queues and its senders, decides, and logs the reason.

Several machines on one storage watch the same queues, and the limits apply to each of them: a
long queue starts up to `senders_max` senders on every machine. They need not coordinate, and
losing one of them does not affect the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import structlog

from postroom.clock import Clock
from postroom.domain.instance import Vitals
from postroom.domain.scaling import (
    CHANGES_KEPT,
    ScalingChange,
    ScalingMemory,
    ScalingSnapshot,
    SenderLimits,
    decide,
)
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.queue_watch import QueueWatch
from postroom.storage.port import Queues

log = structlog.get_logger("supervisor")


class SenderScaling:
    def __init__(self, queues: Queues, clock: Clock) -> None:
        self._clock = clock
        self._batches = QueueWatch(queues, clock, MAIL_QUEUE)
        self._single_mails = QueueWatch(queues, clock, SINGLE_MAIL_QUEUE)
        self._memory = ScalingMemory()
        self._changes: deque[ScalingChange] = deque(maxlen=CHANGES_KEPT)
        self.is_calm = True  # nothing waits, and no sender is about to be stopped

    @property
    def changes(self) -> tuple[ScalingChange, ...]:
        """The last changes, the newest first."""
        return tuple(self._changes)

    async def wanted(
        self, senders: Sequence[Vitals], mails_per_s: float, limits: SenderLimits
    ) -> int:
        """Take a snapshot, decide, and log a change with its reason."""
        running = len(senders)
        snapshot = ScalingSnapshot(
            running=running,
            batches=await self._batches.snapshot(),
            single_mails=await self._single_mails.snapshot(),
            in_hand=sum(each.busy for each in senders),
            mails_per_s=mails_per_s,
            is_held_back=bool(senders) and all(each.is_held_back for each in senders),
            at_s=self._clock.monotonic(),
        )
        decision = decide(snapshot, limits, self._memory)
        self._memory = decision.memory
        self.is_calm = not snapshot.items and self._memory.calm_since_s is None
        if decision.reason:
            change = ScalingChange(self._clock.now(), running, decision.senders, decision.reason)
            self._changes.appendleft(change)
            log.info(
                "senders_changed",
                before=running,
                after=decision.senders,
                cause=decision.reason.cause.value,
                reason=str(decision.reason.sentence),
                batches=snapshot.batches.waiting,
                single_mails=snapshot.single_mails.waiting,
                oldest_s=round(snapshot.oldest_s, 1),
                mails_per_s=round(mails_per_s, 1),
            )
        return decision.senders
