"""What every engine promises about queues. One test, one promise; no engine is named in here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from postroom.storage.port import Claim, ClaimLost, Queues
from tests.clock import MovableClock

QUEUE = "azuremailqueue"
OTHER = "azuremailsubscribequeue"

Act = Callable[[Queues, Claim], Awaitable[object]]
ACTS: dict[str, Act] = {
    "complete": lambda queues, claim: queues.complete(claim),
    "extend": lambda queues, claim: queues.extend(claim, lease_s=30),
    "release": lambda queues, claim: queues.release(claim),
}
each_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


async def bodies(queues: Queues, *, lease_s: float = 30) -> list[str]:
    return [claim.body for claim in await queues.claim(QUEUE, limit=32, lease_s=lease_s)]


async def claimed(queues: Queues, body: str = "ann") -> Claim:
    await queues.put(QUEUE, body)
    [claim] = await queues.claim(QUEUE, limit=1, lease_s=30)
    return claim


async def test_an_item_can_be_claimed_and_completed(queues: Queues) -> None:
    claim = await claimed(queues)
    assert (claim.queue, claim.body, claim.taken) == (QUEUE, "ann", 1)
    await queues.complete(claim)
    assert await queues.length(QUEUE) == 0


async def test_an_empty_queue_gives_no_claims(queues: Queues) -> None:
    assert await queues.claim(QUEUE, limit=32, lease_s=30) == []


async def test_items_are_claimed_oldest_first(queues: Queues, clock: MovableClock) -> None:
    for body in ("first", "second", "third"):
        await queues.put(QUEUE, body)
        clock.move(1)
    assert await bodies(queues) == ["first", "second", "third"]


async def test_a_claim_takes_at_most_what_was_asked_for(
    queues: Queues, clock: MovableClock
) -> None:
    for body in "abc":
        await queues.put(QUEUE, body)
        clock.move(1)
    claims = await queues.claim(QUEUE, limit=2, lease_s=30)
    assert [claim.body for claim in claims] == ["a", "b"]
    assert await bodies(queues) == ["c"]


async def test_queues_are_apart(queues: Queues) -> None:
    claim = await claimed(queues)
    assert await queues.claim(OTHER, limit=1, lease_s=30) == []
    assert await queues.length(OTHER) == 0
    with pytest.raises(ClaimLost):
        await queues.complete(Claim(OTHER, claim.item, claim.receipt, claim.body, claim.taken))
    assert await queues.length(QUEUE) == 1


@pytest.mark.parametrize("body", ["", "学生 🎓 Zoë", "a,b\n'\"\\\x00\x1f", "x" * 40_000], ids=len)
async def test_a_body_is_read_as_it_was_put(queues: Queues, body: str) -> None:
    claim = await claimed(queues, body)
    assert claim.body == body


async def test_many_items_are_put_by_one_call_in_order(queues: Queues) -> None:
    await queues.put(QUEUE, "a", "b", "c", delay_s=0)
    await queues.put(QUEUE)
    assert await bodies(queues) == ["a", "b", "c"]


async def test_the_same_body_twice_is_two_items(queues: Queues) -> None:
    await queues.put(QUEUE, "twin")
    await queues.put(QUEUE, "twin")
    first, second = await queues.claim(QUEUE, limit=32, lease_s=30)
    assert first.item != second.item
    await queues.complete(first)
    await queues.complete(second)


# --- Leases -----------------------------------------------------------------------------------


async def test_a_claimed_item_is_hidden_until_its_lease_lapses(
    queues: Queues, clock: MovableClock
) -> None:
    await claimed(queues)
    clock.move(29)
    assert await bodies(queues) == []
    clock.move(1)
    assert await bodies(queues) == ["ann"]


async def test_takes_are_counted(queues: Queues, clock: MovableClock) -> None:
    await queues.put(QUEUE, "ann")
    for taken in range(1, 8):
        [claim] = await queues.claim(QUEUE, limit=1, lease_s=30)
        assert claim.taken == taken
        clock.move(31)


@each_act
async def test_a_stale_claim_can_do_nothing(queues: Queues, clock: MovableClock, act: Act) -> None:
    stale = await claimed(queues)
    clock.move(31)
    [fresh] = await queues.claim(QUEUE, limit=1, lease_s=30)
    with pytest.raises(ClaimLost):
        await act(queues, stale)
    assert await bodies(queues) == []
    await queues.complete(fresh)


@each_act
async def test_a_claim_on_a_completed_item_is_stale(queues: Queues, act: Act) -> None:
    claim = await claimed(queues)
    await queues.complete(claim)
    await queues.put(QUEUE, "next")
    await queues.claim(QUEUE, limit=1, lease_s=30)
    with pytest.raises(ClaimLost):
        await act(queues, claim)
    assert await queues.length(QUEUE) == 1


@each_act
async def test_a_released_claim_is_stale(queues: Queues, act: Act) -> None:
    claim = await claimed(queues)
    await queues.release(claim)
    with pytest.raises(ClaimLost):
        await act(queues, claim)
    assert await bodies(queues) == ["ann"]


@each_act
async def test_a_claim_that_was_extended_is_stale(queues: Queues, act: Act) -> None:
    old = await claimed(queues)
    fresh = await queues.extend(old, lease_s=30)
    with pytest.raises(ClaimLost):
        await act(queues, old)
    await queues.complete(fresh)


@each_act
async def test_a_lapsed_claim_nobody_took_over_still_holds(
    queues: Queues, clock: MovableClock, act: Act
) -> None:
    claim = await claimed(queues)
    clock.move(31)
    await act(queues, claim)


async def test_an_extended_lease_runs_from_now(queues: Queues, clock: MovableClock) -> None:
    claim = await claimed(queues)
    clock.move(20)
    fresh = await queues.extend(claim, lease_s=30)
    assert (fresh.item, fresh.body, fresh.taken) == (claim.item, "ann", 1)
    clock.move(29)
    assert await bodies(queues) == []
    clock.move(1)
    assert await bodies(queues) == ["ann"]


async def test_a_lease_can_be_shortened(queues: Queues, clock: MovableClock) -> None:
    claim = await claimed(queues)
    await queues.extend(claim, lease_s=5)
    clock.move(5)
    assert await bodies(queues) == ["ann"]


async def test_a_claim_can_be_extended_again_and_again(queues: Queues, clock: MovableClock) -> None:
    claim = await claimed(queues)
    for _ in range(5):
        clock.move(25)
        claim = await queues.extend(claim, lease_s=30)
    await queues.complete(claim)
    assert await queues.length(QUEUE) == 0


async def test_a_released_item_is_visible_at_once(queues: Queues) -> None:
    await queues.release(await claimed(queues))
    [again] = await queues.claim(QUEUE, limit=1, lease_s=30)
    assert (again.body, again.taken) == ("ann", 2)


async def test_a_released_item_waits_for_its_delay(queues: Queues, clock: MovableClock) -> None:
    await queues.release(await claimed(queues), delay_s=60)
    clock.move(59)
    assert await bodies(queues) == []
    clock.move(1)
    assert await bodies(queues) == ["ann"]


async def test_a_delayed_item_is_hidden_until_its_time(queues: Queues, clock: MovableClock) -> None:
    await queues.put(QUEUE, "later", delay_s=60)
    await queues.put(QUEUE, "now")
    assert await bodies(queues, lease_s=600) == ["now"]
    clock.move(59)
    assert await bodies(queues) == []
    clock.move(1)
    assert await bodies(queues) == ["later"]


async def test_claimers_in_parallel_never_share_an_item(queues: Queues) -> None:
    await asyncio.gather(*(queues.put(QUEUE, str(n)) for n in range(50)))
    rounds = await asyncio.gather(
        *(queues.claim(QUEUE, limit=7, lease_s=30) for _ in range(10)),
    )
    taken = [claim.body for claims in rounds for claim in claims]
    assert sorted(taken, key=int) == [str(n) for n in range(50)]


# --- Looking without taking -------------------------------------------------------------------


async def test_the_length_counts_claimed_and_delayed_items(queues: Queues) -> None:
    await claimed(queues)
    await queues.put(QUEUE, "later", delay_s=60)
    await queues.put(QUEUE, "now")
    assert await queues.length(QUEUE) == 3


async def test_peek_shows_what_could_be_claimed_and_takes_nothing(
    queues: Queues, clock: MovableClock
) -> None:
    await claimed(queues, "claimed")
    await queues.put(QUEUE, "later", delay_s=60)
    await queues.put(QUEUE, "now")
    for _ in range(2):
        [item] = await queues.peek(QUEUE)
        assert (item.body, item.taken) == ("now", 0)
    clock.move(30)
    assert sorted(item.body for item in await queues.peek(QUEUE)) == ["claimed", "now"]
    [first] = await queues.peek(QUEUE, limit=1)
    [claim] = await queues.claim(QUEUE, limit=1, lease_s=30)
    assert (first.body, first.taken + 1, first.id) == (claim.body, claim.taken, claim.item)


async def test_an_item_knows_when_it_was_put_whatever_happens_to_it(
    queues: Queues, clock: MovableClock
) -> None:
    await queues.put(QUEUE, "early")
    [early] = await queues.peek(QUEUE)
    clock.move(60)
    await queues.put(QUEUE, "late")
    for claim in await queues.claim(QUEUE, limit=2, lease_s=30):
        await queues.release(claim)
    put_at = {item.body: item.put_at for item in await queues.peek(QUEUE)}
    assert put_at["early"] == early.put_at
    assert abs(put_at["late"] - early.put_at - timedelta(seconds=60)) < timedelta(seconds=2)


@pytest.mark.parametrize("back_s", [30 * 60.0, 3 * 3600.0])
async def test_an_item_reappears_in_time_even_if_the_clock_is_set_back(
    queues: Queues, clock: MovableClock, back_s: float
) -> None:
    await claimed(queues)
    await queues.put(QUEUE, "later", delay_s=60)
    clock.set(-back_s)
    clock.move(31)
    assert await bodies(queues) == ["ann"]
    await queues.put(QUEUE, "new")
    assert await bodies(queues) == ["new"]
    clock.move(30)
    assert "later" in await bodies(queues)


async def test_an_item_that_is_put_after_the_clock_was_set_can_be_taken(
    queues: Queues, clock: MovableClock
) -> None:
    await queues.put(QUEUE, "before")
    clock.set(2 * 3600)
    await queues.put(QUEUE, "ahead")
    clock.set(-4 * 3600)
    await queues.put(QUEUE, "behind")
    assert set(await bodies(queues)) == {"before", "ahead", "behind"}
