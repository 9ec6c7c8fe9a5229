"""CSV as text: lines become records, records become cells, and cells are safe in a spreadsheet.

Nothing here holds more than one record: a quotation mark that is never closed costs its own line
and not the rest of the file. Reading takes time in proportion to the length of a file, whatever is
in it, and comes in short stretches.
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

from postroom.domain.texts import _

DELIMITER_NAMES = {",": _("comma"), ";": _("semicolon"), "\t": _("tab"), "|": _("bar")}
DELIMITERS = tuple(DELIMITER_NAMES)
RECORD_CHARS_MAX = 64 * 1024  # thirty attributes of 500 characters are a quarter of it
RECORD_LINES_MAX = 100  # of one quoted cell: an address over several lines, not a lost quote
STRETCH_CHARS = 8 * 1024  # read at a time: a few milliseconds of work, whatever they are
LINE_CHARS = 100  # that every line counts for besides its own: even a blank one takes time
COMPOSED_CHARS_MAX = 1000  # twice as many as an attribute may have
VALUE_CHARS_SHOWN = 80  # of a bad record, in a report
BYTE_ORDER_MARK = "\ufeff"  # before a file for people: or spreadsheets take it for Windows-1252
EMAIL, SUBSCRIPTION, SINCE = "email", "subscription", "since"  # columns of our own exports
REPORT_COLUMNS = ("line", "value", "reason")  # of a report about bad rows

# Spaces and zero-width characters that spreadsheets leave around a value.
BLANKS = (
    " \t\r\n\x0b\x0c\x85\xa0\xad\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
_INSIDE = r'(?:[^"]++|"")*+'  # of a quoted cell
_SEPARATOR_LINE = re.compile(r'"?sep=([^"])"?', re.IGNORECASE)  # what Excel writes and reads
_NEWLINES = ("\n", "\r")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is run by spreadsheets
_PHONE_NUMBER = re.compile(r"\+[0-9][0-9 ]*")  # adds nothing up, so it is no formula
_GUARD = "'"


class Record(msgspec.Struct, frozen=True):
    line: int  # where it begins; the first is 1
    cells: list[str]


class BadRow(msgspec.Struct, frozen=True):
    """A row that cannot be used, and why: a sentence for a report, in its writer's language."""

    line: int
    value: str
    reason: str


def guarded(cell: str) -> str:
    """The cell with an apostrophe before what a spreadsheet would take for a formula.

    Or before what looks as if it had one: so that each comes back as it was.
    """
    is_harmless = not cell.lstrip(_GUARD).startswith(_FORMULA) or _PHONE_NUMBER.fullmatch(cell)
    return cell if is_harmless else _GUARD + cell


def unguarded(cell: str) -> str:
    """What `guarded` was given."""
    is_guarded = cell.startswith(_GUARD) and cell.lstrip(_GUARD).startswith(_FORMULA)
    return cell[1:] if is_guarded else cell


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as lines of CSV, every cell safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([guarded(_cell_text(cell)) for cell in row] for row in rows)
    return text.getvalue()


def _cell_text(cell: object) -> str:
    if cell is None:
        return ""
    return cell.isoformat() if isinstance(cell, datetime) else str(cell)


def clean(cell: str) -> str:
    """Without blanks around it and, unless it is too long to be used, in composed form (NFC).

    Composing can take time by the square of the length: seconds for a row full of accents.
    """
    cell = unguarded(cell.strip(BLANKS))
    if cell.isascii() or len(cell) > COMPOSED_CHARS_MAX:
        return cell
    return unicodedata.normalize("NFC", cell)


def mended(line: str) -> str:
    """A line decoded as UTF-8 with surrogate escapes; one that is not UTF-8 is Windows-1252.

    Decided line by line, so that a stream needs no second look, and a file glued together from
    both comes out right.
    """
    if line.isascii():
        return line
    try:
        line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return line


def clipped(text: str) -> str:
    """What a report shows of a value: the beginning, on one line."""
    text = " ".join(text[: VALUE_CHARS_SHOWN * 4].split())
    return text if len(text) <= VALUE_CHARS_SHOWN else text[: VALUE_CHARS_SHOWN - 1] + "…"


class Records:
    """The records of a file, in order; the delimiter is told by the first line.

    `lines` end as the file's do, at most RECORD_CHARS_MAX long: a longer one comes in pieces.
    For every stretch of the file comes a None, also where there are no records: whoever has other
    things to do may do them then.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        # Read in search of a closing quotation mark. None of them has it: a quoted cell that is
        # open before such a line is open behind it, so none is searched twice.
        self._ahead: deque[str] = deque()
        self._ahead_chars = 0
        self._line = 0
        self._chars = 0  # for which no None came yet
        self.delimiter = self._read_delimiter()
        delimiter = re.escape(self.delimiter)
        unquoted = f"[^{delimiter}]*+"
        cell = f'(?:"{_INSIDE}"{unquoted}|[^"{delimiter}]{unquoted})?+'
        more = f"(?:{delimiter}{cell})*+"
        self._whole = re.compile(cell + more)  # a mark inside an unquoted cell is text
        self._end_of_quoted = re.compile(f'{_INSIDE}"{unquoted}{more}')

    def __iter__(self) -> Iterator[Record | BadRow | None]:
        is_refused = False  # the line that this is a piece of
        while line := self._next():
            is_piece = len(line) >= RECORD_CHARS_MAX and not line.endswith(_NEWLINES)
            if is_refused:
                self._line -= 1
            elif is_piece:
                reason = str(_("the row is too long to be a person's"))
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
        told = _SEPARATOR_LINE.fullmatch(first.strip())
        if told:
            return told[1]
        if first:
            self._look_at(first)
            self._line = 0
        return max(DELIMITERS, key=lambda each: len(_cells(first, each)))

    def _quoted(self, line: str) -> Record | BadRow:
        """A record with quotation marks: perhaps it goes on in the next lines."""
        number = self._line
        if self._whole.fullmatch(line):
            return Record(number, _cells(line, self.delimiter))
        while (
            len(self._ahead) < RECORD_LINES_MAX
            and len(line) + self._ahead_chars < RECORD_CHARS_MAX
            and (following := next(self._lines, ""))
        ):
            self._look_at(following)
            if len(following) < RECORD_CHARS_MAX and self._end_of_quoted.fullmatch(following):
                return Record(number, _cells(line + self._all_ahead(), self.delimiter))
        reason = str(_("a quotation mark is opened and never closed"))
        return BadRow(number, clipped(line), reason)

    def _next(self) -> str:
        """The next line, or nothing at the end."""
        if self._ahead:
            line = self._ahead.popleft()
            self._ahead_chars -= len(line)
        else:
            line = next(self._lines, "")
        self._line += bool(line)
        self._chars += len(line) + LINE_CHARS
        return line

    def _look_at(self, line: str) -> None:
        self._ahead.append(line)
        self._ahead_chars += len(line)
        self._chars += len(line) + LINE_CHARS

    def _all_ahead(self) -> str:
        text = "".join(self._ahead)
        self._line += len(self._ahead)
        self._ahead.clear()
        self._ahead_chars = 0
        return text


def _cells(text: str, delimiter: str) -> list[str]:
    return next(csv.reader((text,), delimiter=delimiter), [])
