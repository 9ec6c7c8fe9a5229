"""Structs to properties and back. Every row carries the number of its format."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import structlog

from postroom.records.stored import Stored
from postroom.storage.port import SCAN_ROWS_MAX, Keys, Properties, Row, StorageError, Tables, Value

log = structlog.get_logger("records")
FORMAT = 1  # readers take this and the one before it
_OLDEST = FORMAT - 1

StructT = TypeVar("StructT", bound=msgspec.Struct)


class Unreadable(StorageError):
    """A row written by a newer version of the program, or spoilt by hand."""


class OtherFormat(Unreadable):
    """By another version, which can read it."""


@functools.cache
def _nested(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Fields that stand in one property as JSON, because properties are flat."""
    return frozenset(
        name
        for name, hint in get_type_hints(kind).items()
        if any(map(_is_nested, (hint, *get_args(hint))))
    )


def _is_nested(hint: Any) -> bool:
    is_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    return is_struct or get_origin(hint) is dict


def to_properties(struct: msgspec.Struct) -> dict[str, Value]:
    nested = _nested(type(struct))
    flat: dict[str, Value] = {"v": FORMAT}
    builtins: dict[str, Any] = msgspec.to_builtins(struct, str_keys=True)
    for name, value in builtins.items():
        if value is not None:
            flat[name] = msgspec.json.encode(value).decode() if name in nested else value
    return flat


def from_properties(properties: Properties, kind: type[StructT]) -> StructT:
    check_format(properties)
    nested = _nested(kind)
    try:
        fields = {
            name: msgspec.json.decode(value) if name in nested and isinstance(value, str) else value
            for name, value in properties.items()
            if name != "v"
        }
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.DecodeError as error:  # half a JSON, or not of this kind
        raise Unreadable(f"A row is not a whole {kind.__name__}: {error}.") from error


def stored(row: Row, kind: type[StructT]) -> Stored[StructT]:
    return Stored(from_properties(row.properties, kind), row.etag)


def check_format(properties: Properties) -> None:
    number = properties.get("v", 0)
    if not isinstance(number, int) or not _OLDEST <= number <= FORMAT:
        raise OtherFormat(
            f"A row has format {number}, this program reads {_OLDEST} and {FORMAT}: "
            "start the version that wrote it, or a newer one."
        )


async def first_rows(
    tables: Tables, table: str, keys: Keys, *, limit: int
) -> tuple[list[Row], bool]:
    """The first rows of a range, at most so many, and whether it may go on after them."""
    rows: list[Row] = []
    after: str | None = None
    while len(rows) < limit:
        wanted = min(limit - len(rows), SCAN_ROWS_MAX)
        page = await tables.scan(table, keys, limit=wanted, after=after)
        rows += page.rows
        after = page.next
        if after is None:
            break
    return rows, after is not None


async def all_rows(
    tables: Tables, table: str, keys: Keys, *, where: Properties | None = None
) -> AsyncIterator[Row]:
    """Every row of a range, page by page; only for ranges that are bounded by design."""
    after: str | None = None
    while True:
        page = await tables.scan(table, keys, where=where, after=after)
        for row in page.rows:
            yield row
        if page.next is None:
            return
        after = page.next


async def readable_rows(
    tables: Tables, table: str, keys: Keys, kind: type[StructT]
) -> AsyncIterator[tuple[StructT, Row]]:
    """Every row of a range that can be read; one that cannot holds up none of the others."""
    async for row in all_rows(tables, table, keys):
        try:
            yield from_properties(row.properties, kind), row
        except Unreadable as error:
            log.error(
                "row_unreadable", table=table, partition=row.partition, error=str(error)[:200]
            )
