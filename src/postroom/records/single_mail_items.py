"""Items of the single-mail queue, each one email to one person: complete, release or requeue them.

Such an email needs no ledger: if a sender loses its claim while it sends, the email may be sent
twice, with the same Message-ID.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from postroom.clock import Clock
from postroom.storage.port import Claim, ClaimLost, Queues, StorageError

CLAIMS_MAX = 5  # without an outcome: the item may be what kills its senders
FAULT_DELAY_S = 10.0  # the provider is in trouble, or a rate limit is reached
CLAIM_S = 120.0  # how long the item of a dead sender stays hidden
# Every item becomes visible at least this often, so that a migration can copy it (migrate.py).
DELAY_S_MAX = 1800.0

T = TypeVar("T")


async def complete(queues: Queues, *claims: Claim) -> None:
    """Complete the items; one that another sender claimed meanwhile is sent twice."""
    await _each(queues.complete, claims)


async def release(queues: Queues, claim: Claim, delay_s: float) -> None:
    """Release the item for later; the attempt counts."""
    with contextlib.suppress(ClaimLost):
        await queues.release(claim, delay_s=min(delay_s, DELAY_S_MAX))


async def start_over(queues: Queues, claims: Sequence[Claim], delay_s: float) -> None:
    """Put the items again, so that no attempt counts. A crash in between leaves an item twice."""
    if not claims:
        return
    held = await extended(queues, claims)  # items whose claims were lost must not be put again
    delay_s = min(delay_s, DELAY_S_MAX)
    await queues.put(claims[0].queue, *(claim.body for claim in held), delay_s=delay_s)
    await complete(queues, *held)


async def extended(queues: Queues, claims: Sequence[Claim]) -> list[Claim]:
    """Extend the claims from now; return them without those that are lost."""
    return await _each(partial(queues.extend, lease_s=CLAIM_S), claims)


@contextlib.asynccontextmanager
async def kept(
    queues: Queues, clock: Clock, claims: Sequence[Claim]
) -> AsyncIterator[dict[str, Claim]]:
    """Yield the claims by item, and extend them while the block runs, as a server may answer late.

    Read them after the block has ended.
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
        async with extending:  # a cancelled call may have changed the claim
            keeping.cancel()
        with contextlib.suppress(StorageError, asyncio.CancelledError):
            await keeping


async def together(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Run the calls concurrently, so that an engine may commit them together; raise at the end."""
    return _results(await asyncio.gather(*calls, return_exceptions=True))


def _results(answers: Sequence[T | BaseException]) -> list[T]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _each(call: Callable[[Claim], Awaitable[T]], claims: Sequence[Claim]) -> list[T]:
    """Return the answers, without those of lost claims."""
    answers = await asyncio.gather(*map(call, claims), return_exceptions=True)
    return _results([each for each in answers if not isinstance(each, ClaimLost)])
