"""Action, write body: make the HTML of a message from the source that a program or a file supplies.

Before: a caller has blocks, Markdown, MJML or HTML, and perhaps the name of a template.
After: the HTML that is sent, and the source for later edits.
Dies half-way: nothing happened, since nothing is stored here.
Commit point: none; the caller stores the message.
"""

from __future__ import annotations

from typing import Any

import msgspec

from postroom.actions.manage_templates import document_of_template, template_named
from postroom.domain.block import (
    BadBlock,
    BlockDocument,
    document_of,
    encode_document,
    parse_document,
)
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.message import BodyKind, check_body, check_language
from postroom.domain.message_template import filled_template, renumbered
from postroom.domain.texts import _
from postroom.parsing import in_thread
from postroom.records.bodies import MessageBodies
from postroom.storage.port import Storage
from postroom.writing.sources import BodySource, has_styles, html_from_source

FORMATS = ("html", "markdown", "mjml", "blocks")


class BodyInput(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a message as supplied: one of the four formats, or a template alone."""

    html: str | None = None
    markdown: str | None = None
    mjml: str | None = None
    blocks: Any = None  # plain data, not checked yet
    design: Any = None
    template: str = ""  # id or title
    inline_styles: bool = False  # copies the style sheets of HTML into its tags

    @property
    def format(self) -> str:
        """The member that has the body; BadBlock if there are several, empty if there is none."""
        given = [name for name in FORMATS if getattr(self, name) is not None]
        is_design = self.template or self.design is not None
        if is_design and "blocks" not in given:
            given.append("blocks")
        if len(given) > 1:
            raise BadBlock(
                _("Send one body: {first} or {second}.", first=given[0], second=given[1]),
                path=given[1],
            )
        return given[0] if given else ""


async def write_body(
    storage: Storage, body: BodyInput, language: str, before: BodySource | None = None
) -> MessageBodies:
    """Make the HTML; BadInput says what to change. `before` is the body that is being changed."""
    check_language(language)
    if not body.format:
        return MessageBodies()
    source = BodySource(BodyKind(body.format), getattr(body, body.format) or "")
    if source.kind is BodyKind.BLOCKS:
        document = await _document(storage, body, before)
        if not document.blocks:
            raise BadBlock(_("The message has no blocks. Add one."), path="blocks")
        source = BodySource(BodyKind.BLOCKS, encode_document(document))
    elif source.kind is BodyKind.HTML and not (body.inline_styles and has_styles(source.text)):
        return MessageBodies(html=source.text)
    check_body(source.text)
    return await write_again(source, language)


async def write_again(source: BodySource, language: str) -> MessageBodies:
    """The HTML of a source, rendered again for another language."""
    return MessageBodies(html=await in_thread(html_from_source, source, language), source=source)


async def new_document(
    storage: Storage, blocks: Any, design: Any, template: str = ""
) -> BlockDocument:
    """The blocks of a new message or template, in the layout of a template if one is named."""
    return await _document(
        storage, BodyInput(blocks=blocks, design=design, template=template), None
    )


async def _document(storage: Storage, body: BodyInput, before: BodySource | None) -> BlockDocument:
    """The given members, completed from the template or else from the previous body."""
    base = BlockDocument()
    if body.template:
        base = await _template(storage, body.template)
    elif before and before.kind is BodyKind.BLOCKS:
        base = parse_document(before.text)
    elif before and body.blocks is None:
        raise BadBlock(_("Only a message written in blocks has a design."), path="design")
    plain: dict[str, Any] = msgspec.to_builtins(base)
    if body.blocks is not None:
        plain["blocks"] = body.blocks
    if isinstance(body.design, dict):
        plain["theme"] = plain["theme"] | body.design
    elif body.design is not None:
        plain["theme"] = body.design
    try:
        document = _numbered(plain)
    except BadBlock as error:
        path = error.path.replace("theme", "design", 1)
        raise BadBlock(error.args[0], error.block_id, path) from None
    return filled_template(base, document) if body.template and body.blocks else document


def _numbered(plain: dict[str, Any]) -> BlockDocument:
    """Check the document; blocks without an id get one."""
    try:
        return document_of(renumbered(msgspec.convert(plain, BlockDocument)))
    except msgspec.ValidationError:
        return document_of(plain)  # refuses it with a sentence


async def _template(storage: Storage, name: str) -> BlockDocument:
    try:
        return await document_of_template(storage, await template_named(storage.tables, name))
    except (NotFound, BadInput) as error:
        raise BadBlock(error.args[0], path="template") from None
