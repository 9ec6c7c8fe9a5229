"""What webhooks and the bounce mailbox have received, as rows, for the pages that show it.

    feedback / webhook / <provider>             how many posts and events, and the last refusal
    feedback / webhook / mailbox                the same for the bounce mailbox: events, mails that
                                                are kept for people, failed attempts to read it
    feedback / webhook / notice:<hash>          a topic of Amazon SNS that wants to post to us

Counts are a little inexact: a process writes them every few seconds and may die before that.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from postroom.feedback.webhooks.post import SubscriptionNotice
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import (
    all_rows,
    find_row,
    from_properties,
    to_properties,
    write_row,
)
from postroom.storage.port import KeysWithin, Tables

TABLE = "feedback"
_PARTITION = "webhook"
_NOTICE = "notice:"
_END = "~"
NOTICES_MAX = 20  # anybody with a topic of the right name could send more


class WebhookCounts(msgspec.Struct, frozen=True):
    """What one provider, or the bounce mailbox, has delivered since the installation began."""

    events: int = 0
    unknown: int = 0  # ignored or unreadable
    refused: int = 0  # posts: forged, too old, too large
    last_at: datetime | None = None  # the last post that was accepted
    refused_at: datetime | None = None
    refusal: str = ""  # why the last one was refused

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to read the mailbox failed."""
        if self.refused_at is None:
            return False
        return self.last_at is None or self.refused_at >= self.last_at

    def plus(self, more: WebhookCounts) -> WebhookCounts:
        return WebhookCounts(
            self.events + more.events,
            self.unknown + more.unknown,
            self.refused + more.refused,
            more.last_at or self.last_at,
            more.refused_at or self.refused_at,
            more.refusal or self.refusal,
        )


async def find_counts(tables: Tables, provider: str) -> WebhookCounts:
    found = await find_row(tables, TABLE, _PARTITION, provider, WebhookCounts)
    return found.value if found else WebhookCounts()


async def add_counts(tables: Tables, provider: str, more: WebhookCounts) -> None:
    async def add() -> None:
        known = await find_row(tables, TABLE, _PARTITION, provider, WebhookCounts)
        total = (known.value if known else WebhookCounts()).plus(more)
        etag = known.etag if known else None
        await write_row(tables, TABLE, _PARTITION, provider, to_properties(total), etag)

    await retry_on_conflict(add)


async def put_notice(tables: Tables, notice: SubscriptionNotice) -> None:
    """Keep a topic's newest notice until an owner confirms or discards it."""
    name = _NOTICE + hashlib.sha256(notice.topic.encode()).hexdigest()[:32]
    if notice.is_over:
        await tables.delete(TABLE, _PARTITION, name)
    elif len(await notices(tables)) < NOTICES_MAX:
        await tables.upsert(TABLE, _PARTITION, name, to_properties(notice))


async def notices(tables: Tables) -> dict[str, SubscriptionNotice]:
    """The notices that wait for an owner, by name."""
    keys = KeysWithin(_PARTITION, _NOTICE, _NOTICE + _END)
    return {
        row.key.removeprefix(_NOTICE): from_properties(row.properties, SubscriptionNotice)
        async for row in all_rows(tables, TABLE, keys)
    }


async def forget_notice(tables: Tables, name: str) -> None:
    await tables.delete(TABLE, _PARTITION, _NOTICE + name)
