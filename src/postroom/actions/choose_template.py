"""Action, choose a template: find it among ours and theirs, and begin or redesign a message with it.

Before: somebody writes a message or a list names its template.   After: a document to copy.
Dies half-way: nothing is written here. A message stores its own copy, so a template that changes
later changes no message.
Commit point: none.
"""

from __future__ import annotations

from postroom.domain.block import BlockDocument
from postroom.domain.errors import NotFound
from postroom.domain.message_template import TemplateKind
from postroom.domain.texts import Text
from postroom.records import lists, templates
from postroom.storage.port import Storage, Tables
from postroom.writing.ready_made import READY_MADE, ready_made


async def choices(tables: Tables) -> list[tuple[str, Text | str]]:
    """Ids and titles of all templates, those of the installation first."""
    own: list[tuple[str, Text | str]] = [
        (each.id, each.title)
        for each in await templates.all_templates(tables)
        if each.kind is TemplateKind.TEMPLATE
    ]
    return [*own, *READY_MADE.items()]


async def document_of_template(storage: Storage, template_id: str) -> BlockDocument:
    """The document of a template or snippet; NotFound if it was deleted."""
    if template_id in READY_MADE:
        return ready_made(template_id)
    found = await templates.read(storage.tables, template_id)
    return await templates.load_document(storage.blobs, found.value)


async def lists_with_template(tables: Tables, template_id: str) -> list[str]:
    """The names of the lists whose new messages begin with it."""
    return [each.name async for each in lists.every_list(tables) if each.template == template_id]


async def first_document(storage: Storage, template_id: str) -> BlockDocument | None:
    """The document a new message begins with; None if its template was deleted."""
    try:
        return await document_of_template(storage, template_id)
    except NotFound:
        return None
