"""Where in an HTML document a merge field stands, and so how its values must be escaped.

The scanner reads HTML only as closely as that question takes. The document comes from the author
of the message and is trusted; the values are not.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from enum import StrEnum

import msgspec

from postroom.domain.texts import Text, _


class EscapeContext(StrEnum):
    """Where a field stands, and so how its values are escaped."""

    TEXT = "text"
    HEADER = "header"  # as it is: header.py encodes the whole line
    HTML = "html"  # between tags or in a quoted attribute
    URL = "url"  # at the start of a URL attribute: must be a web address itself
    URL_PART = "url part"  # further on in a URL, in HTML or in plain text
    MAILTO = "mailto"  # in a mailto: URL, where "@" keeps its meaning


class MisplacedField(msgspec.Struct, frozen=True):
    """No escaping makes a value harmless here; `words` go on after "the field …"."""

    words: Text


_IN_CODE = MisplacedField(_("stands inside a script or style; move it into the text."))
_IN_TAG_NAME = MisplacedField(_("stands in the name of a tag; move it into the text."))
_IN_TAG = MisplacedField(_("stands in a tag, but in no attribute's value; move it into one."))
_UNQUOTED = MisplacedField(
    _('stands in an attribute without quotation marks; write it as in href="…".')
)
_IN_COMMENT = MisplacedField(_("stands inside a comment or declaration; move it out."))

_TAG_NAME = re.compile(r"[^\s/>]*")
_GAP = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME = re.compile(r"[^\s/>][^\s/>=]*")  # a "=" in front belongs to the name
_BLANK = re.compile(r"\s*")
_UNQUOTED_VALUE = re.compile(r"[^\s>]*")
_COMMENT_OPEN = re.compile(r"!--(-?>)?")
_COMMENT_CLOSE = re.compile(r"--!?>")
_TAG_UNDER_WAY = re.compile(r"</?[A-Za-z]*\Z")
_SCHEME = re.compile(r"[^/?#]*?:")

# Elements whose content is not HTML; in the first kind entities still count.
_ESCAPED_TEXT = frozenset(("title", "textarea"))
_RAW_TEXT = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"))
_URL_ATTRIBUTES = frozenset(
    (
        *("href", "xlink:href", "src", "srcset", "background", "poster"),
        *("action", "formaction", "cite", "data", "longdesc"),
    )
)
_CODE_ATTRIBUTES = frozenset(("style", "srcdoc"))
_WEB_SCHEMES = frozenset(("http:", "https:", "tel:", "sms:"))
_VALUE_MARK = "\ufffc"  # stands for a value among the literals of a URL
_SCHEME_CHARS_SHOWN = 20  # longer than every scheme we know
_SCHEME_SETTLED = re.compile(r"[:/?#]")
_TAIL_CHARS = 40  # enough to see "</textarea" under way


class HtmlScanner:
    """Reads a document piece by piece and says what a field between two pieces would be in."""

    def __init__(self) -> None:
        self.line = 1
        self._step: Callable[[str, int], int] = self._text
        self._element = ""
        self._is_closing = False
        self._attribute = ""
        self._quote = ""
        self._value = ""  # of an attribute, since its last field
        self._url_start = ""  # of a URL, up to its last field
        self._url_place: EscapeContext | MisplacedField | None = (
            None  # of every further field in this URL
        )
        self._tail = ""

    def read(self, literal: str) -> None:
        """Go on to the end of this piece; every step either moves or changes the state."""
        position = 0
        while position < len(literal):
            position = self._step(literal, position)
        self.line += literal.count("\n")
        self._tail = literal[-_TAIL_CHARS:]

    @property
    def is_in_text(self) -> bool:
        """Whether what follows here is shown as a part of the page."""
        return self._step == self._text

    def place(self) -> EscapeContext | MisplacedField:
        """The place of a field that stands here."""
        if self.is_in_text:
            return EscapeContext.HTML
        if self._step == self._quoted_value:
            return self._place_in_attribute()
        if self._step == self._raw_text:
            return self._place_in_raw_text()
        if self._step in (self._before_value, self._unquoted_value):
            return _UNQUOTED
        if self._step in (self._comment, self._declaration):
            return _IN_COMMENT
        return _IN_TAG_NAME if self._step in (self._opening, self._tag_name) else _IN_TAG

    def _place_in_attribute(self) -> EscapeContext | MisplacedField:
        literal, self._value = self._value, ""
        if self._attribute in _CODE_ATTRIBUTES or self._attribute.startswith("on"):
            return MisplacedField(
                _("stands in the attribute {name}, which is code; move it.", name=self._attribute)
            )
        if self._attribute not in _URL_ATTRIBUTES:
            return EscapeContext.HTML
        return self._url_place or self._place_in_url(literal)

    def _place_in_url(self, literal: str) -> EscapeContext | MisplacedField:
        """What the start of the URL says; once it decides, nobody reads the rest, however long."""
        start = self._url_start + "".join(html.unescape(literal).split()).lower()
        self._url_start = start[:_SCHEME_CHARS_SHOWN] + _VALUE_MARK
        place = _place_after(start)
        if _SCHEME_SETTLED.search(start):
            self._url_place = place
        return place

    def _place_in_raw_text(self) -> EscapeContext | MisplacedField:
        if self._element not in _ESCAPED_TEXT:
            return _IN_CODE
        return _IN_TAG_NAME if _TAG_UNDER_WAY.search(self._tail) else EscapeContext.HTML

    # The states. Each reads from `position` on, sets the next state and says where it stopped.

    def _text(self, literal: str, position: int) -> int:
        opening = literal.find("<", position)
        if opening < 0:
            return len(literal)
        self._step, self._is_closing = self._opening, False
        return opening + 1

    def _opening(self, literal: str, position: int) -> int:
        character = literal[position]
        if character == "/" and not self._is_closing:
            self._is_closing = True
            return position + 1
        if character.isascii() and character.isalpha():
            self._step, self._element = self._tag_name, ""
            return position
        if character in "!?" or self._is_closing:
            return self._markup(literal, position)
        self._step = self._text  # as in "a < b": a mere character
        return position

    def _markup(self, literal: str, position: int) -> int:
        comment = _COMMENT_OPEN.match(literal, position)
        if comment is None:
            self._step = self._declaration
            return position
        self._step = self._text if comment[1] else self._comment
        return comment.end()

    def _comment(self, literal: str, position: int) -> int:
        close = _COMMENT_CLOSE.search(literal, position)
        if close is None:
            return len(literal)
        self._step = self._text
        return close.end()

    def _declaration(self, literal: str, position: int) -> int:
        close = literal.find(">", position)
        if close < 0:
            return len(literal)
        self._step = self._text
        return close + 1

    def _tag_name(self, literal: str, position: int) -> int:
        stop = _end(_TAG_NAME, literal, position)
        self._element += literal[position:stop].lower()
        if stop < len(literal):
            self._step = self._between_attributes
        return stop

    def _between_attributes(self, literal: str, position: int) -> int:
        stop = _end(_GAP, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] == ">":
            is_raw = self._element in _RAW_TEXT or self._element in _ESCAPED_TEXT
            self._step = self._raw_text if is_raw and not self._is_closing else self._text
            return stop + 1
        self._step = self._attribute_name
        return stop

    def _attribute_name(self, literal: str, position: int) -> int:
        stop = _end(_ATTRIBUTE_NAME, literal, position)
        self._attribute = literal[position:stop].lower()
        self._step = self._after_name
        return stop

    def _after_name(self, literal: str, position: int) -> int:
        stop = _end(_BLANK, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] == "=":
            self._step = self._before_value
            return stop + 1
        self._step = self._between_attributes
        return stop

    def _before_value(self, literal: str, position: int) -> int:
        stop = _end(_BLANK, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] in "\"'":
            self._step, self._quote = self._quoted_value, literal[stop]
            self._value, self._url_start, self._url_place = "", "", None
            return stop + 1
        self._step = self._unquoted_value
        return stop

    def _quoted_value(self, literal: str, position: int) -> int:
        close = literal.find(self._quote, position)
        stop = len(literal) if close < 0 else close
        self._value += literal[position:stop]
        if close < 0:
            return stop
        self._step = self._between_attributes
        return stop + 1

    def _unquoted_value(self, literal: str, position: int) -> int:
        stop = _end(_UNQUOTED_VALUE, literal, position)
        if stop < len(literal):
            self._step = self._between_attributes
        return stop

    def _raw_text(self, literal: str, position: int) -> int:
        close = re.compile(rf"</{self._element}(?=[\s/>])", re.IGNORECASE).search(literal, position)
        if close is None:
            return len(literal)
        self._step, self._is_closing = self._between_attributes, True
        return close.end()


def _place_after(url_start: str) -> EscapeContext | MisplacedField:
    if not url_start:
        return EscapeContext.URL
    scheme = _SCHEME.match(url_start)
    if scheme is None or scheme[0] in _WEB_SCHEMES or url_start.startswith(_VALUE_MARK):
        return EscapeContext.URL_PART
    if scheme[0] == "mailto:":
        return EscapeContext.MAILTO
    shown = scheme[0][:_SCHEME_CHARS_SHOWN]
    return MisplacedField(_("stands in a link that begins with {start}; use https:.", start=shown))


def _end(pattern: re.Pattern[str], literal: str, position: int) -> int:
    found = pattern.match(literal, position)
    return found.end() if found else position
