"""A CSV file as text: the first bytes are checked, and lines are decoded one by one."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from postroom.domain.csv_rows import RECORD_CHARS_MAX, with_encoding_fixed
from postroom.domain.errors import BadInput
from postroom.domain.texts import _, ngettext

HEAD_BYTES = 4096
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ARCHIVE = b"PK\x03\x04"  # what .xlsx and .ods files begin with


class Source:
    """The lines of a file, decoded one by one, and how far it has been read."""

    def __init__(self, file: BinaryIO, head: bytes, size: int) -> None:
        self._file = file
        self._is_utf16 = head.startswith(_UTF16)
        encoding = "utf-16" if self._is_utf16 else "utf-8-sig"
        errors = "replace" if self._is_utf16 else "surrogateescape"
        # newline="" also ends a line at a lone CR, which some spreadsheets still write.
        self._text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
        self._fixed_lines = 0
        self.size = size

    def __iter__(self) -> Iterator[str]:
        for line in iter(partial(self._text.readline, RECORD_CHARS_MAX), ""):
            fixed = with_encoding_fixed(line)
            self._fixed_lines += fixed is not line
            yield fixed

    @property
    def encoding(self) -> str:
        """The encoding of what has been read so far, for people."""
        if self._is_utf16:
            return "UTF-16"
        if not self._fixed_lines:
            return "UTF-8"
        return str(
            ngettext(
                "UTF-8 with {count:,} line in Windows-1252",
                "UTF-8 with {count:,} lines in Windows-1252",
                self._fixed_lines,
            )
        )

    @property
    def read_bytes(self) -> int:
        return self._file.tell() if self._file.seekable() else 0


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The lines of a file on this machine; BadInput if it cannot be read or is not CSV."""
    name = str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadInput(_("{name} cannot be read: {why}.", name=name, why=error.strerror)) from error
    with file:
        head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        check_is_text(name, head)
        yield Source(file, head, os.fstat(file.fileno()).st_size)


def check_is_text(name: str, head: bytes) -> None:
    """BadInput if the first bytes of a file cannot be those of a CSV file."""
    if head.startswith(_ARCHIVE):
        raise BadInput(
            _(
                "{name} is a spreadsheet file. Open it in your spreadsheet program, save it as "
                "CSV, and import that file.",
                name=name,
            )
        )
    if b"\0" in head and not head.startswith(_UTF16):
        raise BadInput(
            _("{name} is not a text file. Save it as CSV in UTF-8 and import that file.", name=name)
        )
