"""Checks that are the same on every engine.

An engine first checks its arguments, and exceeded limits raise ValueError. All engines have the
same limits, so that data accepted by one can be moved to any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence
from functools import lru_cache

import msgspec

from postroom.storage import port

_KEY = re.compile(r"""[ -"$-.0->@-\[\]-~]{0,512}""")  # printable ASCII without # / ? \
_KEYS = re.compile(rf"(?:{_KEY.pattern}\n)*")  # of a batch, checked in one step
_PROPERTY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PROPERTY_NAMES_TAKEN = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_BLOB_NAME = re.compile(r"[ -\[\]-~]{0,1023}[ -\-0-\[\]-~]")  # ends in neither dot nor slash
_KEYS_BYTES_MAX = 2 * 2 * port.KEY_CHARS_MAX  # both keys of a row, as UTF-16
_CHANGE_BYTES = 1024  # what a change takes in a batch request besides its properties


def check_row(tables: Container[str], table: str, partition: str, key: str) -> None:
    _check_table(tables, table)
    check_keys(partition, key)


def _check_table(tables: Container[str], table: str) -> None:
    if table not in tables:
        raise ValueError(f"not a table: {table!r}")


def check_keys(*keys: str) -> None:
    """Keys are at most 512 characters of printable ASCII without / \\ # ?, as Azure requires."""
    joined = "\n".join((*keys, ""))
    if joined.count("\n") != len(keys) or not _KEYS.fullmatch(joined):
        wrong = next(key for key in keys if not _KEY.fullmatch(key))
        raise ValueError(f"not a storage key: {wrong!r}")


def encode_batch(
    tables: Container[str], table: str, partition: str, changes: Sequence[port.Change]
) -> list[bytes]:
    """Check a batch, and encode the properties of each change as JSON (empty for a deletion).

    It has 1 to 100 changes in one partition, each key once, and 4 MiB at most.
    """
    _check_table(tables, table)
    if not 1 <= len(changes) <= port.BATCH_CHANGES_MAX:
        raise ValueError(f"a batch has 1 to {port.BATCH_CHANGES_MAX} changes, not {len(changes)}")
    if len({change.key for change in changes}) != len(changes):
        raise ValueError("a batch names each key once")
    check_keys(partition, *(change.key for change in changes))
    encoded = [
        b"" if isinstance(change, port.Delete) else encode_properties(change.properties)
        for change in changes
    ]
    total = sum(map(len, encoded)) + _CHANGE_BYTES * len(encoded)
    if total > port.BATCH_BYTES_MAX:
        raise ValueError(f"a batch has at most {port.BATCH_BYTES_MAX} bytes, not {total}")
    return encoded


def check_expected(change: port.Change, etag: str | None) -> None:
    """Conflict unless the row has the etag that the change expects; None: there is no row."""
    if isinstance(change, port.Upsert):
        return
    if isinstance(change, port.Insert):
        is_expected = etag is None
    else:
        is_expected = etag is not None and change.etag in (None, etag)
    if not is_expected:
        raise port.Conflict(f"{type(change).__name__.lower()}: the row is not as expected")


def matches(properties: port.Properties, where: port.Properties) -> bool:
    """Compare values and their types, so that True is not 1, and 1 is not 1.0."""
    return all(
        name in properties
        and properties[name] == value
        and isinstance(value, type(properties[name]))
        and isinstance(value, bool) == isinstance(properties[name], bool)
        for name, value in where.items()
    )


def encode_properties(properties: port.Properties) -> bytes:
    """Encode properties as JSON; ValueError for a value that some engine cannot store exactly.

    A StrEnum or IntEnum is stored as its plain value.
    """
    _check_names(tuple(properties))
    for value in properties.values():
        if type(value) is not str and type(value) is not bool:
            _check_value(value)
    try:
        encoded = _encode(properties)
    except UnicodeEncodeError as error:
        raise ValueError("a property has an unpaired surrogate and is not valid text") from error
    if len(encoded) > port.PROPERTY_CHARS_MAX:  # JSON is never shorter than the text in it
        _check_sizes(properties)
    return encoded


_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def _check_names(names: tuple[str, ...]) -> None:
    if len(names) > port.PROPERTIES_MAX:
        raise ValueError(f"a row has at most {port.PROPERTIES_MAX} properties, not {len(names)}")
    for name in names:
        if not _PROPERTY_NAME.fullmatch(name) or name in _PROPERTY_NAMES_TAKEN:
            raise ValueError(f"not a property name: {name!r}")


def _check_value(value: port.Value) -> None:
    if type(value) is int and 0 <= value <= port.PROPERTY_INT_MAX:
        return  # the common case
    if not isinstance(value, str | int | float):
        raise ValueError(f"a property is a str, int, float or bool, not {type(value).__name__}")
    if isinstance(value, int) and not -port.PROPERTY_INT_MAX - 1 <= value <= port.PROPERTY_INT_MAX:
        raise ValueError("an int property does not fit in 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a float property is not a finite number")


def _check_sizes(properties: port.Properties) -> None:
    """Sizes as Azure counts them: UTF-16 for text, and a few bytes for every property."""
    total = 4 + _KEYS_BYTES_MAX
    for name, value in properties.items():
        size = len(value.encode("utf-16-le")) if isinstance(value, str) else 8
        if size > 2 * port.PROPERTY_CHARS_MAX:
            raise ValueError(f"property {name} has more than {port.PROPERTY_CHARS_MAX} characters")
        total += 8 + 2 * len(name) + 4 + size
    if total > port.ROW_BYTES_MAX:
        raise ValueError(f"a row has at most {port.ROW_BYTES_MAX} bytes, not {total}")


def check_scan(
    tables: Container[str], table: str, keys: port.Keys, where: port.Properties | None, limit: int
) -> None:
    _check_table(tables, table)
    if not 1 <= limit <= port.SCAN_ROWS_MAX:
        raise ValueError(f"a scan returns 1 to {port.SCAN_ROWS_MAX} rows, not {limit}")
    if isinstance(keys, port.KeysWithin):
        check_keys(keys.partition)
    check_keys(keys.start, keys.stop)
    encode_properties(where or {})


def check_queue(queues: Container[str], queue: str) -> None:
    if queue not in queues:
        raise ValueError(f"not a queue: {queue!r}")


def check_put(queues: Container[str], queue: str, bodies: Sequence[str], delay_s: float) -> None:
    check_queue(queues, queue)
    check_delay(delay_s)
    for body in bodies:
        try:
            size = len(body.encode())
        except UnicodeEncodeError as error:
            raise ValueError("an item has an unpaired surrogate and is not valid text") from error
        if size > port.ITEM_BYTES_MAX:
            raise ValueError(f"an item has at most {port.ITEM_BYTES_MAX} bytes, not {size}")


def check_claim(queues: Container[str], queue: str, limit: int, lease_s: float) -> None:
    check_peek(queues, queue, limit)
    check_lease(lease_s)


def check_peek(queues: Container[str], queue: str, limit: int) -> None:
    check_queue(queues, queue)
    if not 1 <= limit <= port.CLAIM_ITEMS_MAX:
        raise ValueError(f"a call returns 1 to {port.CLAIM_ITEMS_MAX} items, not {limit}")


def check_delay(delay_s: float) -> None:
    if not 0 <= delay_s <= port.ITEM_DELAY_S_MAX:
        raise ValueError(f"a delay is 0 to {port.ITEM_DELAY_S_MAX:.0f} seconds, not {delay_s}")


def check_lease(lease_s: float) -> None:
    if not 0 < lease_s <= port.ITEM_DELAY_S_MAX:
        raise ValueError(f"a lease is more than 0 and at most {port.ITEM_DELAY_S_MAX:.0f} seconds")


def check_blob(name: str, content: bytes = b"") -> None:
    """Names are printable ASCII without a backslash and do not end in a dot or a slash."""
    if not _BLOB_NAME.fullmatch(name):
        raise ValueError(f"not a blob name: {name!r}")
    if len(content) > port.BLOB_BYTES_MAX:
        raise ValueError(f"a blob has at most {port.BLOB_BYTES_MAX} bytes, not {len(content)}")


def continuation(row: port.Row) -> str:
    """Return the continuation of a scan after this row, for engines without one of their own."""
    return f"{row.partition}/{row.key}"


def place_of(after: str, keys: port.Keys) -> tuple[str, str]:
    """Return partition and key of a continuation; a browser may have changed it."""
    partition, slash, key = after.partition("/")
    if not slash or (isinstance(keys, port.KeysWithin) and partition != keys.partition):
        raise ValueError("not a continuation of this scan")
    check_keys(partition, key)
    return partition, key
