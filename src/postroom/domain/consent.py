"""The consent record: what somebody agreed to, when, from where, and what they were shown.

Append-only. It outlives the subscription it speaks of, because that is when it is asked for.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

SOURCE_CHARS_MAX = 300
CLIENT_CHARS_MAX = 45  # an IPv6 address at its longest
SHOWN_CHARS_MAX = 2000  # a page's sentences, not a page


class Event(StrEnum):
    """In the order of a life, by which events of one moment are shown."""

    IMPORTED = "imported"
    ADDED = "added"  # by an administrator
    ASKED = "asked"  # signed up
    MAILED = "mailed"  # the confirmation was handed over
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # an administrator took the confirmation back
    LEFT = "left"
    REMOVED = "removed"  # by an administrator, a bounce or a complaint
    EXPIRED = "expired"  # never confirmed


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    event: Event
    at: datetime
    source: str
    client: str = ""
    shown: str = ""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a change comes from: all of a consent but what happened and when."""

    source: str  # a key, a form, a user, a link
    client: str = ""  # IP address, where there is one
    shown: str = ""  # the text the person read, where there was one

    def consent(self, event: Event, at: datetime) -> Consent:
        return Consent(
            event=event,
            at=at,
            source=self.source[:SOURCE_CHARS_MAX],
            client=self.client[:CLIENT_CHARS_MAX],
            shown=self.shown[:SHOWN_CHARS_MAX],
        )


COMMAND_LINE = Trace(source="command line")
ORDER = {event: place for place, event in enumerate(Event)}


def by_key(key_id: str, client: str) -> Trace:
    """A client's site, known by its access key; the address is the site's."""
    return Trace(source=f"key {key_id}", client=client)


def by_user(name: str, client: str) -> Trace:
    """An administrator on the admin pages."""
    return Trace(source=f"user {name}", client=client)
