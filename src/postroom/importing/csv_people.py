"""People in a CSV file: which column holds the address, what the others are called."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

import msgspec

from postroom.domain.address import Address, BadAddress, parse_address
from postroom.domain.address_typos import mended
from postroom.domain.csv_rows import (
    EMAIL,
    SINCE,
    SUBSCRIPTION,
    BadRow,
    Record,
    Records,
    clean,
    clipped,
)
from postroom.domain.errors import BadInput
from postroom.domain.subscriber import InactiveReason, clean_attributes
from postroom.domain.texts import _

# What other programs call the column; ours comes first.
EMAIL_NAMES = (EMAIL, "e_mail", "mail", "email_address", "e_mail_address", "emailaddress")
NAME_CHARS_MAX = 40  # of an attribute
COLUMNS_MAX = 1003  # an export's thousand attributes, and its own three
BEGINNING_STRETCHES = 32  # of a file, in which its first row must be: 256 KiB, or 2,500 blank rows
UNVERIFIED = "unverified"
_GONE = frozenset(InactiveReason)
_NOT_PART_OF_A_NAME = re.compile(r"[^a-z0-9]+")
_WHITE = re.compile(r"\s+")
_RESERVED = "unsubscribe_url"  # a mail's own link: nobody's attribute
_HEADING_CHARS_READ = 4 * NAME_CHARS_MAX  # of a heading, for a name
_STEM_CHARS_MAX = NAME_CHARS_MAX - len(f"_{COLUMNS_MAX}")  # of a name that has a number after it


class Person(msgspec.Struct, frozen=True, gc=False):  # thousands wait: none is part of a cycle
    """A row that can be used."""

    line: int
    address: Address
    attributes: dict[str, str]
    verified: bool = True  # False: our own export says that they never confirmed
    gone: str = ""  # why they left the list that this file was exported from
    mended: str = ""  # how the address was written, if it had to be mended


class Columns(msgspec.Struct, frozen=True):
    """Where to find what, by position."""

    email: int
    attributes: tuple[tuple[int, str], ...]
    subscription: int | None
    count: int
    has_header: bool = True  # False: the first row is a person already


class People:
    """Everybody in a file, in order, and a None for every stretch of it, as in `Records`.

    The header is read at once; unless the columns are given, it must name the addresses. Rows up to
    and including the line `after` are skipped.
    """

    def __init__(
        self,
        lines: Iterator[str],
        wanted: Mapping[str, str],
        chosen: Columns | None = None,
        *,
        after: int = 0,
    ) -> None:
        self._records = Records(lines)
        self._rest = iter(self._records)
        header = self._header() if chosen is None or chosen.has_header else []
        self.columns = chosen or columns_of(header, wanted)
        self._after = after

    @property
    def delimiter(self) -> str:
        return self._records.delimiter

    def __iter__(self) -> Iterator[Person | BadRow | None]:
        for record in self._rest:
            if record is None:
                yield None
            elif record.line <= self._after:
                continue
            elif isinstance(record, BadRow):
                yield record
            elif any(record.cells):
                yield self._person(record)

    def _header(self) -> list[str]:
        for row in _first_rows(self._rest):
            return row
        raise BadInput(_("The file is empty: it needs a header row that names the column email."))

    def _person(self, record: Record) -> Person | BadRow:
        cells, columns = record.cells, self.columns
        if len(cells) > columns.count and any(cells[columns.count :]):
            reason = _(
                "{cells} cells under {columns} columns: is a quotation mark lost?",
                cells=len(cells),
                columns=columns.count,
            )
            return BadRow(record.line, clipped(_cell(cells, columns.email)), str(reason))
        email = clean(_cell(cells, columns.email))
        try:
            address, written = _address(email)
            attributes = clean_attributes(
                {name: _one_line(clean(_cell(cells, at))) for at, name in columns.attributes}
            )
        except BadInput as error:
            return BadRow(record.line, clipped(email), str(error))
        subscription = "" if columns.subscription is None else _cell(cells, columns.subscription)
        gone = subscription if subscription in _GONE else ""
        return Person(record.line, address, attributes, subscription != UNVERIFIED, gone, written)


class Beginning(msgspec.Struct, frozen=True, dict=True):  # dict: for what is computed once
    """The first rows of a file, for somebody who chooses the columns."""

    delimiter: str
    rows: list[list[str]]

    @property
    def width(self) -> int:
        return max(map(len, self.rows))

    @property
    def has_header(self) -> bool:
        """No address has a heading's place."""
        return not any("@" in cell for cell in self.rows[0])

    @cached_property
    def names(self) -> list[str]:
        """What the columns would be called."""
        heading = self.rows[0] if self.has_header else []
        return attribute_names([*heading, *[""] * (self.width - len(heading))])

    @property
    def email(self) -> int:
        """Where the addresses stand, by name or by what is in there."""
        names = self.names
        named = [names.index(name) for name in EMAIL_NAMES if name in names]
        ats = [sum("@" in _cell(row, at) for row in self.rows) for at in range(self.width)]
        return named[0] if named else ats.index(max(ats))


def beginning(lines: Iterator[str], rows: int) -> Beginning:
    """The first rows that have something in them; BadInput if there is none, or one too wide."""
    records = Records(lines)
    first = list(islice(_first_rows(iter(records)), rows))
    if not first:
        raise BadInput(_("There is nothing in the file: choose one with a row for each person."))
    return Beginning(records.delimiter, first)


def _first_rows(records: Iterator[Record | BadRow | None]) -> Iterator[list[str]]:
    """The rows at the beginning of a file that have something in them.

    BadInput if there is none so far, or one too wide.
    """
    is_empty = True
    stretches = 0
    for record in records:
        if isinstance(record, Record):
            _check_width(record.cells)
            row = [clean(cell) for cell in record.cells]
            if any(row):
                is_empty = False
                yield row
        stretches += record is None
        if stretches == BEGINNING_STRETCHES:
            break
    else:
        return
    if is_empty:
        raise BadInput(
            _(
                "The file begins with too many rows that are empty or cannot be read: delete them "
                "and try again."
            )
        )


def columns_of(header: Sequence[str], wanted: Mapping[str, str]) -> Columns:
    """The columns by their headings; `wanted` gives a heading for a name of the caller's choice."""
    _check_width(header)
    names = attribute_names(header)
    for name, heading in wanted.items():
        at = _position(header, names, heading)
        names = [_apart(each, name) if i != at else name for i, each in enumerate(names)]
    email = next((names.index(name) for name in EMAIL_NAMES if name in names), None)
    if email is None:
        raise _no_email(header)
    ours = {EMAIL, SUBSCRIPTION, SINCE, _RESERVED}
    return Columns(
        email,
        tuple((at, name) for at, name in enumerate(names) if at != email and name not in ours),
        names.index(SUBSCRIPTION) if SUBSCRIPTION in names else None,
        len(header),
    )


def check_column_name(text: str) -> str:
    """The name of an attribute that a person gives a column."""
    name = text.strip()
    clean_attributes({name: "a value"})
    if name in (SUBSCRIPTION, SINCE):
        raise BadInput(
            _("“{name}” is what exports call a column of their own: take another name.", name=name)
        )
    return name


def attribute_names(header: Sequence[str]) -> list[str]:
    """Headings as attribute names: `First name` is first_name, a second one first_name_2."""
    names: dict[str, None] = {}  # in order, and found at once
    numbers: Counter[str] = Counter()  # the last one after each stem: lower ones are taken
    for column, heading in enumerate(header, 1):
        name = attribute_name(heading)
        stem = name[:_STEM_CHARS_MAX] or "column"
        name = name or f"column_{column}"
        while name in names:
            numbers[stem] += 1
            name = f"{stem}_{numbers[stem] + 1}"
        names[name] = None
    return list(names)


def attribute_name(heading: str) -> str:
    """Lower case, ASCII, underscores; empty where nothing of the heading is left."""
    heading = heading[:_HEADING_CHARS_READ]
    plain = unicodedata.normalize("NFKD", heading.casefold()).encode("ascii", "ignore").decode()
    name = _NOT_PART_OF_A_NAME.sub("_", plain).strip("_")
    if name[:1].isdigit():
        name = f"column_{name}"
    return name[:NAME_CHARS_MAX].rstrip("_")


def _check_width(row: Sequence[str]) -> None:
    if len(row) > COLUMNS_MAX:
        raise BadInput(
            _(
                "The file has {count:,} columns, and {limit:,} at most can be read: leave out "
                "those that are not needed.",
                count=len(row),
                limit=COLUMNS_MAX,
            )
        )


def _position(header: Sequence[str], names: Sequence[str], heading: str) -> int:
    for known in (header, names):
        if heading in known:
            return known.index(heading)
    columns = ", ".join(header)
    raise BadInput(
        _(
            "There is no column “{heading}”; the columns are: {columns}.",
            heading=heading,
            columns=clipped(columns),
        )
    )


def _apart(name: str, taken: str) -> str:
    return f"{name}_2" if name == taken else name


class NoEmailColumn(BadInput):
    """No column is known to have the addresses."""


def _no_email(header: Sequence[str]) -> BadInput:
    if any("@" in heading for heading in header):
        return BadInput(
            _("The first row must name the columns, as in email,first_name. Add such a row.")
        )
    return NoEmailColumn(
        _(
            "There is no column email. The columns are: {columns}.",
            columns=clipped(", ".join(header)),
        )
    )


def _address(text: str) -> tuple[Address, str]:
    """The address, and how it was written if it had to be mended."""
    try:
        return parse_address(text), ""
    except BadAddress as error:
        with contextlib.suppress(BadAddress):
            return parse_address(mended(text)), clipped(text)
        raise error


def _cell(cells: Sequence[str], at: int) -> str:
    return cells[at] if at < len(cells) else ""


def _one_line(value: str) -> str:
    return value if value.isprintable() else _WHITE.sub(" ", value)
