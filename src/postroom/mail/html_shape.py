"""Refuse HTML of a shape that parsers are slow with, in linear time, before they see it.

Every call of a regular expression reads one tag or a piece of the text, so that other threads can
run in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postroom.domain.texts import _
from postroom.mail.merge import BadTemplate

# A parser's time grows with the square of these, and everything else waits for it.
TAGS_MAX = 10_000  # four times as many as in an email that Gmail shows whole
OPEN_MAX = 200  # nested elements; layouts of tables within tables reach fifty
ATTRIBUTES_MAX = 200  # of one tag
READ_AGAIN_MAX = 8  # times the length; real HTML has hardly a “<” within a tag
_PIECE_CHARS = 256 * 1024

ATTRIBUTE = (
    r"[\s/]*+[^\s/>][^\s/>=]*+"
    r"(?:\s*+=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\s>\"'][^\s>]*+)?+)?+"
)
# Its name, the equals sign, and the value with its quotation marks.
ATTRIBUTE_PARTS = re.compile(
    r"([^\s/>=\"'][^\s/>=]*+)(?:(\s*+=\s*+)(\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+)?+)?+"
)
_TAG_NAME = r"<(/?)([A-Za-z][^\s/>]*+)"
_START = re.compile("<(/?)[A-Za-z]")
# A tag with as many attributes as allowed, and whether it has one more.
_CROWDED_TAG = re.compile(
    rf"{_TAG_NAME}(?:{ATTRIBUTE}){{0,{ATTRIBUTES_MAX}}}+({ATTRIBUTE})?+[\s/]*+"
)
# Each alternative matches wherever it begins, so nothing is read twice.
_TAG = re.compile(
    rf"<!--(?:-?>|.*?(?:--!?>|\Z))|{_TAG_NAME}(?:{ATTRIBUTE})*+[\s/]*+(?:>|\Z)", re.DOTALL
)
_TAG_OPENS = re.compile("<(?:/?[A-Za-z]|!--)")
_OPENING_CHARS = 4  # the longest match of the patterns for the start of a tag
# Elements without an end tag, or with an optional one: the next of their kind closes them.
_UNCLOSED = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
    *("source", "track", "wbr", "html", "head", "body", "p", "li", "dt", "dd", "option"),
    *("td", "th", "tr", "tbody", "thead", "tfoot", "caption", "colgroup"),
}


def check_shape(markup: str) -> None:
    """Raise BadTemplate if the HTML has too many tags, attributes or nested elements."""
    tags = 0
    for start in _matches(_START, markup):
        tags += not start[1]
        if tags > TAGS_MAX:
            raise BadTemplate(_("The HTML has over {limit:,} tags; shorten it.", limit=TAGS_MAX))
    if _has_crowded_tag(markup):
        raise BadTemplate(
            _("A tag in the HTML has over {limit} attributes; remove some.", limit=ATTRIBUTES_MAX)
        )
    if tags > OPEN_MAX and _is_deeply_nested(markup):
        raise BadTemplate(
            _("The HTML has over {limit} nested elements; close some of them.", limit=OPEN_MAX)
        )


def _has_crowded_tag(markup: str) -> bool:
    """Check wherever a parser might see a tag: parsers differ in what they take for a comment.

    Tags within tags are read repeatedly, which is limited because nobody writes them on purpose.
    """
    room = READ_AGAIN_MAX * len(markup)
    for start in _matches(_START, markup):
        tag = _CROWDED_TAG.match(markup, start.start())
        assert tag is not None
        room -= tag.end() - tag.start()
        if tag[3] is not None or room < 0:
            return True
    return False


def _is_deeply_nested(markup: str) -> bool:
    """Whether more elements are open at the same time than any layout needs."""
    stack: list[str] = []
    stop = 0
    for start in _matches(_TAG_OPENS, markup):
        if start.start() < stop:  # within the tag or comment before
            continue
        tag = _TAG.match(markup, start.start())
        assert tag is not None
        stop = tag.end()
        name = (tag[2] or "").lower()
        if not name or name in _UNCLOSED:
            continue
        if not tag[1]:
            stack.append(name)
        elif name in stack:
            at = len(stack) - 1 - stack[::-1].index(name)
            if "table" not in stack[at + 1 :]:  # an end tag in a cell closes nothing around it
                del stack[at]
        if len(stack) > OPEN_MAX:
            return True
    return False


def _matches(pattern: re.Pattern[str], markup: str) -> Iterator[re.Match[str]]:
    """Search piece by piece, without cutting the start of a tag in two."""
    for at in range(0, len(markup), _PIECE_CHARS):
        for found in pattern.finditer(markup, at, at + _PIECE_CHARS + _OPENING_CHARS - 1):
            if found.start() < at + _PIECE_CHARS:  # otherwise the next piece has it
                yield found
