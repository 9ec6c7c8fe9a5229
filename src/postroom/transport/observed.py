"""Wraps a transport and calls a function with the outcomes of every slice, for the metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroom.domain.outcome import Outcome
from postroom.transport.port import HandOverWatch, Lane, OutgoingMail, Transport

Note = Callable[[Sequence[Outcome]], None]


class ObservedTransport:
    def __init__(self, transport: Transport, note: Note) -> None:
        self._transport = transport
        self._note = note

    def lane(self) -> ObservedLane:
        return ObservedLane(self._transport.lane(), self._note)

    async def close(self) -> None:
        await self._transport.close()


class ObservedLane:
    def __init__(self, lane: Lane, note: Note) -> None:
        self.id = lane.id
        self._lane = lane
        self._note = note

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        outcomes = await self._lane.send(mails, watch)
        self._note(outcomes)
        return outcomes

    async def close(self) -> None:
        await self._lane.close()
