"""A trace: one thing that a role did, or that went wrong, for people who operate the service.

It names a message by its ref and a person by the first digits of their GUID, never by an address.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, pgettext

FieldValue = str | int | float | bool
PERSON_CHARS = 8  # of a GUID, which as a whole is the credential in the unsubscribe link
_PERSON = re.compile(rf"[0-9a-f]{{{PERSON_CHARS}}}")


class TraceLevel(StrEnum):
    """How serious it is, from everything to failures."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def and_above(self) -> tuple[TraceLevel, ...]:
        levels = tuple(TraceLevel)
        return levels[levels.index(self) :]

    def covers(self, other: TraceLevel) -> bool:
        """Whether a filter for this level also shows the other one."""
        return other in self.and_above


LEVEL_TEXTS: dict[TraceLevel, Text] = {
    TraceLevel.DEBUG: pgettext("level of a trace", "debug"),
    TraceLevel.INFO: pgettext("level of a trace", "info"),
    TraceLevel.WARNING: pgettext("level of a trace", "warning"),
    TraceLevel.ERROR: pgettext("level of a trace", "error"),
}

ROLE_TEXTS: dict[str, Text] = {  # of everything that writes traces
    "web": pgettext("role", "web"),
    "scheduler": pgettext("role", "scheduler"),
    "sender": pgettext("role", "sender"),
    "supervisor": pgettext("role", "supervisor"),
    "drain": pgettext("role", "drain"),
}


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    level: TraceLevel
    role: str  # of the process that wrote it
    instance: str  # host and process id
    event: str  # a fixed name
    words: str  # the sentence in English, for readers of the table and for searching
    ref: str = ""  # of the message it is about
    person: str = ""  # the person it is about
    fields: dict[str, FieldValue] = {}  # from which the sentence is made in any language


def person_id(guid: str) -> str:
    """The part of a GUID that a trace may show."""
    return guid.replace("-", "").lower()[:PERSON_CHARS]


def is_person_id(text: str) -> bool:
    return _PERSON.fullmatch(text) is not None
