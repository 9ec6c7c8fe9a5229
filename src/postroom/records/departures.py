"""Who left since a message was queued, learned by one small range query a slice."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.records import subscribers
from postroom.storage.port import Tables

# Departures are stamped by the clock of the machine that wrote them, and a write may land late:
# look this far back every time. GUIDs make a second look harmless.
SKEW = timedelta(minutes=2)


class Departures:
    """GUIDs of one list that left since a moment; grows with departures, not with the list."""

    def __init__(self, list_name: str, since: datetime) -> None:
        self._list_name = list_name
        self._known_until = since
        self._since = since
        self._guids: set[str] = set()

    async def refresh(self, tables: Tables, now: datetime) -> None:
        async for guid in subscribers.left_since(tables, self._list_name, self._known_until - SKEW):
            self._guids.add(guid)
        self._known_until = max(self._known_until, now)

    def covers(self, since: datetime) -> bool:
        return since >= self._since

    def __contains__(self, guid: str) -> bool:
        return guid in self._guids
