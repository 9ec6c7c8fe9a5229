"""Delete or move one chosen item of a queue.

Only a claim can delete an item, and engines claim the next items, not a chosen one. So the items
before it are claimed with it and released at once. For them this counts as one more claim, and
they move behind items that were not touched; so this is for people, not for roles.

Dies half-way: what was claimed reappears after CLAIM_S. A move puts the item on its new queue
before it is deleted from the old one, so it may be on both, but never on neither.
"""

from __future__ import annotations

import contextlib

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, ClaimLost, Queues

CLAIM_S = 30.0


async def claim_one(queues: Queues, queue: str, id_: str) -> Claim:
    """Claim an item that `peek` has shown; NotFound if it is no longer among the next items."""
    ids = [item.id for item in await queues.peek(queue, limit=CLAIM_ITEMS_MAX)]
    claims: list[Claim] = []
    if id_ in ids:
        claims = await queues.claim(queue, limit=ids.index(id_) + 1, lease_s=CLAIM_S)
    for claim in claims:
        if claim.item != id_:
            with contextlib.suppress(ClaimLost):
                await queues.release(claim)
    found = [claim for claim in claims if claim.item == id_]
    if not found:
        raise NotFound(
            _("This item is no longer waiting: it was processed, or is being processed.")
        )
    return found[0]


async def delete_one(queues: Queues, queue: str, id_: str) -> Claim:
    """Delete the item; return what it was."""
    claim = await claim_one(queues, queue, id_)
    await queues.complete(claim)
    return claim


async def move_one(queues: Queues, queue: str, id_: str, to: str, body: str | None = None) -> Claim:
    """Put the item, or `body` instead, on another queue, then delete it here."""
    claim = await claim_one(queues, queue, id_)
    await queues.put(to, claim.body if body is None else body)
    await queues.complete(claim)
    return claim
