"""How the values of a merge field must be escaped, by where the field is in an HTML document.

The scanner reads only as much HTML as that takes. The document comes from the author of the message
and is trusted; the values are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from postroom.domain.texts import Text, _
from postroom.mail.entities import unescape


class EscapeContext(StrEnum):
    """Where a field is, which decides how its values are escaped."""

    TEXT = "text"
    HEADER = "header"  # unescaped: header.py encodes the whole line
    HTML = "html"  # between tags or in a quoted attribute
    URL = "url"  # at the start of a URL attribute: the value must be a web address itself
    URL_PART = "url part"  # further on in a URL, in HTML or in plain text
    MAILTO = "mailto"  # in a mailto: URL, where "@" keeps its meaning
    READY = "ready"  # written by control_flow.py, which has escaped every value in it


# Why a field cannot be where it is: no escaping makes its values harmless there. Each text goes on
# after "the field …".
_IN_CODE = _("is inside a script or style; move it into the text.")
_IN_TAG_NAME = _("is in the name of a tag; move it into the text.")
_IN_TAG = _("is in a tag, but not in an attribute's value; move it into one.")
_UNQUOTED = _('is in an attribute without quotation marks; write it as in href="…".')
_IN_COMMENT = _("is inside a comment or declaration; move it out.")

_TAG_NAME = re.compile(r"[^\s/>]*")
_GAP = re.compile(r"[\s/]*")
_ATTRIBUTE_NAME = re.compile(r"[^\s/>][^\s/>=]*")  # a "=" in front belongs to the name
_BLANK = re.compile(r"\s*")
_UNQUOTED_VALUE = re.compile(r"[^\s>]*")
_COMMENT_OPEN = re.compile(r"!--(-?>)?")
_COMMENT_CLOSE = re.compile(r"--!?>")
_DECLARATION_CLOSE = re.compile(">")
_UNFINISHED_TAG = re.compile(r"</?[A-Za-z]*\Z")
_SCHEME = re.compile(r"[^/?#]*?:")

# Elements whose content is not HTML; the first kind still has entities.
_ESCAPED_TEXT = frozenset(("title", "textarea"))
_RAW_TEXT = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext"))
_URL_ATTRIBUTES = {
    *("href", "xlink:href", "src", "srcset", "background", "poster"),
    *("action", "formaction", "cite", "data", "longdesc"),
}
_CODE_ATTRIBUTES = frozenset(("style", "srcdoc"))
_WEB_SCHEMES = frozenset(("http:", "https:", "tel:", "sms:"))
_VALUE_MARK = "\ufffc"  # replaces a value among the literals of a URL
_SCHEME_CHARS_SHOWN = 20  # longer than every scheme allowed here
_SCHEME_IS_COMPLETE = re.compile(r"[:/?#]")
_TAIL_CHARS = 40  # enough to see an unfinished "</textarea"


class HtmlScanner:
    """Reads a document piece by piece and knows the context of a field between two pieces."""

    def __init__(self) -> None:
        self.line = 1
        self._state: Callable[[str, int], int] = self._text
        self._element = ""
        self._is_closing = False
        self._comment_close = _COMMENT_CLOSE
        self._attribute = ""
        self._quote = ""
        self._value = ""  # of an attribute, since its last field
        self._url_start = ""  # up to the last field of the URL
        self._url_context: EscapeContext | Text | None = None  # of all further fields in the URL
        self._tail = ""

    def read(self, literal: str) -> None:
        """Read on to the end of this piece; every step either moves on or changes the state."""
        position = 0
        while position < len(literal):
            position = self._state(literal, position)
        self.line += literal.count("\n")
        self._tail = literal[-_TAIL_CHARS:]

    @property
    def is_in_text(self) -> bool:
        """Whether what follows is shown as part of the page."""
        return self._state == self._text

    def context(self) -> EscapeContext | Text:
        """The context of a field at this point, or why there can be none."""
        if self.is_in_text:
            return EscapeContext.HTML
        if self._state == self._quoted_value:
            return self._context_in_attribute()
        if self._state == self._raw_text:
            if self._element not in _ESCAPED_TEXT:
                return _IN_CODE
            return _IN_TAG_NAME if _UNFINISHED_TAG.search(self._tail) else EscapeContext.HTML
        if self._state in (self._before_value, self._unquoted_value):
            return _UNQUOTED
        if self._state == self._comment:
            return _IN_COMMENT
        return _IN_TAG_NAME if self._state in (self._opening, self._tag_name) else _IN_TAG

    def _context_in_attribute(self) -> EscapeContext | Text:
        literal = self._value
        self._value = ""
        if self._attribute in _CODE_ATTRIBUTES or self._attribute.startswith("on"):
            return _(
                "is in the attribute {name}, which contains code; move it.", name=self._attribute
            )
        if self._attribute not in _URL_ATTRIBUTES:
            return EscapeContext.HTML
        if self._url_context:
            return self._url_context
        # Once the start of a URL decides, the rest is not read, however long it is.
        start = self._url_start + "".join(unescape(literal).split()).lower()
        self._url_start = start[:_SCHEME_CHARS_SHOWN] + _VALUE_MARK
        context = _context_after(start)
        if _SCHEME_IS_COMPLETE.search(start):
            self._url_context = context
        return context

    # The states: each reads from `position` on, sets the next state and returns where it stopped.

    def _text(self, literal: str, position: int) -> int:
        opening = literal.find("<", position)
        if opening < 0:
            return len(literal)
        self._state = self._opening
        self._is_closing = False
        return opening + 1

    def _opening(self, literal: str, position: int) -> int:
        character = literal[position]
        if character == "/" and not self._is_closing:
            self._is_closing = True
            return position + 1
        if character.isascii() and character.isalpha():
            self._state = self._tag_name
            self._element = ""
            return position
        if character not in "!?" and not self._is_closing:
            self._state = self._text  # a mere character, as in "a < b"
            return position
        comment = _COMMENT_OPEN.match(literal, position)
        self._comment_close = _COMMENT_CLOSE if comment else _DECLARATION_CLOSE
        self._state = self._text if comment and comment[1] else self._comment
        return comment.end() if comment else position

    def _comment(self, literal: str, position: int) -> int:
        close = self._comment_close.search(literal, position)
        if close is None:
            return len(literal)
        self._state = self._text
        return close.end()

    def _tag_name(self, literal: str, position: int) -> int:
        stop = _end(_TAG_NAME, literal, position)
        self._element += literal[position:stop].lower()
        if stop < len(literal):
            self._state = self._between_attributes
        return stop

    def _between_attributes(self, literal: str, position: int) -> int:
        stop = _end(_GAP, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] == ">":
            is_raw = self._element in _RAW_TEXT or self._element in _ESCAPED_TEXT
            self._state = self._raw_text if is_raw and not self._is_closing else self._text
            return stop + 1
        self._state = self._attribute_name
        return stop

    def _attribute_name(self, literal: str, position: int) -> int:
        stop = _end(_ATTRIBUTE_NAME, literal, position)
        self._attribute = literal[position:stop].lower()
        self._state = self._after_name
        return stop

    def _after_name(self, literal: str, position: int) -> int:
        stop = _end(_BLANK, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] == "=":
            self._state = self._before_value
            return stop + 1
        self._state = self._between_attributes
        return stop

    def _before_value(self, literal: str, position: int) -> int:
        stop = _end(_BLANK, literal, position)
        if stop == len(literal):
            return stop
        if literal[stop] in "\"'":
            self._state = self._quoted_value
            self._quote = literal[stop]
            self._value = self._url_start = ""
            self._url_context = None
            return stop + 1
        self._state = self._unquoted_value
        return stop

    def _quoted_value(self, literal: str, position: int) -> int:
        close = literal.find(self._quote, position)
        stop = len(literal) if close < 0 else close
        self._value += literal[position:stop]
        if close < 0:
            return stop
        self._state = self._between_attributes
        return stop + 1

    def _unquoted_value(self, literal: str, position: int) -> int:
        stop = _end(_UNQUOTED_VALUE, literal, position)
        if stop < len(literal):
            self._state = self._between_attributes
        return stop

    def _raw_text(self, literal: str, position: int) -> int:
        close = re.compile(rf"</{self._element}(?=[\s/>])", re.IGNORECASE).search(literal, position)
        if close is None:
            return len(literal)
        self._state = self._between_attributes
        self._is_closing = True
        return close.end()


def _context_after(url_start: str) -> EscapeContext | Text:
    if not url_start:
        return EscapeContext.URL
    scheme = _SCHEME.match(url_start)
    if scheme is None or scheme[0] in _WEB_SCHEMES or url_start.startswith(_VALUE_MARK):
        return EscapeContext.URL_PART
    if scheme[0] == "mailto:":
        return EscapeContext.MAILTO
    start = scheme[0][:_SCHEME_CHARS_SHOWN]
    return _("is in a link that begins with {start}; use https:.", start=start)


def _end(pattern: re.Pattern[str], literal: str, position: int) -> int:
    found = pattern.match(literal, position)
    return found.end() if found else position
