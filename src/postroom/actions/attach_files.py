"""Action, attach files: add files to a message, remove them, or copy those of another message.

Before: a draft or a scheduled message.   After: its row lists the files that will be sent.
Dies half-way:
    before the row    unused blobs, deleted with the message
    after the row     the same with the blobs of removed files
Commit point: the message's row. It is guarded by its etag, so a message that is already being sent
keeps its attachments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from postroom.act import Act
from postroom.domain.attachment import Attachment, NewFile, new_attachment
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import NotFound
from postroom.domain.message import Message
from postroom.domain.texts import _
from postroom.flow.compose import changed_meanwhile, editable
from postroom.parsing import in_thread
from postroom.records import attachments, messages
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage


async def attach(
    act: Act, ref: str, files: Sequence[NewFile], seen_etag: str | None = None, *, call: str = ""
) -> Stored[Message]:
    """Attach files, all or none of them; a repeat of the same `call` attaches nothing twice."""
    names = ", ".join(file.name for file in files)
    after = values_text({"attached": names})
    async with act.audited(AuditKind.MESSAGE, ref, AuditAction.CHANGE, after=after):
        found = await editable(act.tables, ref, seen_etag)
        message = found.value
        added: list[Attachment] = []
        known = {each.id for each in message.attachments}
        for number, file in enumerate(files):
            id = hashlib.sha256(f"{call} {number}".encode()).hexdigest()[:32] if call else ""
            if id in known:  # attached by an earlier try of the same call
                return found
            others = (*message.attachments, *added)
            added.append(await in_thread(new_attachment, file, others, id))
        for attachment, file in zip(added, files, strict=True):
            await attachments.put(act.storage.blobs, ref, attachment, file.content)
        # A repetition has the same blobs and may be attaching them: they stay.
        unused_on_conflict = () if call else added
        return await _replace(
            act.storage, found, (*message.attachments, *added), unused_on_conflict
        )


async def detach(
    act: Act, ref: str, attachment_id: str, seen_etag: str | None = None
) -> Stored[Message]:
    """Remove one file; NotFound if the message does not have it."""
    found = await editable(act.tables, ref, seen_etag)
    attachment = find_attachment(found.value, attachment_id)
    before = values_text({"attached": attachment.name})
    async with act.audited(AuditKind.MESSAGE, ref, AuditAction.CHANGE, before=before):
        rest = tuple(each for each in found.value.attachments if each != attachment)
        changed = await _replace(act.storage, found, rest, ())
        await attachments.delete(act.storage.blobs, ref, attachment)
        return changed


async def copy_attachments(storage: Storage, source: Message, ref: str) -> None:
    """Give a new draft the files of another message; a repeat changes nothing."""
    found = await editable(storage.tables, ref)
    if not source.attachments or found.value.attachments:
        return
    for attachment in source.attachments:
        content = await attachments.load(storage.blobs, source.ref, attachment)
        await attachments.put(storage.blobs, ref, attachment, content)
    await _replace(storage, found, source.attachments, ())  # a repetition has the same blobs


def find_attachment(message: Message, attachment_id: str) -> Attachment:
    for attachment in message.attachments:
        if attachment.id == attachment_id:
            return attachment
    raise NotFound(_("The message has no such attachment."))


async def _replace(
    storage: Storage,
    found: Stored[Message],
    now: tuple[Attachment, ...],
    unused_on_conflict: Sequence[Attachment],
) -> Stored[Message]:
    changed = msgspec.structs.replace(found.value, attachments=now)
    try:
        return Stored(changed, await messages.replace(storage.tables, changed, found.etag))
    except Conflict:
        for attachment in unused_on_conflict:
            await attachments.delete(storage.blobs, changed.ref, attachment)
        raise changed_meanwhile(changed.ref) from None
