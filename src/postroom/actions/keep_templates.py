"""Action, keep templates: create, change, delete and choose templates and snippets.

Before: an editor has blocks worth keeping, or writes a message.   After: a document to copy.
Dies half-way:
    create   before the row there is a document that nobody reads
    change   before the row the same; after it, the old document stays, which nobody reads
    delete   after the row the document stays, which nobody reads
Commit point: the row of the template. A message stores its own copy of what it uses, so no change
here changes a message, whether it is scheduled or not.
"""

from __future__ import annotations

import hashlib

import msgspec

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.block import BlockDocument, check_document, parse_document
from postroom.domain.errors import BadInput, NotFound, WrongState
from postroom.domain.message import BodyKind
from postroom.domain.message_template import (
    MessageTemplate,
    TemplateKind,
    check_template_title,
    renumbered,
)
from postroom.domain.texts import Text, _
from postroom.domain.token import new_guid
from postroom.parsing import in_thread
from postroom.records import bodies, lists, messages, templates
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage, Tables
from postroom.writing.layout import html_from_blocks
from postroom.writing.ready_made import READY_MADE, ready_made


async def create(
    act: Act, kind: TemplateKind, title: str, document: BlockDocument, call: str = ""
) -> MessageTemplate:
    """Create a template or snippet; a repeated call finds what the first one created."""
    title = check_template_title(title)
    document = await _checked(document)
    identity = hashlib.sha256(call.encode()).hexdigest()[:24] if call else new_guid()[:24]
    template = MessageTemplate(
        id=f"t{identity}",
        kind=kind,
        title=title,
        edition=new_guid(),
        created_at=act.now,
        changed_at=act.now,
    )
    try:
        async with act.audited(AuditKind.TEMPLATE, title, AuditAction.CREATE):
            await templates.create(act.storage, template, document)
    except Conflict:
        return (await templates.read(act.tables, template.id)).value
    return template


async def edit(
    act: Act, template_id: str, title: str, document: BlockDocument, etag: str
) -> Stored[MessageTemplate]:
    """Change it; Conflict if somebody else did so since the etag was read."""
    found = await templates.read(act.tables, template_id)
    if found.etag != etag:
        raise Conflict(f"template {template_id} has changed")
    edited = msgspec.structs.replace(
        found.value, title=check_template_title(title), edition=new_guid(), changed_at=act.now
    )
    document = await _checked(document)
    async with act.audited(AuditKind.TEMPLATE, edited.title, AuditAction.CHANGE):
        new_etag = await templates.replace(act.storage, found.value, edited, document, found.etag)
    return Stored(edited, new_etag)


async def delete(act: Act, template_id: str, etag: str) -> None:
    """Delete it; WrongState while lists begin their messages with it."""
    found = await templates.read(act.tables, template_id)
    if found.etag != etag:
        raise Conflict(f"template {template_id} has changed")
    names = await lists_with_template(act.tables, template_id)
    if names:
        raise WrongState(
            _(
                "Messages of {lists} begin with this template. Choose another one there first.",
                lists=", ".join(names[:5]),
            )
        )
    async with act.audited(AuditKind.TEMPLATE, found.value.title, AuditAction.DELETE):
        await templates.delete(act.storage, found.value, etag)


async def _checked(document: BlockDocument) -> BlockDocument:
    """Check that it can be rendered, so that nobody finds out while writing a message."""
    document = check_document(renumbered(document))
    await in_thread(html_from_blocks, document)
    return document


async def document_of_message(storage: Storage, ref: str) -> BlockDocument:
    """The blocks of a message; WrongState if it was written in another format."""
    message = await messages.read(storage.tables, ref)
    source = await bodies.load_source(storage.blobs, message)
    if source is None or source.kind is not BodyKind.BLOCKS:
        raise WrongState(
            _(
                "Only a message in blocks can become a template. This one is {kind}.",
                kind=message.kind,
            )
        )
    return parse_document(source.text)


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
    except (NotFound, BadInput):
        return None
