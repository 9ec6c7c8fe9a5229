"""Templates and snippets as rows, and their documents as blobs.

    service / templates / <id>          the row, which names the edition of its document
    template-<id>-<edition>.json        the document

A change writes the new document beside the old one, then the row (the commit point), then deletes
the old document. A crash in between leaves an unused document.
"""

from __future__ import annotations

from postroom.domain.block import BlockDocument, encode_document, parse_document
from postroom.domain.errors import BadInput, NotFound
from postroom.domain.message_template import TEMPLATES_MAX, MessageTemplate, check_template_id
from postroom.domain.texts import _
from postroom.records import media
from postroom.records.rows import find_row, first_rows, readable, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import Blobs, KeysWithin, Storage, Tables

TABLE = "service"
PARTITION = "templates"


async def create(storage: Storage, template: MessageTemplate, document: BlockDocument) -> None:
    """Conflict if there is a template with this id; BadInput if there are too many."""
    rows, _has_more = await first_rows(
        storage.tables, TABLE, KeysWithin(PARTITION), limit=TEMPLATES_MAX
    )
    if len(rows) >= TEMPLATES_MAX:
        raise BadInput(
            _("There are already {limit} templates and snippets. Delete some.", limit=TEMPLATES_MAX)
        )
    await _put_document(storage, template, document)
    await storage.tables.insert(TABLE, PARTITION, template.id, to_properties(template))


async def replace(
    storage: Storage,
    before: MessageTemplate,
    after: MessageTemplate,
    document: BlockDocument,
    etag: str,
) -> str:
    """Replace it; the new etag. Conflict if it changed since it was read."""
    await _put_document(storage, after, document)
    new_etag = await storage.tables.replace(
        TABLE, PARTITION, after.id, to_properties(after), etag
    )  # Commit point.
    if after.edition != before.edition:
        await storage.blobs.delete(_name(before))
    return new_etag


async def _put_document(
    storage: Storage, template: MessageTemplate, document: BlockDocument
) -> None:
    """Write it; the use of its pictures is noted first (media.py)."""
    source = encode_document(document)
    await media.note_template(storage.tables, template.id, [source])
    await storage.blobs.put(_name(template), source.encode())


async def find(tables: Tables, template_id: str) -> Stored[MessageTemplate] | None:
    try:
        key = check_template_id(template_id)
    except BadInput:
        return None
    return await find_row(tables, TABLE, PARTITION, key, MessageTemplate) if key else None


async def read(tables: Tables, template_id: str) -> Stored[MessageTemplate]:
    found = await find(tables, template_id)
    if found is None:
        raise NotFound(_("This template no longer exists."))
    return found


async def load_document(blobs: Blobs, template: MessageTemplate) -> BlockDocument:
    content = await blobs.get(_name(template))
    if content is None:
        raise NotFound(_("The blocks of this template are missing from storage."))
    return parse_document(content)


async def all_templates(tables: Tables) -> list[MessageTemplate]:
    """All of them, by title; there are at most TEMPLATES_MAX."""
    rows, _has_more = await first_rows(tables, TABLE, KeysWithin(PARTITION), limit=TEMPLATES_MAX)
    found = [each.value for each in readable(rows, MessageTemplate)]
    return sorted(found, key=lambda each: each.title.casefold())


async def delete(storage: Storage, template: MessageTemplate, etag: str) -> None:
    """Delete the row first: a document without a row is harmless, a row without one is not."""
    await storage.tables.delete(TABLE, PARTITION, template.id, etag)  # Commit point.
    await storage.blobs.delete(_name(template))


def _name(template: MessageTemplate) -> str:
    return f"template-{template.id}-{template.edition}.json"
