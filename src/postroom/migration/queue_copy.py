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
EXTEND_EVERY = timedelta(seconds=CLAIM_S / 3)  # not claimed again, which would count as an attempt
EMPTIED_WITHIN_S = CLAIM_S + 10.0  # items that an earlier run claimed are visible by then
POLL_EVERY_S = 1.0
_AT_ONCE = 16  # concurrent calls

T = TypeVar("T")


async def copy_queue(
    source: Queues,
    target: Queues,
    queue: str,
    clock: Clock,
    *,
    wait_s: float,
    may_go_on: Callable[[int], bool],
    check: Callable[[], Awaitable[None]],
) -> int:
    """Copy all items that are visible now or within `wait_s`; return how many.

    `may_go_on` is called with the number copied so far; False ends the copy. `check` is awaited
    before the target is changed, and raises if another process fills it now.
    """
    await empty_queue(target, queue, clock, check)
    until = clock.now() + timedelta(seconds=wait_s)
    claimed: dict[str, Claim] = {}
    extend_at = clock.now() + EXTEND_EVERY
    try:
        while may_go_on(len(claimed)):
            if clock.now() >= extend_at:
                extend_at = clock.now() + EXTEND_EVERY
                extend = partial(source.extend, lease_s=CLAIM_S)  # a lost claim is claimed again
                extended = await _call_each(extend, list(claimed.values()))
                claimed |= {claim.item: claim for claim in extended}
            claims = await source.claim(queue, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S)
            new = [claim for claim in claims if claim.item not in claimed]
            claimed |= {claim.item: claim for claim in claims}
            await check()
            await target.put(queue, *(claim.body for claim in new))
            if new:
                continue
            if clock.now() >= until or await source.length(queue) <= len(claimed):
                break
            await clock.sleep(POLL_EVERY_S)
    finally:
        # A claim that cannot be released expires.
        await _call_each(source.release, list(claimed.values()))
    return len(claimed)


async def visible_bodies(queues: Queues, queue: str) -> list[str] | None:
    """Read all items without claiming them; None if some are hidden, or there are too many."""
    items = await queues.peek(queue, limit=CLAIM_ITEMS_MAX)
    if len(items) < await queues.length(queue):
        return None
    return sorted(item.body for item in items)


async def empty_queue(
    queues: Queues, queue: str, clock: Clock, check: Callable[[], Awaitable[None]]
) -> None:
    """Delete what an earlier run put into the target."""
    wait = timedelta(seconds=EMPTIED_WITHIN_S)
    until = clock.now() + wait
    while await queues.length(queue):
        await check()
        claims = await queues.claim(queue, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S)
        await check()
        for claim in claims:
            with contextlib.suppress(ClaimLost):
                await queues.complete(claim)
        if claims:
            until = clock.now() + wait
        elif clock.now() >= until:
            return  # it is empty: the engine's count lags behind
        else:
            await clock.sleep(POLL_EVERY_S)


async def _call_each(call: Callable[[Claim], Awaitable[T]], claims: list[Claim]) -> list[T]:
    """Make a few calls at a time; return the answers of those that succeeded."""
    answers: list[T] = []
    for start in range(0, len(claims), _AT_ONCE):
        some = claims[start : start + _AT_ONCE]
        for answer in await asyncio.gather(*map(call, some), return_exceptions=True):
            if not isinstance(answer, BaseException):
                answers.append(answer)
            elif not isinstance(answer, StorageError):
                raise answer
    return answers
