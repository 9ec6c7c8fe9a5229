"""An access key, with which a client's site uses the web service.

The key itself is shown once and stored nowhere; storage has its hash. A plain SHA-256 is enough:
nobody can guess 240 random bits, so a slow hash would not add anything.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput, NotFound
from postroom.domain.texts import _, pgettext

ID_CHARS = 8
NAME_CHARS_MAX = 60
LISTS_MAX = 100  # per key; their names are in one property of its row
_RANDOM_BYTES = 30  # 40 characters
_KEY = re.compile(r"prk_[A-Za-z0-9_-]{40}")  # the prefix lets secret scanners find leaked keys
_ID = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")


class Right(StrEnum):
    SUBSCRIBE = "subscribe"  # sign people up, and nothing else: what a web site needs
    READ = "read"  # see lists, subscribers, messages and outcomes
    WRITE = "write"  # change them; includes reading


RIGHT_TEXTS = {
    Right.SUBSCRIBE: pgettext("the right to", "subscribe"),
    Right.READ: pgettext("the right to", "read"),
    Right.WRITE: pgettext("the right to", "write"),
}

DEFAULT_RIGHTS = (Right.SUBSCRIBE,)


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a key: everything except the key."""

    id: str  # the start of its hash, which people see
    name: str
    created_at: datetime
    lists: tuple[str, ...] = ()  # empty: for every list
    rights: tuple[Right, ...] = DEFAULT_RIGHTS
    last_used_at: datetime | None = None  # to the hour

    def has(self, right: Right) -> bool:
        return right in self.rights or (right is Right.READ and Right.WRITE in self.rights)

    @property
    def is_for_every_list(self) -> bool:
        return not self.lists

    def is_for(self, list_name: str) -> bool:
        return self.is_for_every_list or list_name in self.lists


def new_key() -> str:
    return f"prk_{secrets.token_urlsafe(_RANDOM_BYTES)}"


def is_key(text: str) -> bool:
    """Whether the text has the form of a key; if not, there is no need to look it up."""
    return _KEY.fullmatch(text) is not None


def key_hash(key: str) -> str:
    """Hash the key; looking up a whole hash takes the same time for every key."""
    return hashlib.sha256(key.encode()).hexdigest()


def key_id(hashed: str) -> str:
    return hashed[:ID_CHARS]


def is_key_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_key_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise BadInput(
            _(
                "Enter a name, up to {limit} characters, that says who uses it.",
                limit=NAME_CHARS_MAX,
            )
        )
    return name


class TooManyLists(BadInput):
    """More lists than one access key can be limited to."""


class NoSuchKey(NotFound):
    def __init__(self, id_: str) -> None:
        super().__init__(_("There is no access key {id}.", id=id_[:40]))


def check_key_lists(names: Iterable[str]) -> tuple[str, ...]:
    """Remove repetitions, keeping the order."""
    once = tuple(dict.fromkeys(names))
    if len(once) > LISTS_MAX:
        raise TooManyLists(
            _("An access key can be limited to at most {limit} lists.", limit=LISTS_MAX)
        )
    return once


def check_key_rights(rights: Iterable[Right]) -> tuple[Right, ...]:
    """Remove repetitions and sort; the default if there are none."""
    given = set(rights)
    return tuple(right for right in Right if right in given) or DEFAULT_RIGHTS


def key_values(lists: Iterable[str], rights: Iterable[Right]) -> str:
    """What a key is for, in short, for the audit log."""
    scope = " ".join(lists) or "every list"
    return f"lists: {scope}; rights: {' '.join(rights)}"
