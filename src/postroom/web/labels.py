"""Labels for stored values: statuses, roles, rights, events, sizes and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from postroom.domain import (
    access_key,
    audit,
    consent,
    feedback,
    job_status,
    message,
    subscriber,
    suppression,
    trace_entry,
    user,
)
from postroom.domain.due_time import in_zone, known_zone
from postroom.domain.texts import Text, _, ngettext, pgettext

_TABLES: list[Mapping[Any, Text]] = [
    access_key.RIGHT_TEXTS,
    audit.ACTION_TEXTS,
    audit.ACTOR_TEXTS,
    audit.KIND_TEXTS,
    audit.OUTCOME_TEXTS,
    consent.EVENT_TEXTS,
    feedback.CLASS_TEXTS,
    feedback.KIND_TEXTS,
    feedback.REASON_TEXTS,
    job_status.STATUS_TEXTS,
    message.STATUS_TEXTS,
    subscriber.INACTIVE_TEXTS,
    subscriber.SUBSCRIBER_STATUS_TEXTS,
    suppression.REASON_TEXTS,
    suppression.SCOPE_TEXTS,
    trace_entry.LEVEL_TEXTS,
    user.ROLE_TEXTS,
]
# Keyed by type as well: members of different enums are equal if their values are.
_WORDS = {(type(stored), stored): text for table in _TABLES for stored, text in table.items()}
# The states of a message's books, in the order of its progress bar; the first is "sent".
STATES = [
    ("sent", pgettext("deliveries are", "sent")),
    ("sending", pgettext("deliveries are", "sending")),
    ("queued", pgettext("deliveries are", "queued")),
    ("failed", pgettext("deliveries have", "failed")),
    ("held", pgettext("deliveries are", "held for a decision")),
    ("skipped", pgettext("deliveries are", "skipped")),
]
_KIB = 1024
_DAYS = [
    pgettext("day of the week", "Mon"),
    pgettext("day of the week", "Tue"),
    pgettext("day of the week", "Wed"),
    pgettext("day of the week", "Thu"),
    pgettext("day of the week", "Fri"),
    pgettext("day of the week", "Sat"),
    pgettext("day of the week", "Sun"),
]
_MONTHS = [
    pgettext("month", "Jan"),
    pgettext("month", "Feb"),
    pgettext("month", "Mar"),
    pgettext("month", "Apr"),
    pgettext("month", "May"),
    pgettext("month", "Jun"),
    pgettext("month", "Jul"),
    pgettext("month", "Aug"),
    pgettext("month", "Sep"),
    pgettext("month", "Oct"),
    pgettext("month", "Nov"),
    pgettext("month", "Dec"),
]


def word(stored: StrEnum) -> Text:
    return _WORDS[type(stored), stored]


def states(*, is_test: bool) -> list[tuple[str, Text]]:
    """The states of a message's books; emails kept in test mode are not called sent."""
    if not is_test:
        return STATES
    return [("sent", pgettext("deliveries are", "in the test mailbox")), *STATES[1:]]


def size(in_bytes: int) -> Text:
    """The size of a file, with one decimal."""
    if in_bytes < _KIB:
        return ngettext("{count} byte", "{count} bytes", in_bytes)
    if in_bytes < _KIB**2:
        return _("{size:.1f} KiB", size=in_bytes / _KIB)
    if in_bytes < _KIB**3:
        return _("{size:.1f} MiB", size=in_bytes / _KIB**2)
    return _("{size:.1f} GiB", size=in_bytes / _KIB**3)


def time_text(at: datetime, zone: str, now: datetime) -> Text:
    """“Tue 17 Nov, 09:00 (Europe/Berlin)”, with the year if it is not this one."""
    local = in_zone(at, zone)
    values = {
        "day": _DAYS[local.weekday()],
        "number": local.day,
        "month": _MONTHS[local.month - 1],
        "year": local.year,
        "time": local.strftime("%H:%M"),
        "zone": known_zone(zone),
    }
    if local.year == in_zone(now, zone).year:
        return _("{day} {number} {month}, {time} ({zone})", **values)
    return _("{day} {number} {month} {year}, {time} ({zone})", **values)
