"""Markdown becomes the HTML of an email, and merge fields come through whole everywhere."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.markdown import MARKDOWN_CHARS_MAX, MARKS_MAX, html_from_markdown
from postroom.mail.merge import BadTemplate, Field, compile_html, fill


def filled(source: str, **values: str) -> str:
    return fill(compile_html(html_from_markdown(source)), values)


def test_text_becomes_paragraphs_headings_and_lists() -> None:
    html = html_from_markdown("# Title\n\nSome *words*\n\n- one\n- two")
    for piece in ("<h1>Title</h1>", "<p>Some <em>words</em></p>", "<li>two</li>"):
        assert piece in html


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Dear {{ name }}", "<p>Dear Ada</p>"),
        ("[leave]({{ url }})", '<a href="https://contoso.edu/">leave</a>'),
        ("**{{ name }}**s", "<strong>Ada</strong>s"),
        ('{{ missing | default("friend") }}', "<p>friend</p>"),
        ('[x](https://contoso.edu/?q={{ missing | default("a b") }})', "?q=a%20b"),
        ("| a |\n|---|\n| {{ name }} |", "<td>Ada</td>"),
        ("_{{ name }}_", "<em>Ada</em>"),
        ("`{{ name }}`", "<code>Ada</code>"),
    ],
)
def test_a_field_can_be_anywhere(source: str, expected: str) -> None:
    assert expected in filled(source, name="Ada", url="https://contoso.edu/")


def test_a_value_stays_text() -> None:
    assert "&lt;b&gt;" in filled("Dear {{ name }}", name="<b>")


def test_html_within_markdown_is_its_authors_own() -> None:
    assert '<span style="color:red">x</span>' in filled('<span style="color:red">x</span>')


def test_a_field_that_is_never_closed_is_named_by_its_line() -> None:
    with pytest.raises(BadTemplate, match="Line 2"):
        html_from_markdown("one\n{{ name")


@given(st.text(max_size=200), st.text(max_size=50))
def test_a_field_comes_through_whatever_is_around_it(before: str, after: str) -> None:
    plain = before.replace("{", "").replace("<", ""), after.replace("{", "").replace("<", "")
    html = html_from_markdown(f"{plain[0]}\n\n{{{{ name }}}}\n\n{plain[1]}")
    fields = [part for part in compile_html(html) if isinstance(part, Field)]
    assert [field.name for field in fields] == ["name"]


@pytest.mark.parametrize(
    "source",
    [
        "word " * (MARKDOWN_CHARS_MAX // 5 + 1),
        "[" * (MARKS_MAX + 1),
        "a\n" * (MARKS_MAX + 1),
        "|a" * 300 + "\n" + "|-" * 300 + "\n" + "a\n" * 100,
        "a " + "<!-- " * 500 + "word " * 20_000,
    ],
)
def test_markdown_that_would_hold_up_its_parser_is_refused(source: str) -> None:
    with pytest.raises(BadTemplate, match="shorten it"):
        html_from_markdown(source)


@pytest.mark.parametrize("blank", ["\x0b\x0b", "\xa0", "\u2028\u2028"])
def test_only_what_the_parser_takes_for_a_blank_line_ends_a_table(blank: str) -> None:
    table = "|a" * 300 + "\n" + "|-" * 300 + "\n" + f"{blank}\nb\n" * 100
    with pytest.raises(BadTemplate, match="shorten it"):
        html_from_markdown(table)


HOSTILE_LINES = (
    "-",
    "- ",
    "> -",
    "|-",
    ":-",
    " ",
    "\t",
    "=",
    "%",
    "word ",
    "[",
    "*",
    "&",
    "<",
    "`",
)
TRY_HOSTILE_LINES = """
import contextlib, resource, sys
from postroom.mail.markdown import MARKDOWN_CHARS_MAX, html_from_markdown
from postroom.mail.merge import BadTemplate

resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for unit in sys.argv[1:]:
    line = unit * (MARKDOWN_CHARS_MAX // len(unit) - 1)
    for source in (line, line + "x", "x" + line, line[:2900] + "x", "|a|\\n" + line):
        with contextlib.suppress(BadTemplate):
            html_from_markdown(source)
"""


@pytest.mark.slow
def test_no_line_of_any_length_takes_the_parser_more_than_moments() -> None:
    """Takes about three seconds of CPU time; a quadratic rule would take minutes."""
    subprocess.run([sys.executable, "-c", TRY_HOSTILE_LINES, *HOSTILE_LINES], check=True)


def test_a_long_message_with_a_table_is_accepted() -> None:
    letter = "Dear *{{ name }}*, this is a [link](https://contoso.edu).\n\n" * 100
    table = "|a|b|c|\n|-|-|-|\n" + "|1|2|3|\n" * 200
    assert html_from_markdown(letter + table).count("<td>") == 600
