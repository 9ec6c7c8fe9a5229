"""The dead-letter queue: bury items, list them, delete them, put them back.

Dies half-way: an item is written to its new queue before it is deleted from the old one, so it may
be in both but never in neither; the ledger of a batch decides whether anything is still to be sent.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from postroom.domain.dead_letter import DeadLetter, Reason, dead_letter, names_of, parse_dead_letter
from postroom.records.names import DEAD_LETTER_QUEUE, MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, ClaimLost, Queues

log = structlog.get_logger("records")
CLAIM_S = 60.0  # for one round of at most 32
EXPIRED_ROUNDS_A_SWEEP = 20


class BuriedItem(msgspec.Struct, frozen=True):
    """A dead letter, and its id on the queue."""

    id: str
    letter: DeadLetter

    @property
    def can_be_put_back(self) -> bool:
        return self.letter.can_be_put_back and self.letter.queue in (MAIL_QUEUE, SINGLE_MAIL_QUEUE)


async def bury(queues: Queues, claim: Claim, reason: Reason, now: datetime) -> None:
    """Move an item to the dead letters; ClaimLost, and it is in both, if another sender has it."""
    log.error("item_buried", reason=reason.value, taken=claim.taken, **names_of(claim.body))
    letter = dead_letter(claim.queue, claim.body, reason, now)
    await queues.put(DEAD_LETTER_QUEUE, msgspec.json.encode(letter).decode())
    await queues.complete(claim)


async def oldest(queues: Queues) -> list[DeadLetter]:
    """The next 32, roughly the oldest first."""
    return [each.letter for each in await oldest_items(queues)]


async def oldest_items(queues: Queues) -> list[BuriedItem]:
    items = await queues.peek(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX)
    return [BuriedItem(item.id, parse_dead_letter(item.body, item.put_at)) for item in items]


async def clear(queues: Queues) -> int:
    """Delete all of them; return how many."""
    cleared = 0
    while claims := await queues.claim(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S):
        for claim in claims:
            with contextlib.suppress(ClaimLost):  # another command has it
                await queues.complete(claim)
                cleared += 1
    return cleared


async def put_back(queues: Queues) -> tuple[int, int]:
    """Put valid items back on their queues; return how many, and how many remain."""
    back = 0
    staying: dict[str, Claim] = {}  # by item, so that one that is claimed twice is counted once
    while claims := await queues.claim(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S):
        for claim in claims:
            buried = buried_item(claim)
            if not buried.can_be_put_back:
                staying[claim.item] = claim
                continue
            await queues.put(buried.letter.queue, buried.letter.body)
            with contextlib.suppress(ClaimLost):  # another command has it
                await queues.complete(claim)
            back += 1
    for claim in staying.values():
        with contextlib.suppress(ClaimLost):
            await queues.release(claim)
    return back, len(staying)


async def expire(queues: Queues, now: datetime, *, keep_days: int) -> int:
    """Delete those that were set aside more than `keep_days` ago; return how many.

    A claim is only made if one of the next items is too old, so that the others keep their order.
    """
    before = now - timedelta(days=keep_days)
    expired = 0
    for _round in range(EXPIRED_ROUNDS_A_SWEEP):
        old = {each.id for each in await oldest_items(queues) if each.letter.at < before}
        if not old:
            break
        claims = await queues.claim(DEAD_LETTER_QUEUE, limit=CLAIM_ITEMS_MAX, lease_s=CLAIM_S)
        for claim in claims:
            end = queues.complete if claim.item in old else queues.release
            with contextlib.suppress(ClaimLost):  # a person has it
                await end(claim)
                expired += claim.item in old
    if expired:
        log.warning("dead_letters_expired", items=expired, days=keep_days)
    return expired


def buried_item(claim: Claim) -> BuriedItem:
    """The dead letter of a claim; a claim does not show when a foreign item was put."""
    return BuriedItem(claim.item, parse_dead_letter(claim.body, datetime.fromtimestamp(0, UTC)))
