"""Merge fields: what may be between `{{` and `}}`, and how each value is escaped.

    {{ name }}    {{ name | default("friend") }}    {{ email }}    {{ unsubscribe_url }}

Any attribute of a subscriber can be a field. A text in quotation marks is that text, so
`{{ "{{" }}` is two plain braces. Where a field is decides how its values are escaped; the template
is examined for that once, when it is compiled.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from urllib.parse import quote

import msgspec

from postroom.domain.address import CONTROL
from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.mail.entities import unescape
from postroom.mail.escape_context import EscapeContext, HtmlScanner

VALUE_CHARS_MAX = 2000  # a value is a name or a sentence; longer ones are clipped
FIELD_CHARS_MAX = 300  # between the braces: anything longer is a forgotten "}}"
FIELDS_MAX = 1000  # in one template: every field costs time in every email

_NAME = re.compile(r"\w(?:[\w .-]*\w)?")
_QUOTED = r"\s*(?:\"([^\"]*)\"|'([^']*)')\s*"
_TEXT = re.compile(_QUOTED)
_FIELD = re.compile(rf"\s*({_NAME.pattern})\s*(?:\|\s*default\({_QUOTED}\)\s*)?")
_BRACES = re.compile(r"\{{2,100}|\{\Z")  # a single one at the end: a field may come next
_WEB_URL = re.compile(r"https?://[^\s<>\"\\]+", re.IGNORECASE)
_URL_BEGINS = re.compile(r"https?://", re.IGNORECASE)
_NOT_IN_A_URL = re.compile(r"[\s<>]")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_PIECE_CHARS = 4096


class BadTemplate(BadInput):
    """A template that cannot be sent; the message is a sentence that names the line."""


class Field(msgspec.Struct, frozen=True):
    name: str
    fallback: str = ""
    context: EscapeContext = EscapeContext.TEXT


Segment = str | Field


def compile_text(template: str) -> list[Segment]:
    """Compile a plain text; a field within a web address is part of a URL."""
    segments: list[Segment] = []
    before = ""
    for segment in parse(template):
        if isinstance(segment, str):
            segments.append(segment)
            before += segment
            continue
        is_in_url = ends_in_a_url(before)
        context = EscapeContext.URL_PART if is_in_url else EscapeContext.TEXT
        segments.append(Field(segment.name, segment.fallback, context))
        before = "https://x" if is_in_url else ""  # the URL goes on after the field
    return segments


def ends_in_a_url(text: str) -> bool:
    """Whether text that follows would be part of a URL.

    Takes linear time for any text, where a single pattern would start again at every "http". Reads
    backwards in pieces, so that a text of a million words is not split at once.
    """
    stop = len(text)
    while stop > 0:
        start = max(0, stop - _PIECE_CHARS)
        ends = [end.end() for end in _NOT_IN_A_URL.finditer(text, start, stop)]
        if ends:
            return _URL_BEGINS.search(text, ends[-1]) is not None
        stop = start
    return _URL_BEGINS.search(text) is not None


def compile_html(template: str) -> list[Segment]:
    """Compile an HTML document; BadTemplate if no escaping makes the values of a field harmless."""
    scanner = HtmlScanner()
    segments: list[Segment] = []
    for segment in parse(template, is_html=True):
        if isinstance(segment, str):
            scanner.read(segment)
            segments.append(segment)
            continue
        segments.append(placed_field(segment, scanner))
    if not scanner.is_in_text:  # the footer would be hidden in it
        raise BadTemplate(
            _(
                "Line {line}: the HTML ends inside a tag, a comment, or an element such as style "
                "or title; close it.",
                line=scanner.line,
            )
        )
    return segments


def placed_field(field: Field, scanner: HtmlScanner) -> Field:
    """The field with its context; BadTemplate if no escaping makes its values harmless there."""
    context = scanner.context()
    if isinstance(context, EscapeContext):
        return Field(field.name, field.fallback, context)
    raise BadTemplate(
        _(
            "Line {line}: the field {{{{ {name} }}}} {why}",
            line=scanner.line,
            name=field.name,
            why=context,
        )
    )


def compile_header(template: str) -> list[Segment]:
    return parse(template, context=EscapeContext.HEADER)


def parse(
    template: str, *, is_html: bool = False, context: EscapeContext = EscapeContext.TEXT
) -> list[Segment]:
    """Split into literals and fields, never two literals in a row; BadTemplate if it cannot.

    In HTML, what is between the braces may be written with entities, as editors do.
    """
    segments: list[Segment] = []
    fields = 0
    pieces = split_fields(template)
    literal = pieces[0]
    for at in range(1, len(pieces), 2):
        inner = without_invisible(unescape(pieces[at][2:-2]) if is_html else pieces[at][2:-2])
        if field := _FIELD.fullmatch(inner):
            segments += [literal] if literal else []
            name = " ".join(field[1].split())
            segments.append(Field(name, field[2] or field[3] or "", context))
            literal = ""
            fields += 1
        elif text := _TEXT.fullmatch(inner):
            plain = text[1] or text[2] or ""
            literal += html.escape(plain) if is_html else plain
        else:
            raise BadTemplate(
                _(
                    "Line {line}: “{quoted}” is not a merge field. Write {{{{ name }}}} or {{{{ "
                    'name | default("friend") }}}}.',
                    line=line_of(template, len("".join(pieces[:at]))),
                    quoted=" ".join(pieces[at].split())[:80],
                )
            )
        if fields > FIELDS_MAX:
            raise BadTemplate(
                _("There are more than {limit} merge fields; use fewer.", limit=FIELDS_MAX)
            )
        literal += pieces[at + 1]
    return [*segments, literal] if literal else segments


def without_invisible(inner: str) -> str:
    """The text between braces without invisible characters that editors add."""
    return _UNSEEN.sub("", inner.replace("\xa0", " "))


def split_fields(template: str) -> list[str]:
    """Split into text and fields in turn, as `re.split` does; each field is with its braces.

    BadTemplate if a field is never closed.
    """
    pieces: list[str] = []
    position = 0
    while (start := template.find("{{", position)) >= 0:
        close = template.find("}}", start + 2, start + FIELD_CHARS_MAX)
        if close < 0:
            raise BadTemplate(
                _(
                    "Line {line}: “{{{{” is never closed by “}}}}”. Close it, or write {escaped} "
                    "for two plain braces.",
                    line=line_of(template, start),
                    escaped=escape_braces("{{"),
                )
            )
        pieces += [template[position:start], template[start : close + 2]]
        position = close + 2
    return [*pieces, template[position:]]


def escape_braces(literal: str) -> str:
    """Write a template that yields just this text, whatever follows it."""
    return _BRACES.sub(lambda braces: f'{{{{ "{braces[0]}" }}}}', literal)


def fill(segments: Iterable[Segment], values: Mapping[str, str]) -> str:
    """Replace every field by its escaped value."""
    return "".join(
        segment if isinstance(segment, str) else escape(value_of(segment, values), segment.context)
        for segment in segments
    )


def value_of(field: Field, values: Mapping[str, str]) -> str:
    """The field's value, or its fallback if the value is missing or blank."""
    value = values.get(field.name)
    return value if value and not value.isspace() else field.fallback


def escape(value: str, context: EscapeContext) -> str:
    """Escape a value so that it cannot change what is around it.

    Control characters become spaces. `check_attribute` refuses them in new values, but one old
    value must not stop the emails of everybody else in its batch.
    """
    if context is EscapeContext.READY:
        return value
    return _ESCAPES[context](CONTROL.sub(" ", value[:VALUE_CHARS_MAX]))


def _escaped_url(value: str) -> str:
    # "#" leads nowhere, which is better than a link to whatever a subscriber typed.
    return html.escape(value) if _WEB_URL.fullmatch(value) else "#"


_ESCAPES: dict[EscapeContext, Callable[[str], str]] = {
    EscapeContext.TEXT: str,
    EscapeContext.HEADER: str,
    EscapeContext.HTML: html.escape,
    EscapeContext.URL: _escaped_url,
    EscapeContext.URL_PART: partial(quote, safe=""),
    EscapeContext.MAILTO: partial(quote, safe="@"),
}


def line_of(template: str, position: int) -> int:
    return template.count("\n", 0, position) + 1
