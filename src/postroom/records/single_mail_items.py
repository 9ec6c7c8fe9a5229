"""Items of the subscribe queue, each one mail to one person: completed, given back, put anew.

Such a mail needs no ledger. Whoever lost the item while it was at it may have sent it once more,
with the same Message-ID.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from postroom.clock import Clock
from postroom.storage.port import Claim, ClaimLost, Queues, StorageError

TAKES_MAX = 5  # without an outcome: it may be what ends its senders
FAULT_DELAY_S = 10.0  # our provider is in trouble, or there was no turn: the item waits
CLAIM_S = 120.0  # so long an item hides whose sender died
# Every item shows at least so often, so that a migration can take it along (migrate.py).
DELAY_S_MAX = 1800.0

T = TypeVar("T")


async def complete(queues: Queues, *claims: Claim) -> None:
    """One that was taken again meanwhile is not ours any more: that is one mail more."""
    await _each(queues.complete, claims)


async def release(queues: Queues, claim: Claim, delay_s: float) -> None:
    """The same item again later; the take counts."""
    with contextlib.suppress(ClaimLost):
        await queues.release(claim, delay_s=min(delay_s, DELAY_S_MAX))


async def start_over(queues: Queues, claims: Sequence[Claim], delay_s: float) -> None:
    """Fresh items, so that no take counts. Dying in between leaves an item twice."""
    if not claims:
        return
    held = await extended(queues, claims)  # those that were lost are not ours to put again
    delay_s = min(delay_s, DELAY_S_MAX)
    await queues.put(claims[0].queue, *(claim.body for claim in held), delay_s=delay_s)
    await complete(queues, *held)


async def extended(queues: Queues, claims: Sequence[Claim]) -> list[Claim]:
    """The same claims from now; those that are lost are left out."""
    return await _each(partial(queues.extend, lease_s=CLAIM_S), claims)


@contextlib.asynccontextmanager
async def kept(
    queues: Queues, clock: Clock, claims: Sequence[Claim]
) -> AsyncIterator[dict[str, Claim]]:
    """The claims by item, extended for as long as it takes: a server may answer late.

    Ask for them when the block has ended.
    """
    held = {claim.item: claim for claim in claims}
    extending = asyncio.Lock()

    async def keep() -> None:
        while True:
            await clock.sleep(CLAIM_S / 3)
            async with extending:
                held.update({each.item: each for each in await extended(queues, [*held.values()])})

    keeping = asyncio.create_task(keep())
    try:
        yield held
    finally:
        async with extending:  # a call that was cut off may have changed the claim
            keeping.cancel()
        with contextlib.suppress(StorageError, asyncio.CancelledError):
            await keeping


async def together(calls: Sequence[Awaitable[T]]) -> list[T]:
    """All at once, by one commit where the engine has such; raises when all have ended."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _each(call: Callable[[Claim], Awaitable[T]], claims: Sequence[Claim]) -> list[T]:
    """All at once; without those that are lost."""
    answers = await together([_unless_lost(call, claim) for claim in claims])
    return [answer for found in answers for answer in found]


async def _unless_lost(call: Callable[[Claim], Awaitable[T]], claim: Claim) -> list[T]:
    try:
        return [await call(claim)]
    except ClaimLost:
        return []
