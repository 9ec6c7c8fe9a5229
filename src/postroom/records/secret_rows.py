"""Which rows have secrets: the list that pages, commands and exports use for masking.

Passwords, access keys and the tokens of sessions and invitations are stored as hashes; the hashes
are masked too, because anyone who has one can test guesses against it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from postroom.records.audit import TABLE as AUDIT_TABLE
from postroom.storage.port import Row, Value

MASK = "•••"
KEY_CHARS_SHOWN = 8  # of a hash that is a key: enough to tell rows apart; the id of an access key
# Whatever the row: a property with one of these in its name is masked.
_SECRET_NAMES = ("secret", "password", "token", "hash")


class SecretRows(msgspec.Struct, frozen=True):
    """The rows of one partition that have a secret."""

    table: str
    partition: str
    properties: frozenset[str] = frozenset()
    all_properties: bool = False
    is_key_secret: bool = False
    is_locked: bool = False  # can be neither changed nor deleted


SECRET_ROWS = (
    SecretRows("service", "secret", all_properties=True, is_locked=True),  # of the installation
    SecretRows("service", "key", is_key_secret=True),  # hash of an access key
    SecretRows("service", "user", frozenset({"PasswordHash"})),
    SecretRows("service", "session", frozenset({"Id"}), is_key_secret=True),  # hash of its token
    SecretRows("service", "invitation", is_key_secret=True),  # hash of its token
    SecretRows("feedback", "webhook", frozenset({"Url"})),  # confirms a topic of Amazon SNS
)
_BY_PLACE = {(each.table, each.partition): each for each in SECRET_ROWS}
_NONE = SecretRows("", "")


def is_secret(table: str, partition: str, name: str) -> bool:
    """Whether a property is masked and cannot be changed."""
    if name == "Format":
        return False
    known = _BY_PLACE.get((table, partition), _NONE)
    is_named = any(part in name.lower() for part in _SECRET_NAMES)
    return known.all_properties or name in known.properties or is_named


def secret_names(table: str, row: Row) -> list[str]:
    return [name for name in row.properties if is_secret(table, row.partition, name)]


def masked_properties(table: str, row: Row) -> dict[str, Value]:
    hidden = secret_names(table, row)
    return {name: MASK if name in hidden else value for name, value in row.properties.items()}


def masked_key(table: str, partition: str, key: str) -> str:
    known = _BY_PLACE.get((table, partition), _NONE)
    return key[:KEY_CHARS_SHOWN] + MASK if known.is_key_secret else key


def row_data(table: str, row: Row) -> Mapping[str, object]:
    """A row as exports and commands show it."""
    return {
        "partition": row.partition,
        "key": masked_key(table, row.partition, row.key),
        "etag": row.etag,
        "properties": masked_properties(table, row),
    }


def is_locked(table: str, partition: str) -> bool:
    """Whether nobody may change or delete the row: the audit log, the installation's secret."""
    return table == AUDIT_TABLE or _BY_PLACE.get((table, partition), _NONE).is_locked
