"""Lanes under a limit: mails go out in bursts as the pacer admits them, and every one ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from postroom.domain.outcome import Deferred, Outcome, Scope, Sent, Untried
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.pacing.pacer import Pacer
from postroom.pacing.transport import NO_QUOTA_S, PacedTransport
from postroom.records import rate_limits
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.transport.port import HandOverWatch, OutgoingMail
from tests.letters import Letter
from tests.unit.seconds import most_in_a_second

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


def letter(position: int, domain: str = "contoso.edu") -> Letter:
    return Letter(position, f"student{position}@{domain}")


class Line:
    """The transport and its one lane: takes all, notes when; its script may say otherwise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.slices: list[list[int]] = []
        self.times: list[float] = []
        self.answers: dict[int, Outcome] = {}
        self.is_closed = False
        self.id = 0

    def lane(self) -> Line:
        self.id += 1
        return self

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        self.slices.append([mail.position for mail in mails])
        return [self._carry(mail, watch) for mail in mails]

    def _carry(self, mail: OutgoingMail, watch: HandOverWatch) -> Outcome:
        if not watch.may_hand_over():
            return Untried("stopping")
        watch.handing_over([mail.position])
        self.times.append(self.clock.passed_s)
        outcome = self.answers.get(mail.position, Sent())
        watch.answered({mail.position: outcome})
        return outcome

    async def close(self) -> None:
        self.is_closed = True


class Looker:
    """Notes what it is told; says no after so many hand-overs."""

    def __init__(self, allowed: int = 10**6, patience: int = 10**6) -> None:
        self.allowed = allowed
        self.patience = patience  # how often it may be asked
        self.handed: list[int] = []
        self.told: dict[int, Outcome] = {}

    def may_hand_over(self) -> bool:
        self.patience -= 1
        return len(self.handed) < self.allowed and self.patience >= 0

    def handing_over(self, positions: Sequence[int]) -> None:
        self.handed += positions

    def returned(self, positions: Sequence[int]) -> None:
        return

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        self.told.update(outcomes)


class Desk:
    """One sender's pacer, a paced lane, and the lane below."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.storage = MemoryStorage(self.clock, STORAGE_NAMES)
        self.pacer = Pacer(self.storage.tables, self.clock, "s1", lanes=2, lease_s=30.0)
        self.line = Line(self.clock)
        self.transport = PacedTransport(self.line, self.pacer, self.clock)
        self.lane = self.transport.lane()

    async def limit(self, name: str = TRANSPORT, mails: float = 0.0, connections: int = 0) -> None:
        found = RateLimit(name, mails, connections)
        await rate_limits.set_limit(self.storage.tables, found)
        await self.pacer.keep_alive(must_know=True)

    async def send(self, *letters: Letter, watch: Any = None) -> list[Outcome]:
        return await self.lane.send(letters, watch or Looker())


LETTERS = [letter(position) for position in range(30)]


async def test_without_a_limit_a_slice_goes_to_the_line_as_it_is() -> None:
    context = Desk()
    assert await context.send(*LETTERS) == [Sent()] * 30
    assert context.line.slices == [list(range(30))]
    assert context.clock.passed_s == 0.0


async def test_under_a_limit_mails_leave_evenly_and_in_order() -> None:
    context = Desk()
    await context.limit(mails=10.0)
    assert await context.send(*LETTERS) == [Sent()] * 30
    assert list(chain(*context.line.slices)) == list(range(30))
    assert max(map(len, context.line.slices)) <= 2
    assert most_in_a_second(context.line.times) <= 10
    assert 2.8 <= context.line.times[-1] - context.line.times[0] <= 3.1


async def test_mails_to_a_limited_domain_wait_and_the_others_go_at_once() -> None:
    context = Desk()
    await context.limit("few.example", mails=2.0)
    letters = [letter(at, "few.example" if at < 4 else "contoso.edu") for at in range(20)]
    assert await context.send(*letters) == [Sent()] * 20
    assert context.line.slices[0] == list(range(4, 20))
    assert list(chain(*context.line.slices[1:])) == [0, 1, 2, 3]
    assert most_in_a_second(context.line.times[16:]) <= 2


async def test_asked_to_stop_the_rest_is_untried_and_the_watch_knows() -> None:
    context, watch = Desk(), Looker(allowed=5)
    await context.limit(mails=10.0)
    outcomes = await context.send(*LETTERS, watch=watch)
    assert outcomes[:5] == [Sent()] * 5
    assert all(isinstance(outcome, Untried) for outcome in outcomes[5:])
    assert watch.handed == [0, 1, 2, 3, 4]
    assert sorted(watch.told) == list(range(30))


async def test_a_provider_in_trouble_is_not_asked_again_for_every_mail() -> None:
    context = Desk()
    await context.limit(mails=10.0)
    fault = Deferred("cannot connect", Scope.PROVIDER, reached=False)
    context.line.answers = {3: fault}
    outcomes = await context.send(*LETTERS)
    assert outcomes[3] == fault
    assert isinstance(outcomes[29], Untried)
    assert len(context.line.times) <= 5


async def test_a_slice_does_not_wait_for_ever_while_others_have_the_whole_limit() -> None:
    context = Desk()
    await context.limit(mails=1.0)
    other = Pacer(context.storage.tables, context.clock, "s0", lanes=2, lease_s=30.0)
    for _ in range(4):  # its name comes first: one mail a second is for one sender alone
        context.clock.passed_s += 3.0
        await other.keep_alive(must_know=True)
        await context.pacer.keep_alive(must_know=True)
    assert other.lanes_max is None
    assert context.pacer.lanes_max == 0
    began_s = context.clock.passed_s
    outcomes = await context.send(*LETTERS)
    assert all(isinstance(outcome, Untried) for outcome in outcomes)
    assert NO_QUOTA_S <= context.clock.passed_s - began_s <= NO_QUOTA_S + 1.0


async def test_an_idle_lane_gives_its_connection_to_a_lane_that_needs_one() -> None:
    context = Desk()
    await context.limit(connections=1)
    second = context.transport.lane()
    await context.send(LETTERS[0])
    assert not context.line.is_closed
    assert await second.send([LETTERS[1]], Looker()) == [Sent()]
    assert context.line.is_closed


async def test_a_lane_without_a_connection_waits_while_the_others_are_sending() -> None:
    context = Desk()
    await context.limit(connections=1)
    second = context.transport.lane()
    tried: list[list[Outcome]] = []

    async def send(mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        """In the middle of a slice of the first lane, the second one tries to send."""
        tried.append(await second.send([LETTERS[1]], Looker(patience=5)))
        return [Sent()]

    context.line.send = send  # type: ignore[method-assign]
    assert await context.send(LETTERS[0]) == [Sent()]
    assert [type(outcome) for outcome in tried[0]] == [Untried]
    assert not context.line.is_closed
