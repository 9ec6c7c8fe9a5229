"""Several senders under one limit: never above whatever happens, close below when all is well.

Every sender has its own clock, off by up to ten seconds. Between a sender's read and its write
others come first; writes fail, take effect unnoticed, or are late by longer than a lease.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.rate_limit import TRANSPORT, Limit
from postroom.records import rate_limits
from postroom.records.shares import LOOK_EVERY_S
from postroom.records.turns import PUT_OFF_S_MAX, Turns
from postroom.storage.counting import CountingStorage
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Unavailable
from tests.unit.seconds import most_in_a_second

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
LEASE_S = 30.0
LANE = object()


class World:
    """True time, which nobody sees, and one storage."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.storage = CountingStorage(MemoryStorage(SkewedClock(self, 0.0)))
        self.turns: list[float] = []  # when each was given, truly


class SkewedClock:
    def __init__(self, world: World, off_s: float) -> None:
        self._world = world
        self._off_s = off_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self._world.now_s + self._off_s)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


async def nothing() -> None:
    return


class BadLine:
    """A sender's way to storage: its next write may meet something before and after it."""

    def __init__(self, world: World) -> None:
        self._tables: Any = world.storage.tables
        self.before: Callable[[], Awaitable[None]] = nothing
        self.after: Callable[[], Awaitable[None]] = nothing
        self.is_writing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    async def batch(self, *arguments: Any) -> list[str]:
        before, self.before = self.before, nothing
        after, self.after = self.after, nothing
        self.is_writing = True
        try:
            await before()
            etags: list[str] = await self._tables.batch(*arguments)
            await after()
        finally:
            self.is_writing = False
        return etags


class Sender:
    def __init__(self, world: World, name: str, off_s: float = 0.0, *, lanes: int = 4) -> None:
        self.world = world
        self.line = BadLine(world)
        clock = SkewedClock(world, off_s)
        tables: Any = self.line
        self.turns = Turns(tables, clock, name, lanes=lanes, lease_s=LEASE_S)
        self.is_alive = True

    async def send(self, mails: int = 600) -> int:
        """Take all the turns there are now; while one lane asks, others that have asked go on."""
        if not self.line.is_writing:
            await self.turns.ask()
        return self.take(mails)

    def take(self, mails: int = 600) -> int:
        if not self.turns.is_limited:
            return 0  # nothing is known yet: this is before the limit was found
        taken = len(self.turns.take(LANE, [""] * mails))
        self.world.turns += [self.world.now_s] * taken
        return taken


async def under(limit: float, number: int, connections: int = 0) -> tuple[World, list[Sender]]:
    world = World()
    await rate_limits.set_limit(world.storage.tables, Limit(TRANSPORT, limit, connections))
    return world, [Sender(world, f"s{each}") for each in range(number)]


# --- Never above ------------------------------------------------------------------------------


class Step(NamedTuple):
    """For a while some are still; then one writes, and something happens on its line."""

    while_s: float
    still: frozenset[int]
    sender: int
    weather: str
    stall_s: float


STEPS = st.builds(
    Step,
    st.sampled_from([0.05, 0.3, 1.1, 1.1, 4.5, 11.0, 26.0]),
    st.frozensets(st.integers(0, 3), max_size=3),
    st.integers(0, 3),
    st.sampled_from(["", "raced", "refused", "unanswered", "late", "quits", "dies"]),
    st.sampled_from([0.05, 0.5, 2.0, 19.0, 33.0]),
)
TICKS = (0.01, 0.01, 0.01, 0.01, 0.02, 0.05, 0.1, 0.3)  # closely first, then less so


async def pass_time(world: World, senders: list[Sender], seconds: float) -> None:
    """All of them send whatever they may."""
    ends_at = world.now_s + seconds
    for tick in range(10_000):
        for sender in senders:
            if sender.is_alive:
                await sender.send()
        if world.now_s >= ends_at:
            break
        tick_s = TICKS[min(tick // 4, len(TICKS) - 1)]
        world.now_s = min(ends_at, world.now_s + tick_s)


async def live_through(world: World, senders: list[Sender], step: Step) -> None:
    awake = [each for at, each in enumerate(senders) if at not in step.still]
    sender = senders[step.sender]

    async def time_passes() -> None:
        await pass_time(world, awake, step.stall_s)

    async def no_answer() -> None:
        await time_passes()
        raise Unavailable("no answer")

    match step.weather:
        case "raced":
            sender.line.before = time_passes
        case "refused":
            sender.line.before = no_answer
        case "late":
            sender.line.after = time_passes
        case "unanswered":
            sender.line.after = no_answer
        case "quits":
            await sender.turns.shares.give_up()
        case "dies":
            sender.is_alive = False
    await pass_time(world, awake, step.while_s)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([2.5, 5.0, 40.0, 500.0]),
    st.lists(st.floats(-10.0, 10.0), min_size=4, max_size=4),
    st.lists(STEPS, min_size=5, max_size=20),
)
def test_no_second_has_more_turns_than_the_limit(
    limit: float, offs: list[float], steps: list[Step]
) -> None:
    async def run() -> None:
        world = World()
        await rate_limits.set_limit(world.storage.tables, Limit(TRANSPORT, limit))
        senders = [Sender(world, f"s{each}", off) for each, off in enumerate(offs)]
        for step in steps:
            await live_through(world, senders, step)
        assert most_in_a_second(world.turns) <= math.ceil(limit)

    asyncio.run(run())


async def test_a_sender_that_stalled_past_its_share_may_not_use_its_turns() -> None:
    world, [sender, other] = await under(100.0, 2)
    await sender.send()
    world.now_s += 2.0
    assert await sender.send()
    assert sender.turns.still_count([""])
    world.now_s += LEASE_S * 2 / 3
    assert not sender.turns.still_count([""])
    assert not sender.turns.has_share
    await other.send()
    assert not other.turns.has_share  # it cannot know how long the share has stood there
    world.now_s += LEASE_S
    await other.send()
    assert other.turns.has_share


# --- Close below ------------------------------------------------------------------------------


async def run_for(world: World, senders: list[Sender], seconds: float, tick_s: float) -> None:
    for _ in range(round(seconds / tick_s)):
        world.now_s += tick_s
        for sender in senders:
            await sender.send()


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("limit", [5.0, 60.0, 5000.0])
async def test_with_enough_work_the_rate_is_within_five_per_cent(limit: float, number: int) -> None:
    world, senders = await under(limit, number)
    await run_for(world, senders, 8.0, 0.01)
    world.turns.clear()
    await run_for(world, senders, 20.0, 0.01)
    assert 0.95 * limit * 20 <= len(world.turns) <= limit * 20
    assert most_in_a_second(world.turns) <= limit


async def test_a_new_limit_is_followed_within_seconds_by_all() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    for limit in (10.0, 1000.0):
        await rate_limits.set_limit(world.storage.tables, Limit(TRANSPORT, limit))
        await run_for(world, senders, 5.0, 0.02)
        world.turns.clear()
        await run_for(world, senders, 10.0, 0.02)
        assert 0.95 * limit * 10 - 2 <= len(world.turns) <= limit * 10


async def test_a_cleared_limit_counts_no_longer_within_seconds() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 5.0, 0.1)
    assert await rate_limits.clear_limit(world.storage.tables, TRANSPORT)
    await run_for(world, senders, LOOK_EVERY_S + 0.1, 0.1)
    assert not any(sender.turns.is_limited for sender in senders)


async def test_a_planned_stop_leaves_the_whole_limit_to_the_others_at_once() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    await senders[0].turns.shares.give_up()
    await run_for(world, senders[1:], LOOK_EVERY_S + 1.0, 0.02)
    world.turns.clear()
    await run_for(world, senders[1:], 5.0, 0.02)
    assert len(world.turns) >= 475


async def test_who_gave_up_and_came_back_is_not_taken_for_dead() -> None:
    """Its renewals go on counting: one that begins anew looks as if it had never moved."""
    world, [sender, other] = await under(10.0, 2)
    await sender.send()
    await other.send()
    await sender.turns.shares.give_up()
    world.now_s += LEASE_S + 1.0
    await sender.send()
    assert sender.turns.has_share
    await other.send()
    rows = await rate_limits.all_limits(world.storage.tables)
    assert rows[TRANSPORT].shares.keys() == {"s0", "s1"}


async def test_the_share_of_a_killed_sender_comes_back_after_a_lease() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    await run_for(world, senders[1:], LEASE_S + LOOK_EVERY_S + 1.0, 0.1)
    world.turns.clear()
    await run_for(world, senders[1:], 5.0, 0.02)
    assert len(world.turns) >= 475


# --- Thrift -----------------------------------------------------------------------------------


async def test_limited_senders_make_less_than_a_call_a_second() -> None:
    world, senders = await under(100.0, 4)
    await run_for(world, senders, 8.0, 0.05)
    before = world.storage.calls.total
    await run_for(world, senders, 60.0, 0.05)
    assert world.storage.calls.total - before <= 60 * len(senders)


async def test_without_a_limit_rows_are_read_every_few_seconds_and_only_while_sending() -> None:
    world = World()
    sender = Sender(world, "s0")
    await run_for(world, [sender], 60.0, 0.05)
    assert world.storage.calls.total <= 60 / LOOK_EVERY_S + 1
    assert world.storage.calls.writes == world.storage.calls.batches == 0
    assert not sender.turns.is_limited


# --- Domains ----------------------------------------------------------------------------------

FEW = [f"ada{each}@few.example" for each in range(60)]
MANY = [f"ada{each}@many.example" for each in range(30)]


async def with_domain_limit(mails: float, connections: int = 0) -> tuple[World, Sender]:
    world = World()
    limit = Limit("few.example", mails, connections)
    await rate_limits.set_limit(world.storage.tables, limit)
    sender = Sender(world, "s0")
    await sender.send()
    return world, sender


async def test_only_mails_to_the_limited_domain_are_put_off() -> None:
    _, sender = await with_domain_limit(5.0)
    late = await sender.turns.put_off(LANE, [*MANY, *FEW])
    assert min(late) >= len(MANY)
    assert 20 <= len(FEW) - len(late) <= 30  # about five seconds of them may wait in the lane


async def test_slices_put_off_come_back_in_turn_and_not_too_far_ahead() -> None:
    world, sender = await with_domain_limit(5.0)
    now_s = START.timestamp() + world.now_s
    sender.turns.begin(sender.turns.limits_of(FEW))
    times = []
    for _ in range(100):
        [until] = set((await sender.turns.put_off(LANE, FEW)).values())
        times.append(until - now_s)
    assert times == sorted(times)
    assert times[10] == pytest.approx(40.0, rel=0.05)  # ten slices of 25, five a second, early
    assert times[-1] <= PUT_OFF_S_MAX


async def test_a_domain_never_has_more_than_half_of_the_lanes() -> None:
    _, sender = await with_domain_limit(1000.0)
    lanes = [object() for _ in range(4)]
    kept = [len(FEW) - len(await sender.turns.put_off(lane, FEW)) for lane in lanes]
    assert kept == [60, 60, 0, 0]
    sender.turns.end(lanes[0], [])
    assert not await sender.turns.put_off(lanes[2], FEW)


async def test_connections_to_a_domain_are_lanes_that_carry_its_mails() -> None:
    _, sender = await with_domain_limit(0.0, connections=1)
    first, second = object(), object()
    limits = sender.turns.limits_of(FEW[:2])
    assert not await sender.turns.put_off(first, FEW[:2])
    assert sender.turns.take(first, limits) == [0, 1]
    assert sender.turns.take(second, limits) == []
    assert sender.turns.take(second, ["", *limits]) == [0]
    sender.turns.end(first, [])
    assert sender.turns.take(second, limits) == [0, 1]


async def test_a_domain_is_kept_to_its_rate_beside_all_others() -> None:
    world, sender = await with_domain_limit(5.0)
    await sender.turns.put_off(LANE, FEW)
    limits = sender.turns.limits_of([*MANY, *FEW])
    given = []
    for _ in range(1000):
        world.now_s += 0.01
        taken = sender.turns.take(LANE, limits)
        assert taken[: len(MANY)] == list(range(len(MANY)))
        given += [world.now_s] * (len(taken) - len(MANY))
    assert 46 <= len(given) <= 50
    assert most_in_a_second(given) <= 5
