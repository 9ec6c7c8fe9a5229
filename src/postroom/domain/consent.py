"""The consent record: what somebody agreed to, when, from where, and what they were shown.

Append-only. It outlives the subscription it speaks of, because that is when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _, pgettext

SOURCE_CHARS_MAX = 300
CLIENT_CHARS_MAX = 45  # an IPv6 address at its longest
SHOWN_CHARS_MAX = 2000  # a page's sentences, not a page


class Event(StrEnum):
    """In the order of a life, by which events of one moment are shown."""

    IMPORTED = "imported"
    ADDED = "added"  # by an administrator
    ASKED = "asked"  # signed up
    INVITED = "invited"  # asked to confirm, by an administrator or an import
    MAILED = "mailed"  # the confirmation was handed over
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # an administrator took the confirmation back
    LEFT = "left"
    REMOVED = "removed"  # by an administrator, a bounce or a complaint
    EXPIRED = "expired"  # never confirmed


EVENT_TEXTS = {
    Event.IMPORTED: pgettext("a subscriber", "came out of a file"),
    Event.ADDED: pgettext("a subscriber was", "added by an administrator"),
    Event.ASKED: pgettext("a subscriber", "signed up"),
    Event.INVITED: pgettext("a subscriber was", "asked to confirm"),
    Event.MAILED: pgettext("to a subscriber", "confirmation mailed"),
    Event.CONFIRMED: pgettext("a subscriber", "confirmed"),
    Event.UNCONFIRMED: pgettext("a subscriber's", "confirmation taken back"),
    Event.LEFT: pgettext("a subscriber", "left"),
    Event.REMOVED: pgettext("a subscriber was", "removed"),
    Event.EXPIRED: pgettext("a subscriber", "never confirmed, forgotten"),
}


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
ALL_CONFIRMED = "all of them have confirmed"  # the basis of an import that only says --verified
ORDER = {event: place for place, event in enumerate(Event)}


def by_key(key_id: str, client: str) -> Trace:
    """A client's site, known by its access key; the address is the site's."""
    return Trace(source=f"key {key_id}", client=client)


def by_user(name: str, client: str) -> Trace:
    """An administrator on the admin pages."""
    return Trace(source=f"user {name}", client=client)


# --- A source as people read it -----------------------------------------------------------------

_SOURCES = {
    "command line": _("command line"),
    "confirmation mail": _("confirmation mail"),
    "form": pgettext("a subscriber used a", "form"),
    "import": pgettext("a subscriber came by an", "import"),
    "link": pgettext("a subscriber used a", "link"),
    "not confirmed in time": _("not confirmed in time"),
    "one-click": pgettext("a subscriber left by", "one-click"),
}
_NAMING: list[tuple[re.Pattern[str], Callable[..., Text]]] = [
    (re.compile("(?P<by>.+), changed to (?P<address>[^,]+)"), lambda **it: _(
        "{by}, changed to {address}", **it)),
    (re.compile("(?P<by>.+), changed from (?P<address>[^,]+)"), lambda **it: _(
        "{by}, changed from {address}", **it)),
    (re.compile("(?P<by>.+), to the list (?P<name>[^,]+)"), lambda **it: _(
        "{by}, to the list {name}", **it)),
    (re.compile("(?P<by>.+), from the list (?P<name>[^,]+)"), lambda **it: _(
        "{by}, from the list {name}", **it)),
    (re.compile("key (?P<id>[0-9a-f]+)"), lambda **it: _("key {id}", **it)),
    (re.compile("user (?P<name>[^ ,]+)"), lambda **it: _("user {name}", **it)),
    (re.compile(f"import of (?P<file>.+?): {ALL_CONFIRMED}"), lambda **it: _(
        "import of {file}: all of them have confirmed", **it)),
    (re.compile("import of (?P<file>.+?): (?P<basis>.*)"), lambda **it: _(
        "import of {file}: {basis}", **it)),
    (re.compile("import of (?P<file>.+)"), lambda **it: _("import of {file}", **it)),
]  # fmt: skip


def source_text(source: str) -> Text | str:
    """A stored source, which is what the texts above say in English; any other as it stands."""
    for pattern, text in _NAMING:
        if found := pattern.fullmatch(source):
            values: dict[str, object] = dict(found.groupdict())
            if "by" in values:
                values["by"] = source_text(found["by"])
            return text(**values)
    return _SOURCES.get(source, source)
