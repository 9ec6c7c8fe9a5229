"""Convert a body in another format to blocks, if blocks can show the same."""

from __future__ import annotations

import re

from postroom.domain.block import (
    HTML_CHARS_MAX,
    Block,
    BlockDocument,
    DividerBlock,
    HeadingBlock,
    HtmlBlock,
    TextBlock,
    check_document,
)
from postroom.domain.errors import BadInput
from postroom.domain.message import BodyKind
from postroom.domain.message_template import renumbered
from postroom.domain.texts import _

# A heading, a line, or the fence around code, in which neither is one.
_LINE = re.compile(r"^ {0,3}(?:(#{1,3})[ \t]+(.+?)[ \t#]*|(-{3,}|\*{3,})|(```|~~~).*)$")
_PAGE = re.compile(r"<(?:html|head|body)\b", re.IGNORECASE)


def blocks_from(kind: BodyKind, text: str) -> BlockDocument:
    """The blocks of a body; BadInput if blocks cannot show it."""
    if kind is BodyKind.MARKDOWN:
        return check_document(renumbered(BlockDocument(blocks=_from_markdown(text))))
    if kind is BodyKind.HTML and not _PAGE.search(text) and len(text) <= HTML_CHARS_MAX:
        return check_document(BlockDocument(blocks=[HtmlBlock(id="b1", html=text)]))
    raise BadInput(
        _(
            "This message is a complete {kind} document, which cannot be converted to blocks. "
            "Messages in blocks, Markdown or HTML fragments can.",
            kind=_("MJML") if kind is BodyKind.MJML else _("HTML"),
        )
    )


def _from_markdown(text: str) -> list[Block]:
    blocks: list[Block] = []
    lines: list[str] = []
    is_code = False

    def end_text() -> None:
        if paragraph := "\n".join(lines).strip("\n"):
            blocks.append(TextBlock(text=paragraph))
        lines.clear()

    for line in text.splitlines():
        found = _LINE.match(line)
        is_code ^= bool(found and found[4])
        is_underline = bool(found and found[3] and lines and lines[-1].strip())  # of a heading
        if found is None or found[4] or is_code or is_underline:
            lines.append(line)
        elif found[3]:
            end_text()
            blocks.append(DividerBlock())
        else:
            end_text()
            blocks.append(HeadingBlock(text=found[2], level=len(found[1])))
    end_text()
    return blocks
