"""The audience on the overview: confirmed subscriptions of all lists, and how they grew lately."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from postroom.records import counts, lists
from postroom.storage.port import Tables

LISTS_COUNTED_MAX = 50  # two short reads each
DAYS = 30
FRESH_FOR = timedelta(seconds=30)  # the overview is live, and these numbers change slowly


class Audience(msgspec.Struct, frozen=True):
    """Somebody on two lists has two subscriptions."""

    confirmed: int = 0
    joined: int = 0  # in the last DAYS days
    left: int = 0
    lists_counted: int = 0  # 0: all lists


class AudienceCache:
    """The audience as this process last counted it."""

    def __init__(self) -> None:
        self._audience = Audience()
        self._counted_at: datetime | None = None

    async def read(self, tables: Tables, now: datetime) -> Audience:
        if not self.is_fresh(now):
            return await self.count(tables, now)
        return self._audience

    async def count(self, tables: Tables, now: datetime) -> Audience:
        """Count now: somebody who added a subscriber and looks here expects to see it."""
        self._audience = await count_audience(tables, now)
        self._counted_at = now
        return self._audience

    def is_fresh(self, now: datetime) -> bool:
        """Also False if it was counted in the future, because then the clock was set back."""
        counted_at = self._counted_at
        return counted_at is not None and counted_at <= now < counted_at + FRESH_FOR


async def count_audience(tables: Tables, now: datetime) -> Audience:
    found, has_more = await lists.page(tables, limit=LISTS_COUNTED_MAX)
    confirmed = joined = left = 0
    for each in found:
        confirmed += (await counts.read(tables, each.name)).verified
        for _day, came, went in await counts.growth(tables, each.name, now, days=DAYS):
            joined += came
            left += went
    return Audience(confirmed, joined, left, LISTS_COUNTED_MAX if has_more else 0)
