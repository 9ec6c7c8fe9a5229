"""Copy work items from one storage to another.

A queue can only be read by claiming its items. So every visible item is claimed, put into the
target, and released in the source when all are copied: the source keeps all items, each with one
more attempt counted.
Dies half-way: the target has some of the items, and those that were claimed are visible again
within a minute. Copied again, the target's queue is emptied first, so that no item is in it twice.
Hidden items, delayed or claimed, cannot be read until they are visible.
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

CLAIM_S = 60.0  # an item that appears again meanwhile is recognised by its id
KEEP_EVERY = timedelta(seconds=CLAIM_S / 3)  # extended, because each claim counts as an attempt
EMPTIED_WITHIN_S = CLAIM_S + 10.0  # items that an earlier run claimed are visible by then
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
    """Copy all items that are visible now or within `wait_s`; how many.

    `may_go_on` gets how many are copied; if it says no, the rest is not copied. `may_write` is
    awaited before the target is changed, and raises if another process fills it now.
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
    """All items, if they can be read without claiming them; None if there are more."""
    items = await queues.peek(queue, limit=CLAIM_ITEMS_MAX)
    if len(items) < await queues.length(queue):
        return None
    return sorted(item.body for item in items)


async def _empty(
    queues: Queues, queue: str, clock: Clock, may_write: Callable[[], Awaitable[None]]
) -> None:
    """Delete what an earlier run put into the target, which nothing else uses."""
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
            return  # only the count of the engine is late
        else:
            await clock.sleep(LOOK_EVERY_S)


async def _kept(queues: Queues, claims: list[Claim]) -> dict[str, Claim]:
    """The claims extended, by item; one that is lost becomes visible, and is claimed again."""
    kept = await _each(partial(queues.extend, lease_s=CLAIM_S), claims)
    return {claim.item: claim for claim in kept}


async def _give_back(queues: Queues, claims: list[Claim]) -> None:
    """Release the claims; one that fails becomes visible again by itself."""
    await _each(queues.release, claims)


async def _each(call: Callable[[Claim], Awaitable[T]], claims: list[Claim]) -> list[T]:
    """Make a few calls at once; the answers, without those of calls that failed."""
    answers: list[T] = []
    for start in range(0, len(claims), _AT_ONCE):
        some = claims[start : start + _AT_ONCE]
        for answer in await asyncio.gather(*map(call, some), return_exceptions=True):
            if not isinstance(answer, BaseException):
                answers.append(answer)
            elif not isinstance(answer, StorageError):
                raise answer
    return answers
