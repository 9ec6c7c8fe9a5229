"""Stage 1 of 7, compose: a message is written, checked and given a time.

Before: an administrator has a subject and bodies.
After: schedule.py finds a pending message under its date.
Dies half-way:
    before the ref is reserved     nothing happened
    before the bodies are whole    a draft that nobody will send
    before the due entry           the same
    before the status              a draft with a due entry: the scheduler passes it over
Commit point: the status, pending.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from postroom.domain.address import parse_mailbox
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.message import EDITABLE, Message, OnDoubt, Status, check_subject
from postroom.mail.header import BadHeader
from postroom.mail.merge import BadTemplate
from postroom.mail.mime import MailParts, compile_mail
from postroom.records import lists, messages
from postroom.storage.port import Conflict, Storage, Tables


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gives."""

    list_name: str
    subject: str
    html: str | None = None
    text: str | None = None
    due_at: datetime | None = None  # None keeps it a draft
    on_doubt: OnDoubt = OnDoubt.RESEND


async def compose(storage: Storage, draft: Draft, now: datetime) -> Message:
    """Check everything, then store: ref, bodies, due entry, status."""
    mailing_list = await lists.read(storage.tables, draft.list_name)
    subject = check_subject(draft.subject)
    check_bodies(draft, mailing_list.sender)
    message, etag = await messages.reserve(
        storage.tables,
        Message(
            ref="",
            list_name=draft.list_name,
            list_created_at=mailing_list.created_at,
            subject=subject,
            sender=mailing_list.sender,
            status=Status.DRAFT,
            on_doubt=draft.on_doubt,
            created_at=now,
            has_html=draft.html is not None,
            has_text=draft.text is not None,
        ),
    )
    await _store_bodies(storage, message.ref, draft)
    if draft.due_at is None:
        return message
    pending = msgspec.structs.replace(message, due_at=draft.due_at, status=Status.PENDING)
    await messages.put_due(storage.tables, pending, now)
    await messages.replace(storage.tables, pending, etag)  # Commit point.
    return pending


async def give_time(tables: Tables, ref: str, due_at: datetime, now: datetime) -> Message:
    """Schedule a draft, or a pending message anew. The entry under the old date decides nothing."""
    message, etag = await _editable(tables, ref)
    pending = msgspec.structs.replace(message, due_at=due_at, status=Status.PENDING)
    await messages.put_due(tables, pending, now)
    try:
        await messages.replace(tables, pending, etag)  # Commit point.
    except Conflict:
        found = await messages.find_live(tables, ref)
        if found and found[0].due_at:  # our entry may stand in its place: same day, same key
            await messages.put_due(tables, found[0], now)
        raise WrongState(f"Message {ref} changed at this moment: look at it again.") from None
    return pending


async def discard(storage: Storage, ref: str) -> None:
    """Delete a message that was not sent, with its bodies.

    The row first, as the commit point: dying after it leaves bodies that belong to nobody, the
    other way round a message without bodies could be given a time.
    """
    _, etag = await _editable(storage.tables, ref)
    try:
        await messages.delete_live(storage.tables, ref, etag)  # Commit point.
    except Conflict:
        raise WrongState(f"Message {ref} changed at this moment: look at it again.") from None
    await messages.leave_directory(storage.tables, ref)
    await storage.blobs.delete(f"{ref}.htm")
    await storage.blobs.delete(f"{ref}.txt")


async def _editable(tables: Tables, ref: str) -> tuple[Message, str]:
    message = await messages.read(tables, ref)
    found = await messages.find_live(tables, ref)
    if found is None or found[0].status not in EDITABLE:
        raise WrongState(
            f"Message {ref} is {message.status}: only a draft or a pending one can change."
        )
    return found


def check_bodies(draft: Draft, sender: str) -> None:
    """Templates and header values, exactly as the sender will read them."""
    if draft.html is None and draft.text is None:
        raise BadInput("The message has no body: give an HTML body, a text body, or both.")
    try:
        parts = MailParts(
            sender=parse_mailbox(sender), subject=draft.subject, html=draft.html, text=draft.text
        )
        compile_mail(parts)
    except (BadTemplate, BadHeader) as error:
        raise BadInput(str(error)) from error


async def _store_bodies(storage: Storage, ref: str, draft: Draft) -> None:
    if draft.html is not None:
        await storage.blobs.put(f"{ref}.htm", draft.html.encode())
    if draft.text is not None:
        await storage.blobs.put(f"{ref}.txt", draft.text.encode())
