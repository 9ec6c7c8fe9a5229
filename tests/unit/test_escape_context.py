"""The escape context of a field: the start of a URL decides, and the document is read only once."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.domain.texts import Text
from postroom.mail import escape_context
from postroom.mail.escape_context import EscapeContext, HtmlScanner

MARK = "\ufffc"
PIECES = [
    *("", " ", "\n", "x", "a" * 25, "Σ", "https", "java", "script", "mailto", "tel", MARK),
    *(":", "/", "?", "#", "//x.example/", "HTTPS://", "MailTo:", "javascript:", "data:"),
    *("&", "&#", "58;", "&#58;", "&#x3A;", "&colon;", "&col", "on;", "&lt", "&amp;", ";", "&sol;"),
]


def by_definition(url_so_far: str) -> EscapeContext | str:
    """The context by the whole URL up to the field, or the scheme if it is refused."""
    start = "".join(html.unescape(url_so_far).split()).lower()
    if not start:
        return EscapeContext.URL
    scheme = re.match(r"[^/?#]*?:", start)
    if scheme is None or start.startswith(MARK):
        return EscapeContext.URL_PART
    if scheme[0] in ("http:", "https:", "tel:", "sms:"):
        return EscapeContext.URL_PART
    return EscapeContext.MAILTO if scheme[0] == "mailto:" else scheme[0][:20]


@example(["a" * 25 + "/", "b:"])
@example(["a" * 25 + "?", "b:"])
@example(["a" * 25 + "#", "b:"])
@example(["a" * 25 + ":", "/"])
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), max_size=6))
def test_the_context_of_a_field_depends_on_the_whole_url_before_it(literals: list[str]) -> None:
    scanner, so_far = HtmlScanner(), ""
    scanner.read('<a title="https:" href="')
    for literal in literals:
        scanner.read(literal)
        so_far += literal
        found = scanner.context()
        expected = by_definition(so_far)
        if isinstance(found, Text):
            assert f"begins with {expected};" in str(found)
        else:
            assert found == expected
        so_far += MARK


def test_one_url_does_not_affect_the_next() -> None:
    scanner = HtmlScanner()
    scanner.read('<a href="mailto:')
    assert scanner.context() is EscapeContext.MAILTO
    scanner.read('"><a href="')
    assert scanner.context() is EscapeContext.URL
    scanner.read('"><a href="/u/')
    assert scanner.context() is EscapeContext.URL_PART


@pytest.mark.parametrize("start", ["", "https://x.example/?", "abc", "mailto:"])
def test_no_part_of_a_url_is_read_twice_however_many_fields_it_has(
    monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    read: list[int] = []

    def unescape(text: str) -> str:
        read.append(len(text))
        return html.unescape(text)

    monkeypatch.setattr(escape_context, "unescape", unescape)
    scanner, literals = HtmlScanner(), [start, *["x&amp;" * 50] * 200]
    scanner.read('<a href="')
    for literal in literals:
        scanner.read(literal)
        scanner.context()
    assert sum(read) <= sum(map(len, literals))
