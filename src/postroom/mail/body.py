"""Make the text part from the HTML part, and find the links of the HTML.

Merge fields pass through untouched: for the HTML parser each is one word that no text contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.control_flow import split_tags
from postroom.mail.entities import unescape
from postroom.mail.html_shape import check_shape
from postroom.mail.merge import escape_braces, split_fields

WIDTH = 78  # RFC 5322 2.1.1
DEPTH_MAX = 100  # of nested elements; text further down loses its layout, to spare the stack
INDENT_CHARS_MAX = 20  # ten nested quotations; further ones are not indented
RULE = "-" * 40

_SKIPPED = {
    *("head", "title", "script", "style", "template", "noscript", "iframe", "object"),
    *("svg", "math", "select", "textarea", "audio", "video", "map"),
}
_CELLS = frozenset(("td", "th"))
# Elements with a blank line around them, and elements that only begin a new line.
_PARAGRAPHS = frozenset(("p", "h3", "h4", "h5", "h6", "dl", "table"))
_BLOCKS = {
    *("body", "div", "section", "article", "header", "footer", "main", "nav", "aside"),
    *("center", "figure", "figcaption", "address", "form", "fieldset", "details", "summary"),
    *("h1", "h2", "ul", "ol", "li", "dt", "dd", "blockquote", "pre", "hr", "tr", "caption"),
    *_PARAGRAPHS,
}
_ANY_BLOCK = ", ".join(sorted(_BLOCKS))


_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|mso-hide\s*:\s*all", re.I)
_SPACES = re.compile(r"[\s\xa0]+")
_FILLERS = dict.fromkeys(map(ord, "\u200b\ufeff\xad\u034f"))  # invisible padding of previews
_BLANK_LINES = re.compile(r"\n(?:[ ]*\n)+")
_SCHEME = re.compile(r"^(?:https?://|mailto:)", re.I)
# Noncharacters, which are never exchanged in text (Unicode 23.7), so no author can write a mark.
_MARK = re.compile("\ufdd0([0-9]+)\ufdd1")
_MARK_ENDS = re.compile("[\ufdd0\ufdd1]")


def text_from_html(template: str) -> str:
    """Make a plain text template from an HTML template; BadTemplate as for `check_shape`."""
    marked, fields = _mark_fields(template)
    check_shape(marked)
    root = LexborHTMLParser(marked).root
    page = _PlainTextPage()
    if root is not None and root.parent is not None:
        _write_document(root.parent, page)
    return _unmark(page.text(), fields)


def links(template: str) -> list[str]:
    """The targets of the links in an HTML template, each once, in order."""
    marked, fields = _mark_fields(template)
    check_shape(marked)
    nodes = LexborHTMLParser(marked).css("a[href], area[href]")
    found = (_unmark(_url(node), fields) for node in nodes)
    return list(dict.fromkeys(link for link in found if link and not link.startswith("#")))


class _PlainTextPage:
    """Plain text being written: the finished lines, and the paragraph that is being filled."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._inline: list[str] = []
        self._gap = 0
        self._gap_indent: str | None = None
        self._indent = ""
        self._marker = ""  # replaces the indent of the next line, such as "* "

    def write(self, text: str) -> None:
        self._inline.append(text)

    def end_block(self, gap: int = 0) -> None:
        """End the paragraph, with at least `gap` blank lines before whatever follows."""
        text = "".join(self._inline).strip(" \n")
        self._inline.clear()
        if text:
            for line in _BLANK_LINES.sub("\n\n", text).split("\n"):
                self.add_lines(_wrapped(line, WIDTH - len(self._indent)))
        self._gap = max(self._gap, gap)
        if self._gap_indent is None or len(self._indent) < len(self._gap_indent):
            self._gap_indent = self._indent  # the blank lines before a quotation are not quoted

    def add_lines(self, lines: Iterable[str]) -> None:
        """Add lines without wrapping them, after the blank lines that are due."""
        for line in lines:
            if self._lines:
                self._lines += [(self._gap_indent or "").rstrip()] * self._gap
            self._gap = 0
            self._gap_indent = None
            self._lines.append(((self._marker or self._indent) + line).rstrip())
            self._marker = ""

    @contextmanager
    def indented(self, indent: str, marker: str = "") -> Iterator[None]:
        """Indent the lines written within; the first begins with the marker, if there is one."""
        outer = self._indent
        self._marker = outer + marker if marker else ""
        if len(outer) < INDENT_CHARS_MAX:
            self._indent = outer + indent
        yield
        self.end_block()
        self._indent, self._marker = outer, ""

    def text(self) -> str:
        self.end_block()
        return "\n".join(self._lines) + "\n" if self._lines else ""


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap between words; a word longer than a line, such as a URL, stays whole.

    Not textwrap, which splits a long text in one slow call that other threads wait for.
    """
    lines = [""]
    for word in text.split():
        if not lines[-1]:
            lines[-1] = word
        elif len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _write_document(node: LexborNode, page: _PlainTextPage) -> None:
    """Write the body, and the control tags around it, where a parser puts those at both ends."""
    for child in node.iter(include_text=True):
        if child.is_comment_node:
            page.write(_mark_in(child))
        elif child.tag in ("html", "head"):
            _write_document(child, page)
        elif child.tag == "body":
            _write_children(child, page, 0)


def _write_children(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    if depth > DEPTH_MAX:
        page.write(_squeezed(_text_of(node)))
        return
    for child in node.iter(include_text=True):
        if child.is_text_node:
            page.write(_squeezed(child.text_content or ""))
        elif child.is_comment_node:
            page.write(_mark_in(child))
        elif child.is_element_node and not _is_hidden(child):
            _write_element(child, page, depth + 1)


def _write_element(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    match node.tag:
        case "br":
            page.write("\n")
        case "img":
            page.write(_squeezed(node.attributes.get("alt") or ""))
        case "a":
            _write_link(node, page, depth)
        case "hr" | "pre":
            page.end_block(1)
            page.add_lines([RULE] if node.tag == "hr" else _text_of(node).strip("\n").split("\n"))
            page.end_block(1)
        case "h1" | "h2":
            page.end_block(1)
            _write_children(node, page, depth)
            page.end_block()
            length = min(len(_squeezed(node.text()).strip()), WIDTH)
            page.add_lines([("=" if node.tag == "h1" else "-") * length] if length else [])
            page.end_block(1)
        case "blockquote":
            page.end_block(1)
            with page.indented("> "):
                _write_children(node, page, depth)
            page.end_block(1)
        case "dd":
            page.end_block()
            with page.indented("  "):
                _write_children(node, page, depth)
        case "ul" | "ol":
            _write_list(node, page, depth)
        case "tr":
            _write_row(node, page, depth)
        case tag if tag in _BLOCKS:
            _write_block(node, page, depth)
        case _:
            _write_children(node, page, depth)


def _write_block(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    gap = 1 if node.tag in _PARAGRAPHS else 0
    page.end_block(gap)
    _write_children(node, page, depth)
    page.end_block(gap)


def _write_link(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    """Write `text <url>`, or only the URL if the text is no different."""
    url = _url(node)
    if not url or url.startswith("#"):
        _write_children(node, page, depth)
        return
    shown = url.removeprefix("mailto:").partition("?")[0] if url.startswith("mailto:") else url
    label = _squeezed(node.text()).strip()
    if not label and (image := node.css_first("img[alt]")) is not None:
        label = (image.attributes["alt"] or "").strip()
    if not label or _bare(label) == _bare(shown):
        page.write(shown)
        return
    _write_children(node, page, depth)
    page.write(f" <{shown}>")


def _write_list(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    parent = node.parent
    gap = 0 if parent is not None and parent.tag == "li" else 1
    start = node.attributes.get("start") or "1"
    number = int(start) if start.isdecimal() and len(start) < 6 else 1
    page.end_block(gap)
    for item in node.iter(include_text=True):
        if item.is_comment_node:
            _write_tag(item, page)
        if item.tag != "li" or _is_hidden(item):
            continue
        marker = f"{number}. " if node.tag == "ol" else "* "
        number += 1
        with page.indented(" " * len(marker), marker):
            _write_children(item, page, depth + 1)
    page.end_block(gap)


def _write_row(node: LexborNode, page: _PlainTextPage, depth: int) -> None:
    """Write a row of plain cells on one line, and the cells of a layout one after the other."""
    page.end_block()
    cells = [cell for cell in node.iter() if cell.tag in _CELLS and not _is_hidden(cell)]
    has_tags = any(each.is_comment_node and _mark_in(each) for each in node.iter(include_text=True))
    if has_tags or any(cell.css_first(_ANY_BLOCK) is not None for cell in cells):
        for each in node.iter(include_text=True):
            if each.is_comment_node:
                _write_tag(each, page)
            elif each.tag in _CELLS and not _is_hidden(each):
                _write_block(each, page, depth + 1)
        return
    texts: list[str] = []
    for cell in cells:
        cell_page = _PlainTextPage()
        _write_children(cell, cell_page, depth + 1)
        texts.append(_squeezed(cell_page.text()).strip())
    page.write(" | ".join(filter(None, texts)))
    page.end_block()


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return (
        node.tag in _SKIPPED
        or "hidden" in attributes
        or _HIDDEN.search(attributes.get("style") or "") is not None
    )


def _url(node: LexborNode) -> str:
    return _SPACES.sub("%20", (node.attributes.get("href") or "").strip())


def _bare(url: str) -> str:
    return _SCHEME.sub("", url).rstrip("/").lower()


def _squeezed(text: str) -> str:
    """Remove invisible fillers, and replace each run of spaces by one, also at both ends."""
    text = text.translate(_FILLERS)
    if not text:
        return ""
    words = " ".join(text.split())
    before = " " if text[0].isspace() else ""
    after = " " if words and text[-1].isspace() else ""
    return before + words + after


def _write_tag(comment: LexborNode, page: _PlainTextPage) -> None:
    """Write a control tag between items or cells, on a line of its own."""
    if mark := _mark_in(comment):
        page.end_block()
        page.add_lines([mark])


def _text_of(node: LexborNode) -> str:
    """All text in it as it stands, with the marks of control tags."""
    return "".join(
        _mark_in(each) if each.is_comment_node else each.text_content or ""
        for each in node.traverse(include_text=True)
        if each.is_comment_node or each.is_text_node
    )


def _mark_in(comment: LexborNode) -> str:
    """The mark of a control tag; other comments say nothing."""
    mark = _MARK.fullmatch(comment.comment_content or "")
    return mark[0] if mark else ""


def _mark_fields(template: str) -> tuple[str, list[str]]:
    """Replace each field by a mark; also return the fields, which the marks number.

    The mark of a control tag is in a comment, which a parser leaves where it is, even in a table.
    """
    fields: list[str] = []
    marked: list[str] = []
    for at, piece in enumerate(split_tags(template)):
        if at % 2:
            marked.append(f"<!--\ufdd0{len(fields)}\ufdd1-->")
            fields.append(unescape(piece))
            continue
        for inner_at, inner in enumerate(split_fields(piece)):
            if inner_at % 2:
                marked.append(f"\ufdd0{len(fields)}\ufdd1")
                fields.append(unescape(inner))
            else:
                marked.append(_MARK_ENDS.sub("", inner))
    return "".join(marked), fields


def _unmark(text: str, fields: list[str]) -> str:
    """Turn text with marks into a template with these fields."""
    pieces = _MARK.split(text)  # text and number in turn
    pieces[::2] = map(escape_braces, pieces[::2])
    pieces[1::2] = (fields[int(number)] for number in pieces[1::2])
    return "".join(pieces)
