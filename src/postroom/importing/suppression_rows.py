"""A file of addresses to suppress: one address per line, our own export, or another tool's.

A column named email, or else the first one, has the addresses. The columns scope, lists, reason,
since, source, status, words and note are read if present; others are ignored. A header row is not
needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from postroom.domain.address import Address, BadAddress, parse_address
from postroom.domain.address_typos import extract_address
from postroom.domain.csv_rows import EMAIL, SINCE, BadRow, Record, Records, clean, clipped
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import check_list_name
from postroom.domain.suppression import (
    NOTE_CHARS_MAX,
    SuppressionReason,
    SuppressionScope,
    check_lists,
    check_scope,
)
from postroom.domain.texts import clipped as clipped_text
from postroom.importing.csv_people import EMAIL_NAMES, attribute_names

_SCOPE, _LISTS, _REASON, _SOURCE = "scope", "lists", "reason", "source"
_STATUS, _WORDS, _NOTE = "status", "words", "note"
_OTHER_NAMES = {"created": SINCE, "created_at": SINCE, "suppressed_at": SINCE}
_EPOCH_DIGITS = 10  # seconds, as providers write them
_READABLE_REASONS = frozenset(SuppressionReason) - {SuppressionReason.ERASED}


class SuppressionRow(msgspec.Struct, frozen=True, gc=False):  # there are thousands, and no cycles
    """A row that can be used; values missing from the file are None or empty."""

    line: int
    address: Address
    scope: SuppressionScope | None = None
    lists: str = ""
    reason: SuppressionReason = SuppressionReason.IMPORTED
    since: datetime | None = None
    source: str = ""
    status: str = ""
    words: str = ""
    note: str = ""


class SuppressionRows:
    """The rows of a file in order, and a None for every stretch of it, as in `Records`."""

    def __init__(self, lines: Iterator[str]) -> None:
        records = Records(lines)
        self.delimiter = records.delimiter
        self._records = records
        self._columns: dict[str, int] | None = None  # None until the first row is read

    def __iter__(self) -> Iterator[SuppressionRow | BadRow | None]:
        for record in self._records:
            if record is None or isinstance(record, BadRow):
                yield record
            elif not any(cell.strip() for cell in record.cells):
                continue
            elif self._columns is None:
                self._columns = _columns_of(record.cells)
                if any("@" in cell for cell in record.cells):  # no header
                    yield _row(record, self._columns)
            else:
                yield _row(record, self._columns)


def _columns_of(cells: list[str]) -> dict[str, int]:
    """Positions by name, from the header or, without one, from the first row."""
    with_at = next((at for at, cell in enumerate(cells) if "@" in cell), None)
    if with_at is not None:
        return {EMAIL: with_at}
    names = attribute_names([clean(cell) for cell in cells])
    columns = {_OTHER_NAMES.get(name, name): at for at, name in enumerate(names)}
    email = next((columns[name] for name in EMAIL_NAMES if name in columns), 0)
    return columns | {EMAIL: email}


def _row(record: Record, columns: Mapping[str, int]) -> SuppressionRow | BadRow:
    def cell(name: str) -> str:
        at = columns.get(name)
        return clean(record.cells[at]) if at is not None and at < len(record.cells) else ""

    email = cell(EMAIL)
    try:
        scope = check_scope(cell(_SCOPE).lower()) if cell(_SCOPE) else None
        names = [check_list_name(name.strip()) for name in cell(_LISTS).split(",") if name.strip()]
        return SuppressionRow(
            record.line,
            _address(email),
            scope,
            check_lists(scope, names) if scope else "",
            _reason(cell(_REASON)),
            _time(cell(SINCE)),
            clipped_text(cell(_SOURCE), NOTE_CHARS_MAX),
            clipped_text(cell(_STATUS), NOTE_CHARS_MAX),
            clipped_text(cell(_WORDS), NOTE_CHARS_MAX),
            clipped_text(cell(_NOTE) or _other_reason(cell(_REASON)), NOTE_CHARS_MAX),
        )
    except BadInput as error:
        return BadRow(record.line, clipped(email), str(error))


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except BadAddress as error:
        with contextlib.suppress(BadAddress):
            return parse_address(extract_address(text))
        raise error


def _reason(text: str) -> SuppressionReason:
    return SuppressionReason(text) if text in _READABLE_REASONS else SuppressionReason.IMPORTED


def _other_reason(text: str) -> str:
    """The reason given by another tool, to be kept as a note."""
    return "" if text in set(SuppressionReason) else text


def _time(text: str) -> datetime | None:
    """A time in ISO 8601 or seconds since 1970; None for anything else, because it decides nothing.

    Refusing the row would mean mailing the person.
    """
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if len(text) == _EPOCH_DIGITS and text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return None
