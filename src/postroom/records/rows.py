"""Convert structs to properties and back, under the names listed in docs/tables.md.

A property has the name it has in the described system, or else that of its field in PascalCase.
Every row has a format number, except deliveries, which share that of their message.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import structlog

from postroom.records.stored import Stored
from postroom.storage.port import (
    SCAN_ROWS_MAX,
    SHORT_SCAN_ROWS,
    Content,
    Delete,
    Keys,
    KeysWithin,
    KindT,
    Properties,
    Row,
    Tables,
    TypedRow,
    Unreadable,
    Value,
)

__all__ = ["Unreadable"]

log = structlog.get_logger("records")
FORMAT = 1  # readers accept this format and the one before it
_OLDEST = FORMAT - 1
FORMAT_ONLY: Properties = {"Format": FORMAT}  # of a row whose key says everything

DESCRIBED = {  # by field, in every kind of row
    "address": "EmailAddress",
    "due_at": "ScheduledDate",
    "guid": "SubscriberGUID",
    "ref": "MessageRef",
    "sender": "FromEmailAddress",
    "subject": "SubjectLine",
}
_OWN = {  # fields whose own name would be unclear as a property
    "at": "Time",
    "first": "FirstAddressKey",
    "key": "AddressKey",
    "last": "LastAddressKey",
    "lasts_s": "LastsSeconds",
    "mails_per_s": "MailsPerSecond",
    "per_s": "PerSecond",
    "words": "Details",
}
_OF_ONE_KIND = {
    "MailingList.name": "ListName",
    "Migration.key": "Key",
    "Migration.status": "Standing",
    "StoredMail.key": "Key",
    "StoredMail.recipient": "EnvelopeRecipient",
    "StoredMail.sender": "EnvelopeSender",
    "User.password": "PasswordHash",
}

StructT = TypeVar("StructT", bound=msgspec.Struct)


class OtherFormat(Unreadable):
    """A row was written by another version, which can read it."""


class _Layout(msgspec.Struct, frozen=True):
    names: dict[str, str]  # property by field
    fields: dict[str, str]  # field by property
    nested: frozenset[str]  # fields stored as JSON in one property, because properties are flat
    optional: frozenset[str]  # fields left out while they are empty, zero or false, their default


@functools.cache
def _layout(kind: type[msgspec.Struct]) -> _Layout:
    hints = get_type_hints(kind)
    # The etag of a row is not one of its properties.
    names = {field: _property_name(kind, field) for field in hints if field != "etag"}
    fields = {name: field for field, name in names.items()}
    nested = (name for name, hint in hints.items() if any(map(_is_nested, (hint, *get_args(hint)))))
    optional = (
        info.name
        for info in msgspec.structs.fields(kind)
        if info.default_factory is dict or not (info.default is msgspec.NODEFAULT or info.default)
    )
    return _Layout(names, fields, frozenset(nested), frozenset(optional))


def _property_name(kind: type[msgspec.Struct], field: str) -> str:
    known = _OF_ONE_KIND.get(f"{kind.__name__}.{field}") or DESCRIBED.get(field) or _OWN.get(field)
    return known or "".join(word.capitalize() for word in field.split("_"))


def _is_nested(hint: Any) -> bool:
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    return is_struct or get_origin(hint) is dict


def property_names(kind: type[msgspec.Struct]) -> dict[str, str]:
    return _layout(kind).names


def to_properties(struct: msgspec.Struct) -> dict[str, Value]:
    layout = _layout(type(struct))
    names = layout.names
    nested = layout.nested
    optional = layout.optional
    flat: dict[str, Value] = {"Format": FORMAT}
    builtins: dict[str, Any] = msgspec.to_builtins(struct, str_keys=True)
    for field, value in builtins.items():
        if (value or (field not in optional and value is not None)) and field in names:
            flat[names[field]] = msgspec.json.encode(value).decode() if field in nested else value
    return flat


def from_properties(properties: Properties, kind: type[StructT]) -> StructT:
    check_format(properties)
    layout = _layout(kind)
    fields = layout.fields
    found: dict[str, Any] = {
        fields[name]: properties[name] for name in properties if name in fields
    }
    try:
        for field in layout.nested & found.keys():
            if isinstance(text := found[field], str):
                found[field] = msgspec.json.decode(text)
        return msgspec.convert(found, kind, strict=False)
    except msgspec.DecodeError as error:  # incomplete JSON, or another kind of row
        raise Unreadable(f"A row is not a complete {kind.__name__}: {error}.") from error


def stored(row: Row, kind: type[StructT]) -> Stored[StructT]:
    return Stored(from_properties(row.properties, kind), row.etag)


async def find_row(
    tables: Tables, table: str, partition: str, key: str, kind: type[StructT]
) -> Stored[StructT] | None:
    row = await tables.get(table, partition, key)
    return stored(row, kind) if row else None


async def write_row(
    tables: Tables, table: str, partition: str, key: str, properties: Content, etag: str | None
) -> str:
    """Insert the row if `etag` is None, else replace it; the new etag, or Conflict."""
    if etag is None:
        return await tables.insert(table, partition, key, properties)
    return await tables.replace(table, partition, key, properties, etag)


async def delete_partition(tables: Tables, table: str, partition: str) -> None:
    """Delete a partition of at most 100 rows in one write."""
    keys = [row.key async for row in all_rows(tables, table, KeysWithin(partition))]
    if keys:
        await tables.batch(table, partition, [Delete(key) for key in keys])


def check_format(properties: Properties) -> None:
    number = properties.get("Format", FORMAT)
    if not isinstance(number, int) or not _OLDEST <= number <= FORMAT:
        raise OtherFormat(
            f"A row has format {number}, but this program reads formats {_OLDEST} and {FORMAT}. "
            "Start the version that wrote it, or a newer one."
        )


async def first_rows(
    tables: Tables, table: str, keys: Keys, *, where: Properties | None = None, limit: int
) -> tuple[list[Row], bool]:
    """Return the first rows of a range, at most `limit`, and whether more may follow."""
    rows: list[Row] = []
    after: str | None = None
    while len(rows) < limit:
        room = min(limit - len(rows), SCAN_ROWS_MAX)
        page = await tables.scan(table, keys, where=where, limit=room, after=after)
        rows += page.rows
        after = page.next
        if after is None:
            break
    return rows, after is not None


async def all_rows(
    tables: Tables,
    table: str,
    keys: Keys,
    *,
    where: Properties | None = None,
    page_rows: int = SCAN_ROWS_MAX,
) -> AsyncIterator[Row]:
    """All rows of a range, page by page; only for ranges that are bounded by design.

    The first page is short, because most ranges are (a batch, recent departures), and switching to
    a thread costs as much as reading them.
    """
    page = await tables.scan(table, keys, where=where, limit=SHORT_SCAN_ROWS)
    while True:
        for row in page.rows:
            yield row
        if page.next is None:
            return
        page = await tables.scan(table, keys, where=where, limit=page_rows, after=page.next)


async def all_typed_rows(
    tables: Tables, table: str, keys: Keys, kind: type[KindT]
) -> list[TypedRow[KindT]]:
    """The rows of a short range as structs; Unreadable if one of them does not fit."""
    page = await tables.scan_as(kind, table, keys, limit=SHORT_SCAN_ROWS)
    rows = page.rows
    while page.next is not None:
        page = await tables.scan_as(kind, table, keys, after=page.next)
        rows += page.rows
    return rows


def readable(rows: Iterable[Row], kind: type[StructT]) -> list[Stored[StructT]]:
    """Return the rows that can be read; the others are skipped."""
    found: list[Stored[StructT]] = []
    for row in rows:
        with contextlib.suppress(Unreadable):
            found.append(stored(row, kind))
    return found


async def readable_rows(
    tables: Tables, table: str, keys: Keys, kind: type[StructT]
) -> AsyncIterator[tuple[StructT, Row]]:
    """All rows of a range that can be read; the others are logged and skipped."""
    async for row in all_rows(tables, table, keys):
        with unreadable_logged(table=table, partition=row.partition):
            yield from_properties(row.properties, kind), row


@contextlib.contextmanager
def unreadable_logged(**place: str) -> Iterator[None]:
    """Log a row that cannot be read, and continue after the block."""
    try:
        yield
    except Unreadable as error:
        log.error("row_unreadable", **place, error=str(error)[:200])
