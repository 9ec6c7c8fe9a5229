"""Departures since a message was queued, and whether its list exists; one query per slice."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.domain.delivery import Delivery
from postroom.domain.mailing_list import MailingList
from postroom.records import subscribers
from postroom.storage.port import Tables

# Departures are a log (subscribers.py): no row has a much earlier time than the rows before it or
# the start of a message. So the first query begins shortly before the message, and later ones
# shortly before the newest row seen, or before now if that row is ahead of our clock. Reading a row
# twice is harmless: every subscription has its own GUID.
FIRST_SKEW = timedelta(hours=1)
SKEW = subscribers.LOG_SKEW
LISTS_WATCHED_MAX = 100  # in memory; the departures of other lists are read again


class Departures:
    """The departures from one list since a time; its size depends on them, not on the list."""

    def __init__(self, list_name: str, since: datetime) -> None:
        self._list_name = list_name
        self._since = since
        self._read_from = since - FIRST_SKEW
        self._left: set[tuple[str, str]] = set()  # (GUID, address key)

    async def refresh(self, tables: Tables, now: datetime) -> MailingList | None:
        """Read the departures since the last query; return the list, or None if it was deleted."""
        left = await subscribers.left_since(tables, self._list_name, self._read_from)
        for left_at, guid_and_key in left.departures:
            self._left.add(guid_and_key)
            at = min(left_at, now) - SKEW  # a clock that is ahead hides no departure
            self._read_from = max(self._read_from, at)
        return left.mailing_list

    def covers(self, since: datetime) -> bool:
        return since >= self._since

    def __contains__(self, delivery: Delivery) -> bool:
        return (delivery.guid, delivery.key) in self._left


class DepartureCache:
    """The departures of the lists a sender mails to."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, datetime], Departures] = {}

    def of(self, list_name: str, created_at: datetime, since: datetime) -> Departures:
        """Return the departures since a time; a list that is created again has its own log."""
        the_list = (list_name, created_at)
        known = self._known.get(the_list)
        if known is None or not known.covers(since):
            known = self._known[the_list] = Departures(list_name, since)
            if len(self._known) > LISTS_WATCHED_MAX:
                del self._known[next(iter(self._known))]
        return known
