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
from postroom.domain.errors import BadInput
from postroom.domain.message import Message, OnDoubt, Status, check_subject
from postroom.mail.header import BadHeader
from postroom.mail.merge import BadTemplate
from postroom.mail.mime import MailParts, compile_mail
from postroom.records import lists, messages
from postroom.storage.port import Storage


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
