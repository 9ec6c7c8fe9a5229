"""What pages call that which is stored as a word: statuses, standings, roles, rights, events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from postroom.domain import access_key, consent, import_job, message, subscriber, user
from postroom.domain.message import Message
from postroom.domain.texts import Text, _, ngettext, pgettext

_TABLES: list[Mapping[Any, Text]] = [
    access_key.RIGHT_TEXTS,
    consent.EVENT_TEXTS,
    import_job.STATUS_TEXTS,
    message.STATUS_TEXTS,
    subscriber.GONE_TEXTS,
    subscriber.STANDING_TEXTS,
    user.ROLE_TEXTS,
]
# By kind too: members of different kinds are equal if they are stored alike.
_WORDS = {(type(stored), stored): text for table in _TABLES for stored, text in table.items()}
# Of a message's books, in the order of its bar.
STATES = [
    ("sent", pgettext("deliveries are", "sent")),
    ("sending", pgettext("deliveries are", "sending")),
    ("queued", pgettext("deliveries are", "queued")),
    ("failed", pgettext("deliveries have", "failed")),
    ("held", pgettext("deliveries are", "held, to decide")),
    ("skipped", pgettext("deliveries are", "skipped")),
]
_KEPT = pgettext("deliveries are", "kept, not sent")
_KIB = 1024


def word(stored: StrEnum) -> Text:
    return _WORDS[type(stored), stored]


def states(message: Message) -> list[tuple[str, Text]]:
    """Of its books: mails sent in test mode are called what they are."""
    if not message.is_test:
        return STATES
    return [(name, _KEPT if name == "sent" else title) for name, title in STATES]


def size(in_bytes: int) -> Text:
    """Of a file, to one digit after the point."""
    if in_bytes < _KIB:
        return ngettext("{count} byte", "{count} bytes", in_bytes)
    if in_bytes < _KIB**2:
        return _("{size:.1f} KiB", size=in_bytes / _KIB)
    if in_bytes < _KIB**3:
        return _("{size:.1f} MiB", size=in_bytes / _KIB**2)
    return _("{size:.1f} GiB", size=in_bytes / _KIB**3)
