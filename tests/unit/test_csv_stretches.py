"""Files that no spreadsheet writes: reading them is linear work, in bounded stretches."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import unicodedata
from collections.abc import Callable, Iterator
from itertools import repeat
from types import FrameType
from typing import Any

import pytest

from postroom.domain.address import BadAddress, parse_address
from postroom.domain.csv_rows import (
    COMPOSED_CHARS_MAX,
    LINE_CHARS,
    RECORD_CHARS_MAX,
    RECORD_LINES_MAX,
    STRETCH_CHARS,
    Record,
    Records,
    clean,
)
from postroom.domain.errors import BadInput
from postroom.importing.csv_people import BEGINNING_STRETCHES, Columns, People, csv_sample

CHOSEN = Columns(0, ((1, "name"),), None, 2)
ACCENTS = "a" + "\u0301\u0323" * 30_000  # in an order that composing them has to mend
OPENER = 'x","\n'  # ends inside of a quoted cell, wherever it begins
KINDS = {
    "blank": "\n",
    "blank, old Macintosh": "\r",
    "empty cells": ",,,,\n",
    "many empty cells": "," * 60_000 + "\n",
    "no address": "nobody,x\n",
    "a quoted cell": '"a\n',
    "an open cell": OPENER,
    "a long open cell": "x" * 600 + OPENER,
    "a line without end": "x" * RECORD_CHARS_MAX,
}
any_kind = pytest.mark.parametrize("line", KINDS.values(), ids=KINDS)


class Lines:
    """The same line again and again, and how much was read of it."""

    def __init__(self, line: str, count: int = 100_000, first: str = "email,name\n") -> None:
        self._rest = repeat(line, count)
        self._first = [first] if first else []
        self.lines = 0
        self.chars = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._first.pop() if self._first else next(self._rest)
        self.lines += 1
        self.chars += len(line)
        return line


def calls_made(work: Callable[[], object]) -> int:
    """How many functions are called, written in Python or not."""
    calls = 0

    def count(_frame: FrameType, event: str, _about: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@any_kind
def test_a_stretch_is_bounded_whatever_is_in_the_file(line: str) -> None:
    lines = Lines(line)
    people = iter(People(lines, {}, CHOSEN))
    for _ in range(20):
        before = lines.lines, lines.chars
        assert any(row is None for row in people)
        assert lines.lines - before[0] <= STRETCH_CHARS // LINE_CHARS + RECORD_LINES_MAX
        assert lines.chars - before[1] <= STRETCH_CHARS + 2 * RECORD_CHARS_MAX


@pytest.mark.slow
@any_kind
def test_twice_the_rows_are_twice_the_work(line: str) -> None:
    once = calls_made(lambda: list(People(Lines(line, 300), {}, CHOSEN)))
    twice = calls_made(lambda: list(People(Lines(line, 600), {}, CHOSEN)))
    assert twice < 2.3 * once
    assert twice < 600 * 200  # of which most are about the person


def test_no_line_is_searched_for_a_closing_mark_more_than_once() -> None:
    ordinary = calls_made(lambda: list(Records(Lines("a,b\n", 2000))))
    assert calls_made(lambda: list(Records(Lines(OPENER, 2000)))) < 5 * ordinary


def test_a_cell_of_any_length_in_many_lines_is_refused_and_the_rows_after_it_are_read() -> None:
    file = iter(['a,"open\n', *["x,y\n"] * 1000, '"\n', "ada,1\n"])
    records = [record for record in Records(file) if record]
    assert [each.line for each in records if not isinstance(each, Record)] == [1, 1002]
    assert records[-1] == Record(1003, ["ada", "1"])


@any_kind
@pytest.mark.parametrize(
    "read",
    [lambda lines: csv_sample(lines, 6), lambda lines: People(lines, {}, CHOSEN)],
    ids=["the page", "the run"],
)
def test_the_beginning_of_a_file_has_an_end(line: str, read: Callable[[Lines], object]) -> None:
    lines = Lines(line, first="")
    with contextlib.suppress(BadInput):
        read(lines)
    assert lines.lines <= BEGINNING_STRETCHES * STRETCH_CHARS // LINE_CHARS + RECORD_LINES_MAX
    assert lines.chars <= BEGINNING_STRETCHES * STRETCH_CHARS + 2 * RECORD_CHARS_MAX


def test_a_file_that_begins_with_empty_rows_alone_is_refused_with_a_sentence() -> None:
    with pytest.raises(BadInput, match="begins with too many empty"):
        csv_sample(Lines("\n", first=""), 6)


def test_what_stands_at_the_beginning_is_shown_whatever_comes_after_it() -> None:
    assert csv_sample(Lines("\n"), 6).rows == [["email", "name"]]


@pytest.mark.parametrize(
    "read",
    [
        clean,
        lambda text: parse_address(f"{text}@contoso.edu"),
        lambda text: csv_sample(iter([f"email,{text}\n"]), 6).names,
        lambda text: list(People(iter(["email,name\n", f"ada@contoso.edu,{text}\n"]), {})),
        lambda text: list(People(iter(["email,name\n", f"{text}@contoso.edu,\n"]), {})),
    ],
    ids=["a cell", "an address", "a heading", "an attribute", "an address in a row"],
)
def test_accents_without_end_are_not_composed(
    read: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    normalize, lengths = unicodedata.normalize, [0]

    def counted(form: Any, text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text[: COMPOSED_CHARS_MAX + 1])  # quick even where it fails

    monkeypatch.setattr(unicodedata, "normalize", counted)
    with contextlib.suppress(BadAddress):
        read(ACCENTS)
    assert max(lengths) <= COMPOSED_CHARS_MAX


def test_an_address_may_be_as_long_as_it_was_before_it_was_composed() -> None:
    decomposed = unicodedata.normalize("NFD", "\u1f82" * 21)  # of 84 characters
    assert parse_address(f"{decomposed}@contoso.edu").local == "\u1f82" * 21


async def test_reading_continues_in_a_thread_where_it_began_in_another() -> None:
    people = await asyncio.to_thread(People, Lines("\n", 1000), {}, CHOSEN)
    assert set(people) == {None}
