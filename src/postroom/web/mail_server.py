"""Problems with the mail server, as reported by all running senders, for the pages."""

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

TRIED_LATELY = timedelta(minutes=1)  # an attempt may wait long for the server


class SharedTrouble(msgspec.Struct, frozen=True):
    """The same problem of one or more senders."""

    trouble: Trouble  # since the first of them met it, with the next try of any of them
    senders: int
    running: int  # senders in all
    is_tried: bool  # False: there was nothing to try it with

    @property
    def is_everybodys(self) -> bool:
        return self.senders >= self.running


def shared_troubles(alive: Sequence[Lease], now: datetime) -> tuple[SharedTrouble, ...]:
    """One for each kind of problem with the same text, the oldest first."""
    by_words: dict[tuple[TroubleKind, str, str], list[Trouble]] = defaultdict(list)
    for each in leases.mail_troubles_among(alive):
        by_words[each.kind, each.server, each.words].append(each)
    running = leases.senders_among(alive)
    shared = [_shared(same, running, now) for same in by_words.values()]
    return tuple(sorted(shared, key=lambda one: one.trouble.since))


def _shared(same: Sequence[Trouble], running: int, now: datetime) -> SharedTrouble:
    since = min(each.since for each in same)
    next_try_at = min(each.next_try_at for each in same)
    faults = sum(each.faults for each in same)
    trouble = msgspec.structs.replace(same[0], since=since, next_try_at=next_try_at, faults=faults)
    return SharedTrouble(trouble, len(same), running, now < next_try_at + TRIED_LATELY)


async def troubles_now(polls: SharedPolls, context: WebContext) -> tuple[SharedTrouble, ...]:
    """At most a second old: one read, however many pages are watched."""

    async def read() -> tuple[SharedTrouble, ...]:
        now = context.clock.now()
        return shared_troubles(await leases.living(context.storage.tables, now), now)

    return await polls.glance("mail server", read)
