"""CSV as text: lines become records, records become cells, and cells are safe in a spreadsheet.

Only one record is in memory at a time, and a quotation mark that is never closed affects only its
own line. Reading takes time proportional to the length of the file, whatever it contains, and is
done in short stretches.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from postroom.domain import address
from postroom.domain.texts import _

DELIMITER_NAMES = {",": _("comma"), ";": _("semicolon"), "\t": _("tab"), "|": _("bar")}
DELIMITERS = tuple(DELIMITER_NAMES)
RECORD_CHARS_MAX = 64 * 1024  # thirty attributes of 500 characters are a quarter of it
RECORD_LINES_MAX = 100  # of one quoted cell: enough for a postal address
STRETCH_CHARS = 8 * 1024  # read at a time: a few milliseconds of work
LINE_CHARS = 100  # added to the length of every line, because even a blank one takes time
COMPOSED_CHARS_MAX = 1000  # twice the length of an attribute
VALUE_CHARS_SHOWN = 80  # of a bad record, in a report
BYTE_ORDER_MARK = "\ufeff"  # without it spreadsheets read a file as Windows-1252
EMAIL, SUBSCRIPTION, SINCE = "email", "subscription", "since"  # columns of our own exports
REPORT_COLUMNS = ("line", "value", "reason")  # of a report about bad rows

# Spaces and zero-width characters that spreadsheets leave around a value.
BLANKS = address.BLANKS + "\x0b\x0c\x85\u2028\u2029"
_INSIDE = r'(?:[^"]++|"")*+'  # of a quoted cell
_SEPARATOR_LINE = re.compile(r'"?sep=([^"])"?', re.IGNORECASE)  # what Excel writes and reads
_NEWLINES = ("\n", "\r")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run a cell that begins with one
_PHONE_NUMBER = re.compile(r"\+[0-9][0-9 ]*")  # computes nothing, so it is not a formula
_GUARD = "'"


class Record(msgspec.Struct, frozen=True):
    line: int  # where it begins; the first is 1
    cells: list[str]


class BadRow(msgspec.Struct, frozen=True):
    """A row that cannot be used, and why, in the language of the person who imports."""

    line: int
    value: str
    reason: str


def escape_formula(cell: str) -> str:
    """Put an apostrophe before a cell that a spreadsheet would run as a formula.

    Also before a cell that looks escaped already, so that `unescape_formula` restores every cell.
    """
    is_harmless = not cell.lstrip(_GUARD).startswith(_FORMULA) or _PHONE_NUMBER.fullmatch(cell)
    return cell if is_harmless else _GUARD + cell


def unescape_formula(cell: str) -> str:
    is_escaped = cell.startswith(_GUARD) and cell.lstrip(_GUARD).startswith(_FORMULA)
    return cell[1:] if is_escaped else cell


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as lines of CSV, every cell safe to open in a spreadsheet."""

    def cell_text(cell: object) -> str:
        if cell is None:
            return ""
        return escape_formula(cell.isoformat() if isinstance(cell, datetime) else str(cell))

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(cell_text, row) for row in rows)
    return text.getvalue()


def clean(cell: str) -> str:
    """The cell without surrounding blanks and, unless it is too long, in composed form (NFC).

    Composing can take quadratic time: seconds for a row full of accents.
    """
    cell = unescape_formula(cell.strip(BLANKS))
    if cell.isascii() or len(cell) > COMPOSED_CHARS_MAX:
        return cell
    return unicodedata.normalize("NFC", cell)


def with_encoding_fixed(line: str) -> str:
    """The line, decoded as Windows-1252 if it has surrogate escapes, so was not UTF-8.

    Decided line by line: a stream cannot be read twice, and some files mix both encodings.
    """
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line


def clipped(text: str) -> str:
    """The beginning of a value on one line, as a report shows it."""
    text = " ".join(text[: VALUE_CHARS_SHOWN * 4].split())
    return text if len(text) <= VALUE_CHARS_SHOWN else text[: VALUE_CHARS_SHOWN - 1] + "…"


class Records:
    """The records of a file, in order; the first line decides which delimiter is used.

    `lines` keep their line ends; one longer than RECORD_CHARS_MAX comes in pieces. Every stretch of
    the file yields a None, even one without records, so that the caller can do other work.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        # Lines read in search of a closing quotation mark. None of them has it, so a quoted cell
        # that is open before them is open after them, and none is searched twice.
        self._ahead: deque[str] = deque()
        self._ahead_chars = 0
        self._line = 0
        self._chars = 0  # read since the last None
        self.delimiter = self._read_delimiter()
        delimiter = re.escape(self.delimiter)
        unquoted = f"[^{delimiter}]*+"
        cell = f'(?:"{_INSIDE}"{unquoted}|[^"{delimiter}]{unquoted})?+'
        more = f"(?:{delimiter}{cell})*+"
        self._whole = re.compile(cell + more)  # a mark inside an unquoted cell is text
        self._end_of_quoted = re.compile(f'{_INSIDE}"{unquoted}{more}')

    def __iter__(self) -> Iterator[Record | BadRow | None]:
        is_refused = False  # whether this is the rest of a line that was too long
        while line := self._next():
            is_piece = len(line) >= RECORD_CHARS_MAX and not line.endswith(_NEWLINES)
            if is_refused:
                self._line -= 1
            elif is_piece:
                reason = str(_("the row is too long"))
                yield BadRow(self._line, clipped(line), reason)
            elif '"' not in line:
                yield Record(self._line, line.rstrip("\r\n").split(self.delimiter))
            else:
                yield self._quoted(line)
            is_refused = is_piece
            while self._chars >= STRETCH_CHARS:
                self._chars -= STRETCH_CHARS
                yield None

    def _read_delimiter(self) -> str:
        first = self._next()
        if separator := _SEPARATOR_LINE.fullmatch(first.strip()):
            return separator[1]
        if first:
            self._put_ahead(first)
            self._line = 0
        return max(DELIMITERS, key=lambda each: len(_cells(first, each)))

    def _quoted(self, line: str) -> Record | BadRow:
        """A record with quotation marks, which may continue in the next lines."""
        number = self._line
        if self._whole.fullmatch(line):
            return Record(number, _cells(line, self.delimiter))
        while (
            len(self._ahead) < RECORD_LINES_MAX
            and len(line) + self._ahead_chars < RECORD_CHARS_MAX
            and (following := next(self._lines, ""))
        ):
            self._put_ahead(following)
            if len(following) < RECORD_CHARS_MAX and self._end_of_quoted.fullmatch(following):
                record = Record(number, _cells(line + "".join(self._ahead), self.delimiter))
                self._line += len(self._ahead)
                self._ahead.clear()
                self._ahead_chars = 0
                return record
        reason = str(_("a quotation mark is opened and never closed"))
        return BadRow(number, clipped(line), reason)

    def _next(self) -> str:
        """The next line; empty at the end."""
        if self._ahead:
            line = self._ahead.popleft()
            self._ahead_chars -= len(line)
        else:
            line = next(self._lines, "")
        self._line += bool(line)
        self._chars += len(line) + LINE_CHARS
        return line

    def _put_ahead(self, line: str) -> None:
        self._ahead.append(line)
        self._ahead_chars += len(line)
        self._chars += len(line) + LINE_CHARS


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader((text,), delimiter=delimiter), [])
