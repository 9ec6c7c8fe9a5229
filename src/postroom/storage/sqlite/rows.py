"""The statements behind SqliteTables, each run inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import apsw
import msgspec

from postroom.storage import port
from postroom.storage.validation import DELETIONS, check_expected, continuation

RowT = TypeVar("RowT", bound=port.Row | port.TypedRow[Any])
SCAN_EXAMINED_MAX = 10_000  # a filter that matches little gives short pages, not long waits

_encode = msgspec.json.Encoder().encode
_decode_properties = msgspec.json.Decoder(dict[str, port.Value]).decode
_decode_contents = msgspec.json.Decoder(list[dict[str, port.Value]]).decode
_decode_etags = msgspec.json.Decoder(dict[str, int]).decode

# A whole page as two texts: SQLite returns them in one step, and all properties are decoded at
# once. No partition or key has the slash that joins them.
_PAGE = "group_concat(partition || '/' || key || '/' || etag, '/'), group_concat(properties)"


def read_row(table: str, partition: str, key: str, connection: apsw.Connection) -> port.Row | None:
    found = connection.execute(
        f"SELECT etag, properties FROM {table} WHERE partition = ? AND key = ?", (partition, key)
    ).get
    if found is None:
        return None
    etag, properties = found
    return port.Row(partition, key, _decode_properties(properties), str(etag))


def apply_changes(
    table: str,
    partition: str,
    changes: Sequence[port.Change],
    contents: Sequence[str],
    etag: int,
    connection: apsw.Connection,
) -> None:
    """Apply all changes or none: conflicts are checked before the first write.

    Insertions alone need no check: a statement that hits an existing row undoes itself. Nor do
    upserts, which expect nothing, or a single replacement, which compares the etag itself.
    """
    if len(changes) == 1 and isinstance(changes[0], port.Replace):
        _replace(table, partition, changes[0], contents[0], etag, connection)
        return
    kinds = set(map(type, changes))
    if not kinds <= {port.Upsert} and kinds != {port.Insert}:
        _check_expected(table, partition, changes, connection)
    verb = "INSERT" if kinds == {port.Insert} else "REPLACE"
    if contents:
        written = [change.key for change in changes if not isinstance(change, DELETIONS)]
        pairs = chain.from_iterable(zip(written, contents, strict=True))
        try:
            connection.execute(
                _write_statement(verb, table, len(contents)), (partition, etag, *pairs)
            )
        except apsw.ConstraintError as error:
            raise port.Conflict("insert: a row exists already") from error
    if not kinds.isdisjoint(DELETIONS):
        _delete(table, partition, changes, connection)


def _replace(
    table: str,
    partition: str,
    change: port.Replace,
    content: str,
    etag: int,
    connection: apsw.Connection,
) -> None:
    connection.execute(
        f"UPDATE {table} SET etag = ?, properties = ? "
        "WHERE partition = ? AND key = ? AND CAST(etag AS TEXT) = ?",
        (etag, content, partition, change.key, change.etag),
    )
    if not connection.changes():
        raise port.Conflict("replace: the row is not as expected")


def _delete(
    table: str, partition: str, changes: Sequence[port.Change], connection: apsw.Connection
) -> None:
    keys = [change.key for change in changes if isinstance(change, port.Delete)]
    if keys:
        connection.execute(
            f"DELETE FROM {table} WHERE partition = ? AND key IN (SELECT value FROM json_each(?))",
            (partition, _encode(keys).decode()),
        )
    for change in changes:
        if isinstance(change, port.DeleteRange):  # one seek for a hundred rows
            connection.execute(
                f"DELETE FROM {table} WHERE partition = ? AND key >= ? AND key < ?",
                (partition, change.start, change.stop),
            )


def _check_expected(
    table: str, partition: str, changes: Sequence[port.Change], connection: apsw.Connection
) -> None:
    guarded: list[port.Insert | port.Replace | port.Delete] = []
    for change in changes:
        if isinstance(change, port.DeleteRange):
            _check_range(table, partition, change, connection)
        elif not isinstance(change, port.Upsert):
            guarded.append(change)
    found = connection.execute(
        f"SELECT json_group_object(key, etag) FROM {table} "
        "WHERE partition = ? AND key IN (SELECT value FROM json_each(?))",
        (partition, _encode([change.key for change in guarded]).decode()),
    ).get
    etags = _decode_etags(found)
    for change in guarded:
        etag = etags.get(change.key)
        check_expected(change, None if etag is None else str(etag))


def _check_range(
    table: str, partition: str, change: port.DeleteRange, connection: apsw.Connection
) -> None:
    """Conflict unless exactly the named rows are there. No key has the slash that joins them."""
    found = connection.execute(
        "SELECT group_concat(key, '/') FROM (SELECT key "
        f"FROM {table} WHERE partition = ? AND key >= ? AND key < ? ORDER BY key)",
        (partition, change.start, change.stop),
    ).get
    if found != "/".join(sorted(change.keys)):
        raise port.Conflict("the rows of the range are not as expected")


@lru_cache(maxsize=1024)
def _write_statement(verb: str, table: str, rows: int) -> str:
    """One statement for all rows: faster than one per row, and it fails as a whole."""
    values = ", ".join(f"(?1, ?{2 * row + 3}, ?2, ?{2 * row + 4})" for row in range(rows))
    return f"{verb} INTO {table} (partition, key, etag, properties) VALUES {values}"


class RowsRead(NamedTuple, Generic[RowT]):
    """A page, of rows of any type."""

    rows: list[RowT]
    next: str | None


class RowReader(NamedTuple, Generic[RowT]):
    """How the texts of a page become rows of one type."""

    decode: Callable[[str], list[Any]]  # the properties of all rows
    row: Callable[[str, str, Any, str], RowT]

    def rows_of(self, found: tuple[str | None, str | None] | None) -> list[RowT]:
        places, contents = found or (None, None)
        if places is None:
            return []
        names = places.split("/")
        properties = self.decode(f"[{contents}]")
        if len(names) != 3 * len(properties):  # rows would get those of others
            raise port.Unreadable("A row has a key that is not valid.")
        return list(map(self.row, names[::3], names[1::3], properties, names[2::3]))


UNTYPED = RowReader(_decode_contents, port.Row)


@lru_cache(maxsize=64)
def reader_of(kind: type[port.KindT]) -> RowReader[port.TypedRow[port.KindT]]:
    decode = msgspec.json.Decoder(list[kind]).decode  # type: ignore[valid-type]
    return RowReader(decode, port.TypedRow)


def read_page(
    table: str,
    keys: port.Keys,
    where: port.Properties,
    limit: int,
    behind: tuple[str, str] | None,
    reader: RowReader[RowT],
    connection: apsw.Connection,
) -> RowsRead[RowT]:
    """Read a page, shorter than `limit` if its rows are too large for one result."""
    span, values = _span(keys, behind)
    in_order = f"FROM {table} WHERE {span} ORDER BY partition, key"
    try:
        if where:
            return _read_matching(in_order, values, where, limit, reader, connection)
        found = connection.execute(
            f"SELECT {_PAGE} FROM (SELECT * {in_order} LIMIT :rows)",
            values | {"rows": limit + 1},
        ).get
    except apsw.TooBigError:
        return read_page(table, keys, where, limit // 2, behind, reader, connection)
    rows = reader.rows_of(found)
    if len(rows) <= limit:
        return RowsRead(rows, None)
    return RowsRead(rows[:limit], continuation(rows[limit - 1]))


def _read_matching(
    in_order: str,
    values: dict[str, str | int],
    where: port.Properties,
    limit: int,
    reader: RowReader[RowT],
    connection: apsw.Connection,
) -> RowsRead[RowT]:
    """Compare properties as JSON text, so that True is not 1, and 1 is not 1.0.

    They are not parsed: `"name":value` can be nowhere else in the text, because a quotation mark
    inside a string has a backslash in front, and only the name of a property has a colon behind.
    """
    has = "(instr(properties, {0} || ',') OR instr(properties, {0} || '}}'))"
    tests = " AND ".join(has.format(f":where_{name}") for name in where)
    conditions = {
        f"where_{name}": f'"{name}":{_encode(value).decode()}' for name, value in where.items()
    }
    with connection:  # both statements must see the same rows
        found = connection.execute(
            f"SELECT {_PAGE} FROM (SELECT * FROM "
            f"(SELECT * {in_order} LIMIT {SCAN_EXAMINED_MAX}) WHERE {tests} LIMIT :rows)",
            values | conditions | {"rows": limit},
        ).get
        rows = reader.rows_of(found)
        if len(rows) == limit:
            return RowsRead(rows, continuation(rows[-1]))
        last = connection.execute(
            f"SELECT partition, key {in_order} LIMIT 1 OFFSET {SCAN_EXAMINED_MAX - 1}", values
        ).get
    return RowsRead(rows, last and "/".join(last))


def _span(keys: port.Keys, behind: tuple[str, str] | None) -> tuple[str, dict[str, str | int]]:
    """Return the condition on partition and key, and its parameters.

    It has one lower bound, the higher of the two: given both, SQLite may seek to the lower one.
    """
    if isinstance(keys, port.KeysWithin):
        low = (keys.partition, keys.start)
        stop = " AND key < :stop"
        span = "partition = :partition AND key {} :key"
    else:
        low = (keys.start, "")
        stop = " AND partition < :stop"
        span = "(partition, key) {} (:partition, :key)"
    is_behind = behind is not None and behind >= low
    if behind is not None:
        low = max(low, behind)
    span = span.format(">" if is_behind else ">=")
    values: dict[str, str | int] = {"partition": low[0], "key": low[1], "stop": keys.stop}
    return span + (stop if keys.stop else ""), values
