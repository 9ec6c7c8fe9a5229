"""A limit for one recipient domain: its mails wait their turn, all others go on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from postroom.domain.delivery import LIMIT_DEFERRAL_S_MAX
from postroom.domain.rate_limit import RateLimit
from postroom.records import rate_limits
from tests.unit.limited_senders import LANE, START, Sender, World
from tests.unit.seconds import most_in_a_second

FEW = [f"ada{each}@few.example" for each in range(60)]
MANY = [f"ada{each}@many.example" for each in range(30)]


async def with_domain_limit(mails: float, connections: int = 0) -> tuple[World, Sender]:
    world = World()
    limit = RateLimit("few.example", mails, connections)
    await rate_limits.set_limit(world.storage.tables, limit)
    sender = Sender(world, "s0")
    await sender.send()
    return world, sender


async def deferred(sender: Sender, lane: int, recipients: list[str]) -> Mapping[int, float]:
    return (await sender.pacer.admit(lane, recipients)).deferred


async def test_only_mails_to_the_limited_domain_are_deferred() -> None:
    _, sender = await with_domain_limit(5.0)
    late = await deferred(sender, LANE, [*MANY, *FEW])
    assert min(late) >= len(MANY)
    assert 20 <= len(FEW) - len(late) <= 30  # about five seconds of them may wait in the lane


async def test_deferred_slices_come_back_in_turn_and_not_too_far_ahead() -> None:
    world, sender = await with_domain_limit(5.0)
    now_s = START.timestamp() + world.now_s
    await deferred(sender, LANE, FEW)  # takes all the room there is
    times = []
    for _ in range(100):
        [until] = set((await deferred(sender, 2, FEW)).values())
        times.append(until - now_s)
    assert times == sorted(times)
    assert times[9] == pytest.approx(25.5, rel=0.05)  # ten slices of 25, five a second, twice
    assert times[-1] <= LIMIT_DEFERRAL_S_MAX


async def test_a_domain_never_has_all_of_the_lanes() -> None:
    _, sender = await with_domain_limit(1000.0)
    kept = [len(FEW) - len(await deferred(sender, lane, FEW)) for lane in range(4)]
    assert kept == [60, 60, 60, 0]
    await sender.pacer.release(0)
    assert not await deferred(sender, 3, FEW)


async def test_connections_to_a_domain_are_lanes_that_carry_its_mails() -> None:
    _, sender = await with_domain_limit(0.0, connections=1)
    assert (await sender.pacer.admit(1, FEW[:2])).now == [0, 1]
    sender.pacer.sent(1, FEW[:2])
    assert (await sender.pacer.admit(2, FEW[:2])).now == []
    assert (await sender.pacer.admit(2, [MANY[0], *FEW[:2]])).now == [0]
    await sender.pacer.release(1)
    assert (await sender.pacer.admit(2, FEW[:2])).now == [0, 1]


async def test_a_domain_is_kept_to_its_rate_beside_all_others() -> None:
    world, sender = await with_domain_limit(5.0)
    given = []
    for _ in range(1000):
        world.now_s += 0.01
        taken = (await sender.pacer.admit(LANE, [*MANY, *FEW])).now
        assert taken[: len(MANY)] == list(range(len(MANY)))
        few = FEW[: len(taken) - len(MANY)]
        sender.pacer.sent(LANE, [*MANY, *few])
        await sender.pacer.release(LANE)
        given += [world.now_s] * len(few)
    assert 46 <= len(given) <= 50
    assert most_in_a_second(given) <= 5
