"""CSV as people save it: lines, records, cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.domain.csv_rows import (
    RECORD_CHARS_MAX,
    RECORD_LINES_MAX,
    BadRow,
    Record,
    Records,
    clean,
    clipped,
    escape_formula,
    unescape_formula,
    with_encoding_fixed,
)


def lines(text: str) -> Iterator[str]:
    """As a file gives them: whole, or in pieces of the longest length."""
    file = io.StringIO(text, newline="")
    return iter(lambda: file.readline(RECORD_CHARS_MAX), "")


def records(text: str) -> list[Record | BadRow]:
    return [record for record in Records(lines(text)) if record]


def cells(text: str) -> list[list[str]]:
    return [record.cells for record in records(text) if isinstance(record, Record)]


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("email,name", ","),
        ("email;name", ";"),
        ("email\tname", "\t"),
        ("email|name", "|"),
        ("email", ","),
        ('"name, first";email;city', ";"),
        ("sep=;\nemail", ";"),
        ('"sep=|"\r\nemail', "|"),
    ],
)
def test_the_first_line_tells_the_delimiter(header: str, delimiter: str) -> None:
    assert Records(lines(header + "\n")).delimiter == delimiter


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system(end: str) -> None:
    assert cells(end.join(["a,b", "1,2", ""])) == [["a", "b"], ["1", "2"]]


def test_a_quoted_cell_may_have_delimiters_quotes_and_lines_in_it() -> None:
    text = 'a,b\n"one, two","he said ""no""\nand left"\n3,4\n'
    assert records(text)[1:] == [
        Record(2, ["one, two", 'he said "no"\nand left']),
        Record(4, ["3", "4"]),
    ]


def test_a_quotation_mark_inside_an_unquoted_cell_is_text() -> None:
    assert cells('a,b\n5" pipe,6" pipe\nx,5"\n') == [
        ["a", "b"],
        ['5" pipe', '6" pipe'],
        ["x", '5"'],
    ]


def test_a_quotation_mark_never_closed_costs_its_own_line_alone() -> None:
    many = "".join(f"{number},x\n" for number in range(RECORD_LINES_MAX + 5))
    found = records(f'a,b\n1,"lost\n{many}')
    assert found[1] == BadRow(2, '1,"lost', "a quotation mark is opened and never closed")
    assert found[2:] == [Record(3 + n, [str(n), "x"]) for n in range(RECORD_LINES_MAX + 5)]


def test_a_quotation_mark_open_at_the_end_of_the_file_costs_its_own_line_alone() -> None:
    found = records('a,b\n1,"lost\n2,x')
    assert isinstance(found[1], BadRow)
    assert found[2] == Record(3, ["2", "x"])


def test_a_line_without_end_is_skipped_and_the_next_one_is_read() -> None:
    long = "x" * (RECORD_CHARS_MAX * 3 + 5)
    found = records(f"a,b\n{long}\n1,2\n")
    assert isinstance(found[1], BadRow)
    assert len(found[1].value) < 100
    assert found[2] == Record(3, ["1", "2"])


@given(st.lists(st.lists(st.text(alphabet='a",;\n\r é'), min_size=2, max_size=3), max_size=6))
def test_whatever_a_csv_writer_writes_is_read_back(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    assert cells(file.getvalue()) == [["a", "b"], *rows]


@pytest.mark.parametrize(
    "cell",
    [
        "=1+1",
        "+49 30-1",
        "'+49 30",
        "-1",
        "@x",
        "\tx",
        "\rx",
        "plain",
        "'plain",
        "",
        "'=1",
        "''-1",
        "'",
    ],
)
def test_an_escaped_cell_is_no_formula_and_can_be_unescaped(cell: str) -> None:
    assert escape_formula(cell)[:1] not in tuple("=+-@\t\r")
    assert unescape_formula(escape_formula(cell)) == cell


@pytest.mark.parametrize("number", ["+49", "+49 30", "+43 1 4277"])
def test_a_telephone_number_is_no_formula_and_stays_as_it_is(number: str) -> None:
    assert escape_formula(number) == number
    assert unescape_formula(number) == number


def test_blanks_nobody_sees_are_trimmed_and_letters_composed() -> None:
    assert clean("\xa0\u200b Ko\u0308ln\ufeff ") == "Köln"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"K\xc3\xb6ln", "Köln"),
        (b"K\xf6ln", "Köln"),
        (b"\x80 5", "€ 5"),
        (b"plain", "plain"),
        (b"\x81\xff", "\ufffdÿ"),
    ],
)
def test_a_line_that_is_not_utf8_is_windows_1252(raw: bytes, text: str) -> None:
    assert with_encoding_fixed(raw.decode("utf-8", "surrogateescape")) == text


def test_a_long_value_is_shown_by_its_beginning_on_one_line() -> None:
    assert clipped("a\nb") == "a b"
    assert len(clipped("x" * 1000)) == 80
