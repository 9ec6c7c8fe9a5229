"""Checks that are the same on every engine.

An engine first checks its arguments, and exceeded limits raise ValueError. All engines have the
same limits, so that data accepted by one can be moved to any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from postroom.storage import port

_KEY = re.compile(r"""[ -"$-.0->@-\[\]-~]{0,512}""")  # printable ASCII without # / ? \
_KEY_BYTES = bytes(code for code in range(128) if _KEY.fullmatch(chr(code)))
_PROPERTY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PROPERTY_NAMES_TAKEN = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_BLOB_NAME = re.compile(r"[ -\[\]-~]{0,1023}[ -\-0-\[\]-~]")  # ends in neither dot nor slash
DELETIONS = (port.Delete, port.DeleteRange)
_KEYS_BYTES_MAX = 2 * 2 * port.KEY_CHARS_MAX  # both keys of a row, as UTF-16
_CHANGE_BYTES = 1024  # what a change takes in a batch request besides its properties


def check_row(tables: Container[str], table: str, partition: str, key: str) -> None:
    _check_table(tables, table)
    check_keys(partition, key)


def _check_table(tables: Container[str], table: str) -> None:
    if table not in tables:
        raise ValueError(f"not a table: {table!r}")


def check_keys(*keys: str) -> None:
    """Keys are at most 512 characters of printable ASCII without / \\ # ?, as Azure requires.

    Those of a batch are checked in one step: all that is left of them is what joins them.
    """
    left = "\n".join(keys).encode(errors="surrogatepass").translate(None, _KEY_BYTES)
    if left != b"\n" * (len(keys) - 1) or max(map(len, keys)) > port.KEY_CHARS_MAX:
        wrong = next(key for key in keys if not _KEY.fullmatch(key))
        raise ValueError(f"not a storage key: {wrong!r}")


def encode_batch(
    tables: Container[str], table: str, partition: str, changes: Sequence[port.Change]
) -> list[str]:
    """Check a batch, and encode the content of each change but deletions as JSON, in order.

    It has 1 to 100 changes in one partition, each key once, and 4 MiB at most.
    """
    _check_table(tables, table)
    written = [change for change in changes if not isinstance(change, DELETIONS)]
    keys = [change.key for change in written]
    if len(written) < len(changes):
        for change in changes:
            if isinstance(change, DELETIONS):
                keys += keys_of(change)
    if not 1 <= len(keys) <= port.BATCH_CHANGES_MAX:
        raise ValueError(f"a batch has 1 to {port.BATCH_CHANGES_MAX} changes, not {len(keys)}")
    if len(set(keys)) != len(keys):
        raise ValueError("a batch names each key once")
    check_keys(partition, *keys)
    lines = _encode_contents([change.properties for change in written]) if written else b""
    total = len(lines) - len(written) + _CHANGE_BYTES * len(keys)
    if total > port.BATCH_BYTES_MAX:
        raise ValueError(f"a batch has at most {port.BATCH_BYTES_MAX} bytes, not {total}")
    return lines.decode().split("\n")[:-1]


def keys_of(change: port.Change) -> tuple[str, ...]:
    if not isinstance(change, port.DeleteRange):
        return (change.key,)
    if not change.keys or min(change.keys) < change.start or max(change.keys) >= change.stop:
        raise ValueError("a range names the keys in it, one or more")
    return change.keys


def _encode_contents(contents: Sequence[port.Content]) -> bytes:
    """Encode rows as lines of JSON, all of them by one call. JSON has no line ends of its own."""
    rows = [content for content in contents if isinstance(content, port.FlatRow)]
    for kind in set(map(type, rows)):
        _check_numbers(kind, [row for row in rows if type(row) is kind])
    if len(rows) < len(contents):
        for content in contents:
            if not isinstance(content, port.FlatRow):
                _check_properties(content)
    try:
        lines = _encode_lines(contents)
    except UnicodeEncodeError as error:
        raise ValueError("a property has an unpaired surrogate and is not valid text") from error
    # JSON is never shorter than its text; where all rows together are short, each of them is.
    if len(lines) > port.PROPERTY_CHARS_MAX:
        for content, line in zip(contents, lines.splitlines(), strict=True):
            if len(line) > port.PROPERTY_CHARS_MAX:
                _check_sizes(as_properties(content))
    return lines


def as_properties(content: port.Content) -> port.Properties:
    if not isinstance(content, port.FlatRow):
        return content
    properties: dict[str, port.Value] = msgspec.to_builtins(content)
    return properties


def check_expected(
    change: port.Insert | port.Upsert | port.Replace | port.Delete, etag: str | None
) -> None:
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
    return _encode_contents([properties])[:-1]


_encode_lines = msgspec.json.Encoder().encode_lines
_VALUE_TYPES = (str, int, float, bool)


@lru_cache(maxsize=64)
def _numbers_of(kind: type[port.FlatRow]) -> tuple[str, ...]:
    """Check a kind of row once, and return its fields whose values have to be checked."""
    fields = msgspec.structs.fields(kind)
    _check_names(tuple(field.encode_name for field in fields))
    for field in fields:
        if field.type not in _VALUE_TYPES:
            raise ValueError(f"{kind.__name__}.{field.name} is not a str, int, float or bool")
    return tuple(field.name for field in fields if field.type in (int, float))


def _check_numbers(kind: type[port.FlatRow], rows: Sequence[port.FlatRow]) -> None:
    for name in _numbers_of(kind):
        numbers = [getattr(row, name) for row in rows]
        if set(map(type, numbers)) != {int} or max(map(abs, numbers)) > port.PROPERTY_INT_MAX:
            for number in numbers:
                _check_value(number)


def _check_properties(properties: port.Properties) -> None:
    _check_names(tuple(properties))
    for value in properties.values():
        if type(value) is not str and type(value) is not bool:
            _check_value(value)


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


def continuation(row: port.Row | port.TypedRow[Any]) -> str:
    """Return the continuation of a scan after this row, for engines without one of their own."""
    return f"{row.partition}/{row.key}"


def place_of(after: str, keys: port.Keys) -> tuple[str, str]:
    """Return partition and key of a continuation; a browser may have changed it."""
    partition, slash, key = after.partition("/")
    if not slash or (isinstance(keys, port.KeysWithin) and partition != keys.partition):
        raise ValueError("not a continuation of this scan")
    check_keys(partition, key)
    return partition, key
