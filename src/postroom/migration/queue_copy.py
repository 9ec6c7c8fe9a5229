"""Work items carried from one storage into another, and left where they were.

A queue can only be read by taking from it. So every item that shows is claimed, put into the
target, and given back to the source when all are through: the source stays whole, but for one take
more on every item.
Dies half-way: the target has some of the items, and those that were claimed show again within a
minute. Carried again, the target's queue is emptied first, so that no item is in it twice.
Hidden items, delayed or in somebody's hand, cannot be read at all until they show.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from postroom.clock import Clock
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, ClaimLost, Queues, StorageError

CLAIM_S = 60.0  # an item that comes round again meanwhile is known by its id
KEEP_EVERY = timedelta(seconds=CLAIM_S / 3)  # claims are extended: each take counts against an item
EMPTIED_WITHIN_S = CLAIM_S + 10.0  # what an earlier run had claimed shows again by then
LOOK_EVERY_S = 1.0
_AT_ONCE = 16  # calls for claims

T = TypeVar("T")


async def carry(
    source: Queues,
    target: Queues,
    queue: str,
    clock: Clock,
    *,
    wait_s: float,
    may_go_on: Callable[[int], bool],
    may_write: Callable[[], Awaitable[None]],
) -> int:
    """Every item that shows, or comes to within `wait_s`; how many.

    `may_go_on` is asked with how many are through; after a no the rest stays behind. `may_write`
    is awaited before the target is changed, and raises if it is another's by now.
    """
    await _empty(target, queue, clock, may_write)
    until = clock.now() + timedelta(seconds=wait_s)
    taken: dict[str, Claim] = {}
    keep_at = clock.now() + KEEP_EVERY
    try:
        while may_go_on(len(taken)):
            if clock.now() >= keep_at:
                keep_at = clock.now() + KEEP_EVERY
                taken |= await _kept(source, list(taken.values()))
            claims = await source.claim(queue, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S)
            new = [claim for claim in claims if claim.item not in taken]
            taken |= {claim.item: claim for claim in claims}
            await may_write()
            await target.put(queue, *(claim.body for claim in new))
            if new:
                continue
            if clock.now() >= until or await source.length(queue) <= len(taken):
                break
            await clock.sleep(LOOK_EVERY_S)
    finally:
        await _give_back(source, list(taken.values()))
    return len(taken)


async def bodies_that_show(queues: Queues, queue: str) -> list[str] | None:
    """What can be read without taking anything; None if there is more."""
    items = await queues.peek(queue, limit=CLAIM_ITEMS_MAX)
    if len(items) < await queues.length(queue):
        return None
    return sorted(item.body for item in items)


async def _empty(
    queues: Queues, queue: str, clock: Clock, may_write: Callable[[], Awaitable[None]]
) -> None:
    """Nobody else works with the target: whatever is in it was put there by an earlier run."""
    patience = timedelta(seconds=EMPTIED_WITHIN_S)
    until = clock.now() + patience
    while await queues.length(queue):
        await may_write()
        claims = await queues.claim(queue, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S)
        await may_write()
        for claim in claims:
            with contextlib.suppress(ClaimLost):
                await queues.complete(claim)
        if claims:
            until = clock.now() + patience
        elif clock.now() >= until:
            return  # only the engine's count is behind
        else:
            await clock.sleep(LOOK_EVERY_S)


async def _kept(queues: Queues, claims: list[Claim]) -> dict[str, Claim]:
    """The claims with a new lease, by item; one that is lost shows, and is taken once more."""
    kept = await _each(partial(queues.extend, lease_s=CLAIM_S), claims)
    return {claim.item: claim for claim in kept}


async def _give_back(queues: Queues, claims: list[Claim]) -> None:
    """What storage does not take back shows again by itself."""
    await _each(queues.release, claims)


async def _each(call: Callable[[Claim], Awaitable[T]], claims: list[Claim]) -> list[T]:
    """A few at once; the answers, without those of calls that storage did not do."""
    answers: list[T] = []
    for start in range(0, len(claims), _AT_ONCE):
        some = claims[start : start + _AT_ONCE]
        for answer in await asyncio.gather(*map(call, some), return_exceptions=True):
            if not isinstance(answer, BaseException):
                answers.append(answer)
            elif not isinstance(answer, StorageError):
                raise answer
    return answers
