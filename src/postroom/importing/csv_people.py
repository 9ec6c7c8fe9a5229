"""People in a CSV file: which column holds the addresses, and what the others are called."""

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
from postroom.domain.address_typos import extract_address
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
from postroom.domain.texts import _, is_one_line

# Names that other programs give the column; ours comes first.
EMAIL_NAMES = (EMAIL, "e_mail", "mail", "email_address", "e_mail_address", "emailaddress")
NAME_CHARS_MAX = 40  # of an attribute
COLUMNS_MAX = 1003  # an export's thousand attributes, and its own three
BEGINNING_STRETCHES = 32  # the first row must be within these: 256 KiB, or 2,500 blank rows
UNVERIFIED = "unverified"
_INACTIVE = frozenset(InactiveReason)
_SUBSCRIPTIONS = frozenset({"", "verified", UNVERIFIED}) | _INACTIVE
_NOT_PART_OF_A_NAME = re.compile(r"[^a-z0-9]+")
_WHITE = re.compile(r"\s+")
_RESERVED = "unsubscribe_url"  # the link of each mail, so no attribute can have this name
_HEADING_CHARS_READ = 4 * NAME_CHARS_MAX  # of a heading, for a name
_STEM_CHARS_MAX = NAME_CHARS_MAX - len(f"_{COLUMNS_MAX}")  # of a name followed by a number


class Person(msgspec.Struct, frozen=True, gc=False):  # there are thousands, and no cycles
    """A row that can be used."""

    line: int
    address: Address
    attributes: dict[str, str]
    verified: bool = True  # False: our own export says that they never confirmed
    inactive_reason: str = ""  # why they are inactive on the list that this file was exported from
    corrected_from: str = ""  # how the address was written, if it had to be corrected


class Columns(msgspec.Struct, frozen=True):
    """What is in which column, by position."""

    email: int
    attributes: tuple[tuple[int, str], ...]
    subscription: int | None
    count: int
    has_header: bool = True  # False: the first row is a person already


class People:
    """Everybody in a file, in order, and a None for every stretch of it, as in `Records`.

    The header is read at once. Unless `chosen` gives the columns, the header must name the column
    of the addresses, or `headings` (by our own names) must. Rows up to line `after` are skipped.
    """

    def __init__(
        self,
        lines: Iterator[str],
        headings: Mapping[str, str],
        chosen: Columns | None = None,
        *,
        after: int = 0,
    ) -> None:
        records = Records(lines)
        self.delimiter = records.delimiter
        self._rest = iter(records)
        self._after = after
        header: list[str] | None = []
        if chosen is None or chosen.has_header:
            header = next(_first_rows(self._rest), None)
        if header is None:
            raise BadInput(_("The file is empty. It needs a header row with a column named email."))
        self.columns = chosen or columns_of(header, headings)

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

    def _person(self, record: Record) -> Person | BadRow:
        cells = record.cells
        columns = self.columns
        if len(cells) > columns.count and any(cells[columns.count :]):
            reason = _(
                "{cells} cells, but only {columns} columns: is a quotation mark missing?",
                cells=len(cells),
                columns=columns.count,
            )
            return BadRow(record.line, clipped(_cell(cells, columns.email)), str(reason))
        email = clean(_cell(cells, columns.email))
        try:
            address, written = _address(email)
            values = {name: clean(_cell(cells, at)) for at, name in columns.attributes}
            attributes = clean_attributes(
                {
                    name: value if is_one_line(value) else _WHITE.sub(" ", value)
                    for name, value in values.items()
                }
            )
            subscription = self._subscription(cells)
        except BadInput as error:
            return BadRow(record.line, clipped(email), str(error))
        inactive_reason = subscription if subscription in _INACTIVE else ""
        return Person(
            record.line, address, attributes, subscription != UNVERIFIED, inactive_reason, written
        )

    def _subscription(self, cells: Sequence[str]) -> str:
        """What our own export says about the person; refuses words that may mean "unsubscribed"."""
        if self.columns.subscription is None:
            return ""
        word = clean(_cell(cells, self.columns.subscription))
        if word.lower() not in _SUBSCRIPTIONS:
            raise BadInput(
                _(
                    "“{word}” is unknown in the column “subscription”. Use verified, unverified, "
                    "unsubscribed, removed, bounced or complained, or rename the column.",
                    word=clipped(word),
                )
            )
        return word.lower()


class CsvSample(msgspec.Struct, frozen=True, dict=True):  # dict: for the cached property
    """The first rows of a file, from which a person chooses the columns."""

    delimiter: str
    rows: list[list[str]]

    @property
    def width(self) -> int:
        return max(map(len, self.rows))

    @property
    def has_header(self) -> bool:
        """Whether the first row has no address in it."""
        return not any("@" in cell for cell in self.rows[0])

    @cached_property
    def names(self) -> list[str]:
        """The names that the columns get by default."""
        heading = self.rows[0] if self.has_header else []
        return attribute_names([*heading, *[""] * (self.width - len(heading))])

    @property
    def email(self) -> int:
        """The column of the addresses, by its name or by its cells."""
        named = _email_column(self.names)
        ats = [sum("@" in _cell(row, at) for row in self.rows) for at in range(self.width)]
        return ats.index(max(ats)) if named is None else named


def csv_sample(lines: Iterator[str], rows: int) -> CsvSample:
    """The first rows that are not empty; BadInput if there is none, or one is too wide."""
    records = Records(lines)
    first = list(islice(_first_rows(iter(records)), rows))
    if not first:
        raise BadInput(_("The file is empty. Choose a file with one row per person."))
    return CsvSample(records.delimiter, first)


def _first_rows(records: Iterator[Record | BadRow | None]) -> Iterator[list[str]]:
    """The rows at the beginning of a file that are not empty.

    BadInput if all of a long beginning is empty, or a row is too wide.
    """
    is_empty = True
    stretches = 0
    for record in records:
        if isinstance(record, Record):
            if len(record.cells) > COLUMNS_MAX:
                raise BadInput(
                    _(
                        "The file has {count:,} columns, but at most {limit:,} can be read. "
                        "Delete the ones you do not need.",
                        count=len(record.cells),
                        limit=COLUMNS_MAX,
                    )
                )
            row = [clean(cell) for cell in record.cells]
            if any(row):
                is_empty = False
                yield row
        stretches += record is None
        if stretches == BEGINNING_STRETCHES:
            break
    if is_empty and stretches == BEGINNING_STRETCHES:
        raise BadInput(
            _("The file begins with too many empty or unreadable rows. Delete them and try again.")
        )


def columns_of(header: Sequence[str], headings: Mapping[str, str]) -> Columns:
    """The columns by their headings; `headings` gives the heading of a name that differs from it.

    BadInput if a heading is missing, or no column has the addresses.
    """
    names = attribute_names(header)
    shown = clipped(", ".join(header))
    for name, heading in headings.items():
        found = next((known.index(heading) for known in (header, names) if heading in known), None)
        if found is None:
            raise BadInput(
                _(
                    "There is no column “{heading}”. The columns are: {columns}.",
                    heading=heading,
                    columns=shown,
                )
            )
        names = [f"{each}_2" if each == name else each for each in names]
        names[found] = name
    email = _email_column(names)
    if email is None:
        if any("@" in heading for heading in header):
            raise BadInput(
                _(
                    "The first row must contain the column names, as in email,first_name. Add "
                    "such a row."
                )
            )
        raise NoEmailColumn(
            _("There is no column named email. The columns are: {columns}.", columns=shown)
        )
    ours = {EMAIL, SUBSCRIPTION, SINCE, _RESERVED}
    return Columns(
        email,
        tuple((at, name) for at, name in enumerate(names) if at != email and name not in ours),
        names.index(SUBSCRIPTION) if SUBSCRIPTION in names else None,
        len(header),
    )


def check_column_name(text: str) -> str:
    """The attribute name that a person chose for a column; BadInput if it cannot be one."""
    name = text.strip()
    clean_attributes({name: "a value"})
    if name in (SUBSCRIPTION, SINCE):
        raise BadInput(
            _("“{name}” is reserved for a column in exports. Choose another name.", name=name)
        )
    return name


def attribute_names(header: Sequence[str]) -> list[str]:
    """Headings as attribute names: `First name` is first_name, a second one first_name_2."""
    names: dict[str, None] = {}  # a set that keeps the order
    numbers: Counter[str] = Counter()  # the last number used after each stem
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
    """The heading in lower case, ASCII and underscores; empty if nothing is left."""
    heading = heading[:_HEADING_CHARS_READ]
    plain = unicodedata.normalize("NFKD", heading.casefold()).encode("ascii", "ignore").decode()
    name = _NOT_PART_OF_A_NAME.sub("_", plain).strip("_")
    if name[:1].isdigit():
        name = f"column_{name}"
    return name[:NAME_CHARS_MAX].rstrip("_")


class NoEmailColumn(BadInput):
    """No column has a name for addresses."""


def _email_column(names: Sequence[str]) -> int | None:
    return next((names.index(name) for name in EMAIL_NAMES if name in names), None)


def _address(text: str) -> tuple[Address, str]:
    """The address, and how it was written if it had to be corrected."""
    try:
        return parse_address(text), ""
    except BadAddress as error:
        with contextlib.suppress(BadAddress):
            return parse_address(extract_address(text)), clipped(text)
        raise error


def _cell(cells: Sequence[str], at: int) -> str:
    return cells[at] if at < len(cells) else ""
