"""Merge fields: what a template may say in `{{ }}`, and how a value is escaped where it stands.

    {{ name }}    {{ name | default("friend") }}    {{ email }}    {{ unsubscribe_url }}

Any attribute of a subscriber can be a field. A text in quotation marks stands for itself, so that
`{{ "{{" }}` is two plain braces. Where a field stands decides how its values are escaped, and that
is found out once, when the template is compiled.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from urllib.parse import quote

import msgspec

from postroom.domain.address import CONTROL
from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.mail.escape_context import EscapeContext, HtmlScanner

VALUE_CHARS_MAX = 2000  # a value is a name or a sentence; longer ones are clipped in a mail
FIELD_CHARS_MAX = 300  # between the braces: anything longer is a forgotten "}}"
FIELDS_MAX = 1000  # in one template: every field costs time in every mail

_NAME = re.compile(r"\w(?:[\w .-]*\w)?")
_QUOTED = r"\s*(?:\"([^\"]*)\"|'([^']*)')\s*"
_TEXT = re.compile(_QUOTED)
_FIELD = re.compile(rf"\s*({_NAME.pattern})\s*(?:\|\s*default\({_QUOTED}\)\s*)?")
_BRACES = re.compile(r"\{{2,100}|\{\Z")  # the last one: a field may come next
_WEB_URL = re.compile(r"https?://[^\s<>\"\\]+", re.IGNORECASE)
_URL_BEGINS = re.compile(r"https?://", re.IGNORECASE)
_NOT_IN_A_URL = re.compile(r"[\s<>]")
_PIECE_CHARS = 4096


class BadTemplate(BadInput):
    """A template that cannot be sent; the message is a sentence that names the line."""


class Field(msgspec.Struct, frozen=True):
    name: str
    fallback: str = ""
    place: EscapeContext = EscapeContext.TEXT


Segment = str | Field


class Span(msgspec.Struct, frozen=True):
    """A pair of braces in a template, whether or not what they enclose is understood."""

    start: int
    stop: int
    inner: str


def compile_text(template: str) -> list[Segment]:
    """Segments of a plain text; a field within a web address is part of a URL."""
    segments: list[Segment] = []
    before = ""
    for segment in parse(template):
        if isinstance(segment, str):
            segments.append(segment)
            before += segment
            continue
        under_way = _ends_in_a_url(before)
        place = EscapeContext.URL_PART if under_way else EscapeContext.TEXT
        segments.append(Field(segment.name, segment.fallback, place))
        before = "https://x" if under_way else ""  # it goes on after the field, wherever it began
    return segments


def _ends_in_a_url(text: str) -> bool:
    """In linear time, whatever the text: one pattern for it all would try from every “http”.

    Read backwards in pieces: a list of a million words would take a while.
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
    """Segments of an HTML document; BadTemplate where a value could not be made harmless."""
    scanner = HtmlScanner()
    segments: list[Segment] = []
    for segment in parse(template, is_html=True):
        if isinstance(segment, str):
            scanner.read(segment)
            segments.append(segment)
            continue
        place = scanner.place()
        if not isinstance(place, EscapeContext):
            raise BadTemplate(
                _(
                    "Line {line}: the field {{{{ {name} }}}} {why}",
                    line=scanner.line,
                    name=segment.name,
                    why=place.words,
                )
            )
        segments.append(Field(segment.name, segment.fallback, place))
    if not scanner.is_in_text:  # the foot would be hidden in it
        raise BadTemplate(
            _(
                "Line {line}: the HTML ends inside a tag, a comment, or an element as style or "
                "title; close it.",
                line=scanner.line,
            )
        )
    return segments


def compile_header(template: str) -> list[Segment]:
    return [
        segment
        if isinstance(segment, str)
        else Field(segment.name, segment.fallback, EscapeContext.HEADER)
        for segment in parse(template)
    ]


def parse(template: str, *, is_html: bool = False) -> list[Segment]:
    """Literals and fields in order, no two literals side by side; BadTemplate if not understood.

    In HTML what stands between the braces may be written with entities, as editors do.
    """
    segments: list[Segment] = []
    literal, position, fields = "", 0, 0
    for span in spans(template):
        literal += template[position : span.start]
        position = span.stop
        said = _said(template, span, html.unescape(span.inner) if is_html else span.inner)
        if isinstance(said, str):
            literal += html.escape(said) if is_html else said
            continue
        segments += [literal, said] if literal else [said]
        literal, fields = "", fields + 1
        if fields > FIELDS_MAX:
            raise BadTemplate(
                _("There are more than {limit} merge fields; use fewer.", limit=FIELDS_MAX)
            )
    literal += template[position:]
    return [*segments, literal] if literal else segments


def spans(template: str) -> Iterator[Span]:
    """The pairs of braces, in order; BadTemplate if one is never closed."""
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
        position = close + 2
        yield Span(start, position, template[start + 2 : close])


def escape_braces(literal: str) -> str:
    """The template that says just this, whatever comes next."""
    return _BRACES.sub(lambda braces: f'{{{{ "{braces[0]}" }}}}', literal)


def fill(segments: Iterable[Segment], values: Mapping[str, str]) -> str:
    """The text with every field replaced by its escaped value."""
    return "".join(
        segment if isinstance(segment, str) else escape(value_of(segment, values), segment.place)
        for segment in segments
    )


def value_of(field: Field, values: Mapping[str, str]) -> str:
    """What a field stands for: its fallback where the value is missing or blank."""
    value = values.get(field.name)
    return value if value and not value.isspace() else field.fallback


def escape(value: str, place: EscapeContext) -> str:
    """The value as it may stand in that place, without changing what is around it.

    Controls become spaces: `check_attribute` refuses them on the way in, and one old value must
    not stop the mails of everybody else in its batch.
    """
    return _ESCAPES[place](CONTROL.sub(" ", value[:VALUE_CHARS_MAX]))


def _escaped_url(value: str) -> str:
    # "#" leads nowhere: better than a link to whatever a subscriber typed.
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


def _said(template: str, span: Span, inner: str) -> Segment:
    field = _FIELD.fullmatch(inner)
    if field is not None:
        return Field(" ".join(field[1].split()), field[2] or field[3] or "")
    text = _TEXT.fullmatch(inner)
    if text is not None:
        return text[1] or text[2] or ""
    quoted = " ".join(template[span.start : span.stop].split())
    raise BadTemplate(
        _(
            "Line {line}: “{quoted}” is not a merge field. Write {{{{ name }}}} or {{{{ "
            'name | default("friend") }}}}.',
            line=line_of(template, span.start),
            quoted=quoted[:80],
        )
    )
