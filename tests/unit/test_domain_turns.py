"""A limit for one recipient domain: its mails wait their turn, all others go on."""

from __future__ import annotations

import pytest

from postroom.domain.delivery import PUT_OFF_S_MAX
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
    assert times[10] == pytest.approx(25.5, rel=0.05)  # ten slices of 25, five a second, twice
    assert times[-1] <= PUT_OFF_S_MAX


async def test_a_domain_never_has_all_of_the_lanes() -> None:
    _, sender = await with_domain_limit(1000.0)
    lanes = [object() for _ in range(4)]
    kept = [len(FEW) - len(await sender.turns.put_off(lane, FEW)) for lane in lanes]
    assert kept == [60, 60, 60, 0]
    sender.turns.end(lanes[0], [])
    assert not await sender.turns.put_off(lanes[3], FEW)


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
