"""Wraps any transport, and hands mails over only when the pacer admits them.

A lane gives the lane below as many mails as may go now, waits for their outcomes, and asks again.
So mails leave evenly, nothing is open at the server while a lane waits, and every outcome is known
before the next burst. Without a limit a slice goes out as it is.
Dies half-way: the lane below answers for what it was given; the rest of the slice was not handed
over and is Untried. Asked to stop, a waiting lane notices within a quarter of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from postroom.clock import Clock
from postroom.domain.outcome import Outcome, Untried, is_fault
from postroom.pacing.pacer import Admission, Pacer
from postroom.transport.port import GuardedWatch, HandOverWatch, Lane, OutgoingMail, Transport

WAIT_S_MIN = 0.001  # timers are no finer
NO_QUOTA_S = 15.0  # how long a slice waits in a lane while other senders have the whole limit
NOT_ADMITTED = Untried("was not admitted by the rate limits before the hand-over")


class PacedTransport:
    def __init__(self, transport: Transport, pacer: Pacer, clock: Clock) -> None:
        self._transport = transport
        self._pacer = pacer
        self._clock = clock
        self._lanes: list[PacedLane] = []

    def lane(self) -> PacedLane:
        lane = PacedLane(self._transport.lane(), self, self._pacer, self._clock)
        self._lanes.append(lane)
        return lane

    async def close_idle_connections(self) -> None:
        for lane in self._lanes:
            if not lane.is_sending:
                await lane.close()

    async def close(self) -> None:
        await self._transport.close()
        for lane in self._lanes:
            await self._pacer.release(lane.id, is_closed=True)


class PacedLane:
    def __init__(self, lane: Lane, transport: PacedTransport, pacer: Pacer, clock: Clock) -> None:
        self.id = lane.id
        self._lane = lane
        self._transport = transport
        self._pacer = pacer
        self._clock = clock
        self._using = asyncio.Lock()  # no other lane closes the connection in the middle of a slice

    @property
    def is_sending(self) -> bool:
        return self._using.locked()

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        async with self._using:
            if not self._pacer.is_limited:
                self._pacer.sent(self.id, ())
                return await self._lane.send(mails, watch)
            try:
                outcomes = await self._send_in_bursts(mails, watch)
            finally:
                await self._pacer.release(self.id)
        left = [mail.position for place, mail in enumerate(mails) if place not in outcomes]
        if left:
            watch.answered(dict.fromkeys(left, NOT_ADMITTED))
        return [outcomes.get(place, NOT_ADMITTED) for place in range(len(mails))]

    async def close(self) -> None:
        async with self._using:
            await self._lane.close()
            await self._pacer.release(self.id, is_closed=True)

    async def _send_in_bursts(
        self, mails: Sequence[OutgoingMail], watch: HandOverWatch
    ) -> dict[int, Outcome]:
        """Send what the pacer admits; the rest, and everything after a fault, is left out."""
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(mails)))
        without_quota_s = 0.0
        while waiting and without_quota_s < NO_QUOTA_S and watch.may_hand_over():
            admission = await self._pacer.admit(self.id, [mails[at].recipient for at in waiting])
            burst = [waiting[place] for place in admission.now]
            if admission.deferred:  # by a limit that is newer than the announcement
                waiting = [at for n, at in enumerate(waiting) if n not in admission.deferred]
            if not burst:
                wait_s = await self._wait(admission)
                without_quota_s = 0.0 if admission.can_still_send else without_quota_s + wait_s
                continue
            sent = await self._send([mails[at] for at in burst], watch)
            outcomes |= zip(burst, sent, strict=True)
            if any(map(is_fault, sent)):
                break
            waiting = [at for at in waiting if at not in outcomes]
            without_quota_s = 0.0
        return outcomes

    async def _send(self, burst: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        is_valid = self._pacer.sent(self.id, [mail.recipient for mail in burst])
        if is_valid is None:
            return await self._lane.send(burst, watch)
        guarded = GuardedWatch(watch, lambda: watch.may_hand_over() and is_valid())
        return await self._lane.send(burst, guarded)

    async def _wait(self, admission: Admission) -> float:
        """Wait as long as the pacer says; if a connection is missing, idle lanes give up theirs."""
        if admission.needs_connection:
            await self._transport.close_idle_connections()
        wait_s = max(admission.wait_s, WAIT_S_MIN)
        await self._clock.sleep(wait_s)
        return wait_s
