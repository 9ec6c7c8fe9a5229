"""The text inside a block: a small Markdown, as HTML with inline styles.

Paragraphs, line breaks, bold, italic, links, bullet and numbered lists, merge fields and control
tags; nothing else has a meaning. It is what the rich text editor of the browser can show, and what
a person without script types. HTML is shown as it was typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.writing.marks import MarkedText

SIGNS_MAX = 1000  # lines and signs of Markdown in one text: what takes the parser time
_SIGNS = re.compile(r"[][*_`<>!&\\~#+\n-]")
LINE_CHARS_MAX = 200  # long lines of HTML would have to be encoded
_FOLDED = re.compile(rf"(?s:.{{{LINE_CHARS_MAX - 40},}}?(?: |\Z)|.+)")
_parser = MarkdownIt("zero", {"breaks": True, "xhtmlOut": True, "html": False})
_parser.enable(["emphasis", "link", "list", "newline", "escape", "entity"])
_SCHEMES = re.compile(r"(?:https?:|mailto:|tel:|mark[0-9a-f]{16}n)", re.IGNORECASE)
# A tag alone on its line leaves no empty line behind.
_LONELY_TAG = re.compile(r"(\{%[^<]{0,300}?%\})<br />\n")


def html_of_text(source: str, *, link_colour: str, gap: str = "14px") -> str:
    """Write the paragraphs of a text; BadInput if a merge field is never closed."""
    marked, tokens = parse_text(source)
    _style(tokens, link_colour, gap)
    written = str(_parser.renderer.render(tokens, _parser.options, {}))
    return _LONELY_TAG.sub(r"\1", marked.restored(written)).strip()


def parse_text(source: str) -> tuple[MarkedText, list[Token]]:
    """The tokens of a text, in which fields and tags are words; BadInput if it is too long."""
    if len(_SIGNS.findall(source)) > SIGNS_MAX:
        raise BadInput(
            _("the text has over {limit:,} lines and formatting marks; split it.", limit=SIGNS_MAX)
        )
    marked = MarkedText(source, tags_as_words=True)
    return marked, _parser.parse(marked.text)


def _style(tokens: Sequence[Token], link_colour: str, gap: str) -> None:
    """Set the styles that Gmail and Outlook need at each element; the last one has no gap."""
    blocks = [at for at, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0]
    for at, token in enumerate(tokens):
        margin = "0" if blocks and at == blocks[-1] else f"0 0 {gap}"
        if token.type == "paragraph_open" and token.level == 0:
            token.attrSet("style", f"margin:{margin}")
        elif token.type == "paragraph_open":
            token.attrSet("style", "margin:0 0 4px")
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            token.attrSet("style", f"margin:{margin};padding:0 0 0 22px")
        elif token.type == "list_item_open":
            token.attrSet("style", "margin:0 0 4px")
        for child in token.children or ():
            if child.type == "text" and len(child.content) > LINE_CHARS_MAX:
                child.content = "\n".join(_FOLDED.findall(child.content))
            elif child.type == "link_open":
                href = str(child.attrGet("href") or "")
                child.attrSet("href", href if _SCHEMES.match(href) else "#")
                child.attrSet("style", f"color:{link_colour}")
