"""Several senders under one limit: never above whatever happens, close below when all is well.

Every sender has its own clock, off by up to ten seconds. Between a sender's read and its write
others come first; writes fail, take effect unnoticed, or are late by longer than a lease.
"""

from __future__ import annotations

import asyncio
import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.pacing.quotas import RENEW_EVERY_S
from postroom.records import rate_limits
from postroom.storage.port import Unavailable
from tests.unit.limited_senders import LANE, LEASE_S, Sender, World, under
from tests.unit.seconds import most_in_a_second

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
            await sender.pacer.release()
        case "dies":
            sender.is_alive = False
    await pass_time(world, awake, step.while_s)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.sampled_from([2.5, 5.0, 40.0, 500.0]),
    st.lists(st.floats(-10.0, 10.0), min_size=4, max_size=4),
    st.lists(STEPS, min_size=5, max_size=20),
)
def test_no_second_has_more_mails_than_the_limit(
    limit: float, offs: list[float], steps: list[Step]
) -> None:
    async def run() -> None:
        world = World()
        await rate_limits.set_limit(world.storage.tables, RateLimit(TRANSPORT, limit))
        senders = [Sender(world, f"s{each}", off) for each, off in enumerate(offs)]
        for step in steps:
            await live_through(world, senders, step)
        assert most_in_a_second(world.sent) <= math.ceil(limit)

    asyncio.run(run())


async def test_a_sender_that_stalled_past_its_quota_may_not_use_it() -> None:
    world, [sender, other] = await under(100.0, 2)
    await sender.send()
    world.now_s += 2.0
    assert await sender.send()
    is_valid = sender.pacer.sent(LANE, ["ada@contoso.edu"])
    assert is_valid
    assert is_valid()
    world.now_s += LEASE_S * 2 / 3
    assert not is_valid()
    assert sender.pacer.lanes_max == 0
    await other.send()
    assert other.pacer.lanes_max == 0  # it cannot know how long the share has stood there
    world.now_s += LEASE_S
    await other.send()
    assert other.pacer.lanes_max is None


async def test_nobody_begins_an_item_before_the_limits_are_known() -> None:
    _, [sender] = await under(5.0, 1)
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        is_asked.set()
        await may_answer.wait()

    sender.line.before = slowly
    first = asyncio.create_task(sender.pacer.keep_alive(must_know=True))
    await is_asked.wait()
    second = asyncio.create_task(sender.pacer.keep_alive(must_know=True))
    await asyncio.sleep(0)
    await sender.pacer.keep_alive()  # a lane in the middle of a slice goes on meanwhile
    assert not second.done()
    may_answer.set()
    await asyncio.gather(first, second)
    assert sender.pacer.lanes_max is None


async def test_no_item_is_begun_while_storage_does_not_tell_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, [sender] = await under(5.0, 1)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(world.storage.tables, "scan", away)
    with pytest.raises(Unavailable):
        await sender.pacer.keep_alive(must_know=True)
    await sender.pacer.keep_alive()  # who has outcomes to write down is told nothing
    monkeypatch.undo()
    world.now_s += 2.0
    await sender.pacer.keep_alive(must_know=True)
    assert sender.pacer.lanes_max is None


# --- Close below ------------------------------------------------------------------------------


async def run_for(world: World, senders: list[Sender], seconds: float, tick_s: float) -> None:
    for _ in range(round(seconds / tick_s)):
        world.now_s += tick_s
        for sender in senders:
            await sender.send()


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("limit", [5.0, 60.0, 5000.0])
async def test_with_enough_work_the_rate_is_within_five_per_cent(limit: float, number: int) -> None:
    world, senders = await under(limit, number)
    await run_for(world, senders, 8.0, 0.01)
    world.sent.clear()
    await run_for(world, senders, 20.0, 0.01)
    assert 0.95 * limit * 20 <= len(world.sent) <= limit * 20
    assert most_in_a_second(world.sent) <= limit


async def test_a_new_limit_is_followed_within_seconds_by_all() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    for limit in (10.0, 1000.0):
        await rate_limits.set_limit(world.storage.tables, RateLimit(TRANSPORT, limit))
        await run_for(world, senders, 5.0, 0.02)
        world.sent.clear()
        await run_for(world, senders, 10.0, 0.02)
        assert 0.95 * limit * 10 - 2 <= len(world.sent) <= limit * 10


async def test_a_cleared_limit_counts_no_longer_within_seconds() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 5.0, 0.1)
    assert await rate_limits.clear_limit(world.storage.tables, TRANSPORT)
    await run_for(world, senders, RENEW_EVERY_S + 0.1, 0.1)
    assert all(sender.pacer.sent(LANE, []) is None for sender in senders)


async def test_a_planned_stop_leaves_the_whole_limit_to_the_others_at_once() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    await senders[0].pacer.release()
    await run_for(world, senders[1:], RENEW_EVERY_S + 1.0, 0.02)
    world.sent.clear()
    await run_for(world, senders[1:], 5.0, 0.02)
    assert len(world.sent) >= 475


async def test_who_gave_up_and_came_back_is_not_taken_for_dead() -> None:
    """Its renewals go on counting: one that begins anew looks as if it had never moved."""
    world, [sender, other] = await under(10.0, 2)
    await sender.send()
    await other.send()
    await sender.pacer.release()
    world.now_s += LEASE_S + 1.0
    await sender.send()
    assert sender.pacer.lanes_max is None
    await other.send()
    rows = await rate_limits.all_limits(world.storage.tables)
    assert rows[TRANSPORT].shares.keys() == {"s0", "s1"}


async def test_the_share_of_a_killed_sender_is_free_after_a_lease() -> None:
    world, senders = await under(100.0, 2)
    await run_for(world, senders, 8.0, 0.02)
    await run_for(world, senders[1:], LEASE_S + RENEW_EVERY_S + 1.0, 0.1)
    world.sent.clear()
    await run_for(world, senders[1:], 5.0, 0.02)
    assert len(world.sent) >= 475


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
    assert world.storage.calls.total <= 60 / RENEW_EVERY_S + 1
    assert world.storage.calls.writes == world.storage.calls.batches == 0
    assert sender.pacer.sent(LANE, []) is None
