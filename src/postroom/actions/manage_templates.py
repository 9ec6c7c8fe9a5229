"""Action, manage templates: create, change, delete and choose templates and snippets.

Before: an editor has blocks worth keeping, or writes a message.   After: a document to copy.
Dies half-way:
    create   before the row there is an unused document
    change   before the row the same; after it, the old document stays, unused
    delete   after the row the document stays, unused
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
from postroom.writing.body_blocks import blocks_from
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
    """Delete it; WrongState while it is the default template of a list."""
    found = await templates.read(act.tables, template_id)
    if found.etag != etag:
        raise Conflict(f"template {template_id} has changed")
    names = await lists_with_template(act.tables, template_id)
    if names:
        raise WrongState(
            _(
                "New messages to {lists} start from this template. Choose another one there first.",
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
    """The blocks of a message, converted if necessary; BadInput if that is not possible."""
    message = await messages.read(storage.tables, ref)
    found = await bodies.load_all(storage.blobs, message)
    if found.source and found.source.kind is BodyKind.BLOCKS:
        return parse_document(found.source.text)
    if found.html is None:
        return blocks_from(BodyKind.MARKDOWN, found.text or "")
    return blocks_from(message.kind, found.source.text if found.source else found.html)


async def choices(tables: Tables) -> list[tuple[str, Text | str]]:
    """Ids and titles of all templates, those of the installation first."""
    own: list[tuple[str, Text | str]] = [
        (each.id, each.title)
        for each in await templates.all_templates(tables)
        if each.kind is TemplateKind.TEMPLATE
    ]
    return [*own, *READY_MADE.items()]


async def template_named(tables: Tables, name: str) -> str:
    """The id of the template with this id or title, ignoring case; NotFound if there is none."""
    found = await templates.all_templates(tables)
    if name in READY_MADE or any(each.id == name for each in found):
        return name
    wanted = name.strip().casefold()
    same = [each.id for each in found if each.title.casefold() == wanted]
    same += [] if same or wanted not in READY_MADE else [wanted]
    if len(same) > 1:
        raise BadInput(_("Several templates are called “{name}”. Use the id of one.", name=name))
    if not same:
        raise NotFound(_("There is no template “{name}”.", name=name[:80]))
    return same[0]


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
