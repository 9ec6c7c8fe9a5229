"""A template: a document of blocks to begin a message with; and a snippet, a few blocks to add.

A message copies what it uses, so changing or deleting a template changes no message.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from postroom.domain.block import BLOCKS_MAX, Block, BlockDocument, ColumnsBlock, all_blocks
from postroom.domain.errors import BadInput
from postroom.domain.texts import _, is_one_line

TITLE_CHARS_MAX = 80
TEMPLATES_MAX = 200  # in one installation, snippets included: a page shows them all
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class TemplateKind(StrEnum):
    TEMPLATE = "template"
    SNIPPET = "snippet"


class MessageTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template or a snippet of this installation; its document is a blob."""

    id: str
    kind: TemplateKind
    title: str
    edition: str  # names its document; new with every change
    created_at: datetime
    changed_at: datetime


def check_template_id(text: str) -> str:
    """Allow an empty one, which means no template."""
    if text and not _ID.fullmatch(text):
        raise BadInput(_("There is no such template. Choose one from the list."))
    return text


def check_template_title(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        raise BadInput(_("The title is empty. Enter what people will see in the list."))
    if len(text) > TITLE_CHARS_MAX or not is_one_line(text):
        raise BadInput(
            _("The title must be one line of at most {limit} characters.", limit=TITLE_CHARS_MAX)
        )
    return text


def with_template(document: BlockDocument, template: BlockDocument) -> BlockDocument:
    """The content of a document in the layout of a template.

    What is in a named place of the document goes to the place of the same name, and everything
    else follows the blocks of the template.
    """
    places = {block.place: block for block in document.blocks if block.place}
    named = [block.place for block in template.blocks if block.place]
    moved = [places.get(block.place, block) for block in template.blocks]
    rest = [block for block in document.blocks if not block.place or block.place not in named]
    return renumbered(BlockDocument(blocks=[*moved, *rest], theme=template.theme))


def filled_template(template: BlockDocument, content: BlockDocument) -> BlockDocument:
    """The layout of a template with the given content in its places, and nothing else in them.

    A place without content is left out, so that nobody receives the sample text of a template. The
    look is that of the content.
    """
    places = {block.place: block for block in content.blocks if block.place}
    named = {block.place for block in template.blocks if block.place}
    kept = [places.get(each.place) if each.place else each for each in template.blocks]
    rest = [block for block in content.blocks if not block.place or block.place not in named]
    blocks = [*(block for block in kept if block is not None), *rest]
    return renumbered(BlockDocument(blocks=blocks, theme=content.theme))


def template_data(found: MessageTemplate) -> dict[str, Any]:
    """A template as JSON, the same on the command line and in the web service."""
    return {
        "id": found.id,
        "kind": found.kind,
        "title": found.title,
        "ready_made": False,
        "created_at": found.created_at,
        "changed_at": found.changed_at,
    }


def with_snippet(document: BlockDocument, snippet: BlockDocument) -> BlockDocument:
    """The document with the blocks of a snippet at its end, in the document's own design."""
    blocks = [*document.blocks, *snippet.blocks]
    return renumbered(msgspec.structs.replace(document, blocks=blocks))


def renumbered(document: BlockDocument) -> BlockDocument:
    """The same blocks with ids that are unique; those that are unique already stay."""
    taken = {block.id for block in all_blocks(document)}
    fresh = (f"b{number}" for number in range(1, 10 * BLOCKS_MAX) if f"b{number}" not in taken)
    seen: set[str] = set()

    def unique(block: Block) -> Block:
        new_id = block.id if block.id and block.id not in seen else next(fresh)
        seen.add(new_id)
        if isinstance(block, ColumnsBlock):
            columns = [[unique(each) for each in column] for column in block.columns]
            return msgspec.structs.replace(block, id=new_id, columns=columns)
        return msgspec.structs.replace(block, id=new_id)

    return msgspec.structs.replace(document, blocks=[unique(each) for each in document.blocks])
