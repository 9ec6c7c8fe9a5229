"""Whether HTML has a shape that parsers are quick with; told in linear time, before they see it.

Every call of a regular expression reads one tag or a piece of the text, so that other threads get
their turn in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from postroom.domain.texts import _
from postroom.mail.merge import BadTemplate

# Parsers take time by the square of these, and hold everything up meanwhile.
TAGS_MAX = 10_000  # four times those of a mail that Gmail shows whole
OPEN_MAX = 200  # elements one within another; layouts of tables in tables come to fifty
ATTRIBUTES_MAX = 200  # of one tag
READ_AGAIN_MAX = 8  # times its length; HTML has hardly a “<” within the tag before
_PIECE_CHARS = 256 * 1024

_ATTRIBUTE = (
    r"[\s/]*+[^\s/>][^\s/>=]*+"
    r"(?:\s*+=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\s>\"'][^\s>]*+)?+)?+"
)
_TAG_NAME = r"<(/?)([A-Za-z][^\s/>]*+)"
_START = re.compile("<(/?)[A-Za-z]")
_START_CHARS = 3
# As many attributes as a tag may have, and whether there is one more.
_CROWD = re.compile(rf"{_TAG_NAME}(?:{_ATTRIBUTE}){{0,{ATTRIBUTES_MAX}}}+({_ATTRIBUTE})?+[\s/]*+")
# Each alternative matches wherever it begins, so that nothing is read twice.
_TAG = re.compile(
    rf"<!--(?:-?>|.*?(?:--!?>|\Z))|{_TAG_NAME}(?:{_ATTRIBUTE})*+[\s/]*+(?:>|\Z)", re.DOTALL
)
_TAG_OPENS = re.compile("<(?:/?[A-Za-z]|!--)")
_TAG_OPENS_CHARS = 4
# What has no end tag, or may go without: the next of its kind closes it.
_UNCLOSED = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
        *("source", "track", "wbr", "html", "head", "body", "p", "li", "dt", "dd", "option"),
        *("td", "th", "tr", "tbody", "thead", "tfoot", "caption", "colgroup"),
    )
)


def check_shape(markup: str) -> None:
    """BadTemplate if the HTML is nested or crowded beyond what a parser is quick with."""
    tags = 0
    for start in _found(_START, _START_CHARS, markup):
        tags += not start[1]
        if tags > TAGS_MAX:
            raise BadTemplate(_("The HTML has over {limit:,} tags; shorten it.", limit=TAGS_MAX))
    if _has_crowd(markup):
        raise BadTemplate(
            _("A tag of the HTML has over {limit} attributes; remove some.", limit=ATTRIBUTES_MAX)
        )
    if tags > OPEN_MAX and _is_deep(markup):
        raise BadTemplate(
            _(
                "Over {limit} elements of the HTML are open one within another; close them.",
                limit=OPEN_MAX,
            )
        )


def _has_crowd(markup: str) -> bool:
    """From wherever a parser might see a tag: what is a comment or a text depends on the parser.

    Tags within tags are read again and again, so that is limited: nobody writes them by intent.
    """
    room = READ_AGAIN_MAX * len(markup)
    for start in _found(_START, _START_CHARS, markup):
        tag = _CROWD.match(markup, start.start())
        assert tag is not None
        room -= tag.end() - tag.start()
        if tag[3] is not None or room < 0:
            return True
    return False


def _is_deep(markup: str) -> bool:
    """Whether more elements are open at a time than any layout takes."""
    stack: list[str] = []
    for tag in _tags(markup):
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


def _tags(markup: str) -> Iterator[re.Match[str]]:
    """Tags and comments, none within another."""
    stop = 0
    for start in _found(_TAG_OPENS, _TAG_OPENS_CHARS, markup):
        if start.start() < stop:
            continue
        tag = _TAG.match(markup, start.start())
        assert tag is not None
        yield tag
        stop = tag.end()


def _found(pattern: re.Pattern[str], chars: int, markup: str) -> Iterator[re.Match[str]]:
    """Every match, piece by piece; one of at most `chars` is not cut in two."""
    for at in range(0, len(markup), _PIECE_CHARS):
        for found in pattern.finditer(markup, at, at + _PIECE_CHARS + chars - 1):
            if found.start() < at + _PIECE_CHARS:  # the rest is the next piece's
                yield found
