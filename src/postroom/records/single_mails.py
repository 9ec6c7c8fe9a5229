"""Items of the subscribe queue, each one mail to one person: done with, or among the dead letters.

Such a mail needs no ledger. Whoever lost the item while it was at it may have sent it once more.
"""

from __future__ import annotations

from typing import assert_never

from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.domain.retry import RetryRules, retry_after_s
from postroom.storage.port import DEAD_LETTERS, Claim, ClaimLost, Queues

TAKES_MAX = 5
FAULT_DELAY_S = 10.0  # our provider is in trouble, or we are to stop: the item waits
START_OVER_S = 10.0  # more than putting an item takes


async def conclude(queues: Queues, claim: Claim, outcome: Outcome, rules: RetryRules) -> None:
    match outcome:
        case Sent() | Rejected():  # refused for good: nobody to mail to
            await complete(queues, claim)
        case Deferred(scope=Scope.PROVIDER) | Untried():
            await start_over(queues, claim, FAULT_DELAY_S)
        case Deferred() | Unknown() if claim.taken >= TAKES_MAX:
            await bury(queues, claim)
        case Deferred() | Unknown():
            await queues.release(claim, delay_s=retry_after_s(claim.taken, rules))
        case _:
            assert_never(outcome)


async def complete(queues: Queues, claim: Claim) -> None:
    try:
        await queues.complete(claim)
    except ClaimLost:
        return  # it was taken again: one mail more, with the same Message-ID


async def bury(queues: Queues, claim: Claim) -> None:
    """Where whoever misses the mail finds it."""
    await queues.put(DEAD_LETTERS, claim.body)
    await complete(queues, claim)


async def start_over(queues: Queues, claim: Claim, delay_s: float) -> None:
    """Nobody's fault: a fresh item, so that no take counts against the person."""
    held = await queues.extend(claim, lease_s=START_OVER_S)  # lost: not ours to put again
    await queues.put(claim.queue, claim.body, delay_s=delay_s)
    await complete(queues, held)
