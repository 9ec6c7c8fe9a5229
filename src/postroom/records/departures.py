"""Who left since a message was queued, learned by one small range query a slice."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.records import subscribers
from postroom.storage.port import Tables

# Departures are stamped by the clock of the machine that wrote them, and a write may land late.
# So the first look goes well back before the message, and every later one goes back from the
# newest stamp seen, or from now if that stamp is ahead of us. GUIDs make a second look harmless.
FIRST_SKEW = timedelta(hours=1)
SKEW = timedelta(minutes=10)


class Departures:
    """GUIDs of one list that left since a moment; grows with departures, not with the list."""

    def __init__(self, list_name: str, since: datetime) -> None:
        self._list_name = list_name
        self._since = since
        self._look_from = since - FIRST_SKEW
        self._guids: set[str] = set()

    async def refresh(self, tables: Tables, now: datetime) -> None:
        newest = self._look_from
        async for left_at, guid in subscribers.left_since(tables, self._list_name, self._look_from):
            self._guids.add(guid)
            newest = max(newest, min(left_at, now) - SKEW)  # a clock ahead hides nobody
        self._look_from = newest

    def covers(self, since: datetime) -> bool:
        return since >= self._since

    def __contains__(self, guid: str) -> bool:
        return guid in self._guids
