"""The dead-letter queue: bury items, list them, delete them, put them back.

Dies half-way: an item is written to its new queue before it is deleted from the old one, so it may
be in both but never in neither; the ledger of a batch decides whether anything is still to be sent.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec
import structlog

from postroom.domain.dead_letter import DeadLetter, Reason, dead_letter, names_of, parse_dead_letter
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, ClaimLost, Queues

log = structlog.get_logger("records")
CLAIM_S = 60.0  # for one round of at most 32


async def bury(queues: Queues, claim: Claim, reason: Reason, now: datetime) -> None:
    """Move an item to the dead letters; ClaimLost, and it is in both, if another sender has it."""
    log.error("item_buried", reason=reason.value, taken=claim.taken, **names_of(claim.body))
    letter = dead_letter(claim.queue, claim.body, reason, now)
    await queues.put(DEAD_LETTER_QUEUE, msgspec.json.encode(letter).decode())
    await queues.complete(claim)


async def oldest(queues: Queues) -> list[DeadLetter]:
    items = await queues.peek(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX)
    return [parse_dead_letter(item.body) for item in items]


async def clear(queues: Queues) -> int:
    cleared = 0
    while claims := await queues.claim(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S):
        for claim in claims:
            with contextlib.suppress(ClaimLost):  # another command has it
                await queues.complete(claim)
                cleared += 1
    return cleared


async def put_back(queues: Queues) -> tuple[int, int]:
    """Put valid items back on their queues; return how many were, and how many stay."""
    back = 0
    staying: dict[str, Claim] = {}  # by item, so that one that is claimed twice is counted once
    while claims := await queues.claim(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S):
        for claim in claims:
            letter = parse_dead_letter(claim.body)
            if not letter.can_be_put_back or letter.queue not in (MAIL_QUEUE, SINGLE_MAIL_QUEUE):
                staying[claim.item] = claim
                continue
            await queues.put(letter.queue, letter.body)
            with contextlib.suppress(ClaimLost):  # another command has it
                await queues.complete(claim)
            back += 1
    for claim in staying.values():
        with contextlib.suppress(ClaimLost):
            await queues.release(claim)
    return back, len(staying)
