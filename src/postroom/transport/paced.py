"""Any transport, its mails handed over only when they have a turn.

A lane gives the line under it as many mails as have a turn now, waits for their outcomes, and asks
again. So mails leave evenly, nothing is open at the server while a lane waits, and every outcome
is known before the next turn. Without a limit a slice goes to the line as it is.
When something dies: the line answers for what it was given; the rest of the slice was not handed
over and is Untried. Asked to stop, a lane that waits notices within a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.clock import Clock
from postroom.domain.outcome import Outcome, Untried, is_fault
from postroom.transport.port import HandOverWatch, Lane, Mail, Transport

WAIT_S_MIN = 0.001  # timers are no finer
NO_LINE_S = 0.25
NO_SHARE_S = 15.0  # how long a slice waits in a lane while others have the whole limit
OUT_OF_TURN = Untried("had no turn before the hand-over")


class Connections(Protocol):
    lines_open: int
    lines_short: int  # lanes that wait for one

    async def keep(self) -> None:
        """Renew what we have of the limits, if it is time."""
        ...


class Turns(Protocol):
    """What a lane asks; `limits` names the domain limit each of its mails is under."""

    @property
    def shares(self) -> Connections: ...
    @property
    def is_limited(self) -> bool: ...
    @property
    def lines_max(self) -> int | None: ...
    def want(self) -> None: ...
    def limits_of(self, addresses: Sequence[str]) -> list[str]: ...
    def begin(self, limits: Sequence[str]) -> None: ...
    def take(self, lane: object, limits: Sequence[str]) -> list[int]: ...
    def wait_s(self, lane: object, limits: Sequence[str]) -> float: ...
    def may_hope(self, limits: Sequence[str]) -> bool: ...
    def still_count(self, limits: Sequence[str]) -> bool: ...
    def end(self, lane: object, limits: Sequence[str]) -> None: ...


class PacedTransport:
    def __init__(self, transport: Transport, turns: Turns, clock: Clock) -> None:
        self._transport = transport
        self._turns = turns
        self._clock = clock

    def lane(self) -> PacedLane:
        return PacedLane(self._transport.lane(), self._turns, self._clock)

    async def close(self) -> None:
        await self._transport.close()


class _Guard:
    """The watch of a handful: who stalled past the end of its share hands over nothing."""

    def __init__(self, watch: HandOverWatch, turns: Turns, limits: Sequence[str]) -> None:
        self._watch = watch
        self._turns = turns
        self._limits = limits
        self.handing_over = watch.handing_over
        self.returned = watch.returned
        self.answered = watch.answered

    def may_hand_over(self) -> bool:
        return self._watch.may_hand_over() and self._turns.still_count(self._limits)


class PacedLane:
    def __init__(self, lane: Lane, turns: Turns, clock: Clock) -> None:
        self._lane = lane
        self._turns = turns
        self._clock = clock
        self.is_open = False  # as far as we know: a connection that broke still counts

    async def send(self, mails: Sequence[Mail], watch: HandOverWatch) -> list[Outcome]:
        if not self._turns.is_limited:
            self._open_line()
            return await self._lane.send(mails, watch)
        waiting = dict(enumerate(self._turns.limits_of([mail.recipient for mail in mails])))
        self._turns.begin(list(waiting.values()))
        try:
            outcomes = await self._send_in_turn(mails, waiting, watch)
        finally:
            self._turns.end(self, list(waiting.values()))
        return [outcomes.get(at) or self._leave(mail, watch) for at, mail in enumerate(mails)]

    async def close(self) -> None:
        await self._lane.close()
        if self.is_open:
            self.is_open = False
            self._turns.shares.lines_open -= 1

    async def _send_in_turn(
        self, mails: Sequence[Mail], waiting: dict[int, str], watch: HandOverWatch
    ) -> dict[int, Outcome]:
        """One handful after the other; what had its turn is no longer among the waiting."""
        outcomes: dict[int, Outcome] = {}
        while waiting:
            handful = await self._next_handful(waiting, watch)
            guard = _Guard(watch, self._turns, [waiting.pop(at) for at in handful])
            sent = await self._lane.send([mails[at] for at in handful], guard) if handful else []
            outcomes |= zip(handful, sent, strict=True)
            if not handful or any(map(is_fault, sent)):
                break
        return outcomes

    async def _next_handful(self, waiting: dict[int, str], watch: HandOverWatch) -> list[int]:
        """Wait for turns; nobody if we are to stop, or others keep the limit to themselves."""
        turns, places = self._turns, list(waiting)
        shareless_s = 0.0
        while watch.may_hand_over() and shareless_s < NO_SHARE_S:
            turns.want()
            await turns.shares.keep()
            limits = list(waiting.values())
            taken = turns.take(self, limits) if self._has_line() else []
            if taken:
                self._open_line()
                return [places[at] for at in taken]
            wait_s = max(turns.wait_s(self, limits), WAIT_S_MIN)
            shareless_s = 0.0 if turns.may_hope(limits) else shareless_s + wait_s
            await self._pause(wait_s)
        return []

    async def _pause(self, seconds: float) -> None:
        """Tell meanwhile if it is a connection that we lack: idle lanes may have one to spare."""
        is_short = not self._has_line()
        self._turns.shares.lines_short += is_short
        try:
            await self._clock.sleep(NO_LINE_S if is_short else seconds)
        finally:
            self._turns.shares.lines_short -= is_short

    def _has_line(self) -> bool:
        most = self._turns.lines_max
        return self.is_open or most is None or self._turns.shares.lines_open < most

    def _open_line(self) -> None:
        if not self.is_open:
            self.is_open = True
            self._turns.shares.lines_open += 1

    def _leave(self, mail: Mail, watch: HandOverWatch) -> Outcome:
        watch.answered(mail.position, OUT_OF_TURN)
        return OUT_OF_TURN
