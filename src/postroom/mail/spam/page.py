"""Read an HTML body as a spam filter does: visible and hidden text, links, pictures, code.

Only styles of the elements themselves count. Whatever a style sheet may change gets the benefit of
the doubt, because a warning about hidden text that everybody sees helps nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.html_shape import check_shape
from postroom.mail.merge import split_fields

FIELD = "{{…}}"  # replaces every merge field; no template can contain it, and a page can show it
LINKS_READ_MAX = 2000
PREVIEW_CHARS_MAX = 250  # hidden at the top; mail clients show it beside the subject
TINY_PX = 2.0
ALIKE_MAX = 16  # of 255, in each channel: nobody can distinguish such colours
SPACER_PX = 3  # a picture of this height or width shows nothing

Colour = tuple[int, int, int]
BLACK, WHITE, BLUE = (0, 0, 0), (255, 255, 255), (0, 0, 238)
_NAMED = {"black": BLACK, "white": WHITE, "snow": (255, 250, 250), "ivory": (255, 255, 240)}
_INVISIBLE = "transparent"

_UNREAD = {
    *("head", "title", "script", "style", "template", "noscript", "iframe", "object", "embed"),
    *("svg", "math", "select", "textarea", "audio", "video", "map"),
}
# These do not interrupt a word; every other element does.
INLINE = {
    *("a", "abbr", "b", "big", "code", "em", "font", "i", "ins", "mark", "q", "s", "small"),
    *("span", "strike", "strong", "sub", "sup", "tt", "u", "wbr"),
}
_FRAMES = "iframe, frame, object, embed, applet"
_DATA_TAGS = frozenset(("application/ld+json", "application/json"))  # Gmail reads the first kind
_HANDLER = re.compile(
    r"on(?:click|load|error|focus|blur|submit|change|input|(?:mouse|key|touch)\w+)"
)
_CODE_SCHEME = re.compile(r"(?:javascript|vbscript):", re.I)
_DATA_SCHEME = re.compile(r"data:", re.I)
_DATA_IN_STYLE = re.compile(r"url\(\s{0,9}[\"']?\s{0,9}data:", re.I)
_DATA_ATTRIBUTES = ("src", "href", "background", "poster", "data")
_CHARACTER = re.compile(r"[^\s\xad\u034f\u061c\u115f\u17b4\u200b-\u200f\u2060\ufeff]")
_NUMBER = re.compile(r"\s*([0-9]{0,6}(?:\.[0-9]{1,6})?)\s*(px|pt)?", re.I)
_HEX = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{6})", re.I)
_RGB = re.compile(r"rgba?\(([0-9]{1,3})[\s,]+([0-9]{1,3})[\s,]+([0-9]{1,3})([^)]{0,20})\)", re.I)
_NO_ALPHA = re.compile(r"[\s,/]+0?\.?0+%?\s*")


class PageLink(NamedTuple):
    href: str
    label: str


class PageFeatures(NamedTuple):
    """What the check needs to know of an HTML body."""

    shown: str
    hidden: str  # without the preview text
    links: list[PageLink]
    pictures: int
    scripts: list[str]
    forms: list[str]
    frames: list[str]
    data_uris: list[str]


class _StyleSheet(NamedTuple):
    """What the document's style sheets set, for any element."""

    background: bool
    display: bool
    font: bool


class TextStyle(NamedTuple):
    """How text looks at one place; None is unknown, and counts as readable."""

    is_hidden: bool = False
    size: float | None = None
    colour: Colour | str | None = BLACK
    background: Colour | None = WHITE

    @property
    def is_unseen(self) -> bool:
        if self.is_hidden or self.colour == _INVISIBLE:
            return True
        if self.size is not None and self.size <= TINY_PX:
            return True
        if not isinstance(self.colour, tuple) or self.background is None:
            return False
        pairs = zip(self.colour, self.background, strict=True)
        return all(abs(one - other) <= ALIKE_MAX for one, other in pairs)


def styled_texts(template: str) -> list[tuple[str, TextStyle]]:
    """Every piece of text with its style; BadTemplate as for `check_shape`."""
    markup = without_fields(template)
    check_shape(markup)
    return list(_text_nodes(LexborHTMLParser(markup)))


def without_fields(template: str) -> str:
    """Replace each merge field by FIELD; BadTemplate if one is never closed."""
    return FIELD.join(split_fields(template)[::2])


def read_page(template: str) -> PageFeatures:
    """Read an HTML template; BadTemplate as for `check_shape`."""
    markup = without_fields(template)
    check_shape(markup)
    document = LexborHTMLParser(markup)
    shown, hidden = _texts(document)
    return PageFeatures(
        shown=shown,
        hidden=hidden,
        links=[
            PageLink((node.attributes.get("href") or "").strip(), " ".join(node.text().split()))
            for node in document.css("a[href], area[href]")[:LINKS_READ_MAX]
        ],
        pictures=sum(not _is_spacer(node) for node in document.css("img")),
        scripts=list(_scripts(document)),
        forms=[f"<{node.tag}>" for node in document.css("form")],
        frames=[f"<{node.tag}>" for node in document.css(_FRAMES)],
        data_uris=list(_data_uris(document)),
    )


def _is_spacer(node: LexborNode) -> bool:
    sizes = (node.attributes.get("width") or "", node.attributes.get("height") or "")
    return any(size.isdecimal() and len(size) < 5 and int(size) <= SPACER_PX for size in sizes)


def _scripts(document: LexborHTMLParser) -> Iterator[str]:
    for node in document.css("script"):
        if (node.attributes.get("type") or "").strip().lower() not in _DATA_TAGS:
            yield "<script>"
    for node in document.css("*"):
        for name, value in node.attributes.items():
            if _HANDLER.fullmatch(name):
                yield f"<{node.tag} {name}=…>"
            elif name in ("href", "src", "action") and _CODE_SCHEME.match((value or "").strip()):
                yield f"<{node.tag} {name}={value}>"


def _data_uris(document: LexborHTMLParser) -> Iterator[str]:
    for node in document.css("*"):
        attributes = node.attributes
        for name in _DATA_ATTRIBUTES:
            if _DATA_SCHEME.match((attributes.get(name) or "").strip()):
                yield f"<{node.tag} {name}={(attributes[name] or '').strip()[:24]}…>"
        if _DATA_IN_STYLE.search(attributes.get("style") or ""):
            yield f"<{node.tag} style=…>"
        if node.tag == "style" and _DATA_IN_STYLE.search(node.text()):
            yield "<style>"


def _texts(document: LexborHTMLParser) -> tuple[str, str]:
    """Collect the text that people see and the text that they do not, in order."""
    shown: list[str] = []
    hidden: list[str] = []
    preview: list[str] = []
    has_begun = False
    for text, style in _text_nodes(document):
        has_characters = _CHARACTER.search(text) is not None
        if not style.is_unseen:
            shown.append(text)
            has_begun = has_begun or has_characters
        elif has_characters:
            (hidden if has_begun else preview).append(text.strip())
    if sum(map(len, preview)) > PREVIEW_CHARS_MAX:
        hidden = preview + hidden
    return "".join(shown), " ".join(hidden)


def _text_nodes(document: LexborHTMLParser) -> Iterator[tuple[str, TextStyle]]:
    """Walk the document without recursion, because its author decides how deep it is."""
    rules = " ".join(node.text() for node in document.css("style")).lower()
    sheet = _StyleSheet("background" in rules, "display" in rules, "font" in rules)
    if document.body is None:
        return
    start = TextStyle(background=None if sheet.background else WHITE)
    waiting: list[tuple[LexborNode | str, TextStyle]] = [(document.body, start)]
    while waiting:
        node, style = waiting.pop()
        if isinstance(node, str):
            yield node, style
        elif node.is_text_node:
            yield node.text_content or "", style
        elif node.is_element_node and node.tag not in _UNREAD:
            within = _style_within(node, style, sheet)
            children = [(child, within) for child in node.iter(include_text=True)]
            separator = [] if node.tag in INLINE else [("\n", style)]
            waiting += [*separator, *reversed(children), *separator]


def _style_within(node: LexborNode, outer: TextStyle, sheet: _StyleSheet) -> TextStyle:
    attributes = node.attributes
    pairs = (rule.partition(":") for rule in (attributes.get("style") or "").lower().split(";"))
    style = {
        name.strip(): value.strip().removesuffix("!important").strip() for name, _, value in pairs
    }
    is_styled = "class" in attributes or "id" in attributes
    size = None if "font" in style or (is_styled and sheet.font) else outer.size
    if "font-size" in style and not (is_styled and sheet.font):
        size = _pixels(style["font-size"])
    colour = outer.colour
    if written := style.get("color") or (attributes.get("color") or "").lower():
        colour = _colour(written)
    elif node.tag == "a" and colour != _INVISIBLE:
        colour = BLUE
    inherited = None if is_styled and sheet.background else outer.background
    return TextStyle(
        is_hidden=outer.is_hidden
        or "hidden" in attributes
        or _is_hiding(style, may_be_shown=is_styled and sheet.display),
        size=size,
        colour=colour,
        background=_background(attributes, style, inherited),
    )


def _is_hiding(style: dict[str, str], *, may_be_shown: bool) -> bool:
    if style.get("display") == "none":
        return not may_be_shown  # by a media query, on the other kind of screen
    zero = {name for name, value in style.items() if _pixels(value) == 0}
    is_collapsed = style.get("overflow") == "hidden" and bool(zero & {"height", "max-height"})
    return style.get("visibility") == "hidden" or "opacity" in zero or is_collapsed


def _pixels(length: str) -> float | None:
    """Read a length in px or pt, or zero in any unit; None if it depends on its place."""
    number = _NUMBER.match(length)
    if number is None or not number[1]:
        return None
    value = float(number[1])
    return value if number[2] or value == 0 else None


def _background(
    attributes: dict[str, str | None], style: dict[str, str], inherited: Colour | None
) -> Colour | None:
    """The colour behind the text; None if it is a picture or unknown."""
    written = style.get("background-color") or style.get("background")
    written = written or (attributes.get("bgcolor") or "").lower()
    if "background" in attributes or "background-image" in style:
        return None
    if not written or written in ("none", "inherit", _INVISIBLE):
        return inherited
    colour = None if "(" in written and not _RGB.match(written) else _colour(written)
    if colour == _INVISIBLE:
        return inherited
    return colour if isinstance(colour, tuple) else None


def _colour(written: str) -> Colour | str | None:
    first = written.split()[0] if written.startswith(("#", *_NAMED)) else written
    if first in _NAMED or first == _INVISIBLE:
        return _NAMED.get(first, _INVISIBLE)
    if found := _HEX.fullmatch(first):
        digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)
    if found := _RGB.match(written):
        if _NO_ALPHA.fullmatch(found[4]):
            return _INVISIBLE
        return int(found[1]), int(found[2]), int(found[3])
    return None
