"""Problems with the mail server, as all running senders report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from postroom.domain.trouble import Trouble, TroubleKind
from postroom.records import leases
from postroom.records.leases import Lease
from postroom.web.context import WebContext
from postroom.web.live_updates import SharedPolls

TRIED_LATELY = timedelta(minutes=1)  # an attempt may take long


class SharedTrouble(msgspec.Struct, frozen=True):
    """The same problem of one or more senders."""

    trouble: Trouble  # with the earliest start and the earliest retry
    senders: int
    running: int  # senders in total
    is_tried: bool  # False if there was nothing to send

    @property
    def is_everybodys(self) -> bool:
        return self.senders >= self.running


def shared_troubles(alive: Sequence[Lease], now: datetime) -> tuple[SharedTrouble, ...]:
    """One for each problem with the same text, the oldest first."""
    by_text: dict[tuple[TroubleKind, str, str], list[Trouble]] = defaultdict(list)
    for each in leases.mail_troubles_among(alive):
        by_text[each.kind, each.server, each.words].append(each)
    running = leases.senders_among(alive)
    shared = []
    for same in by_text.values():
        trouble = msgspec.structs.replace(
            same[0],
            since=min(each.since for each in same),
            next_try_at=min(each.next_try_at for each in same),
            faults=sum(each.faults for each in same),
        )
        is_tried = now < trouble.next_try_at + TRIED_LATELY
        shared.append(SharedTrouble(trouble, len(same), running, is_tried))
    return tuple(sorted(shared, key=lambda each: each.trouble.since))


async def troubles_now(polls: SharedPolls, context: WebContext) -> tuple[SharedTrouble, ...]:
    """The current problems, at most a second old, with one read for all viewers."""

    async def read() -> tuple[SharedTrouble, ...]:
        now = context.clock.now()
        return shared_troubles(await leases.living(context.storage.tables, now), now)

    return await polls.cached_read("mail server", read)
