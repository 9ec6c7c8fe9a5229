"""Stage 1 of 7, compose: a message is written, checked, edited and given a time.

Before: an administrator has a subject and bodies.
After: schedule.py finds a pending message under its date.
Dies half-way:
    before the ref is reserved     nothing happened
    before all bodies are stored   a draft that will not be sent
    before the due entry           the same
    before the status              a draft with a due entry: the scheduler ignores it
    an edit, before the row        bodies of an unused edition, deleted with the message
    an edit, after the row         the same with the bodies of the previous edition
Commit point: the status "pending"; for an edit, the message's row.

A call that may be repeated names the ref before it begins (`Origin`); a repetition continues with
what it finds under that ref. Edits and deletions pass the etag that the caller saw, and get
Conflict if the message has changed since.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from postroom.act import Act
from postroom.domain.address import parse_mailbox
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import (
    EDITABLE,
    STATUS_TEXTS,
    BodyKind,
    MergeFields,
    Message,
    OnDoubt,
    Status,
    check_body,
    check_language,
    check_subject,
)
from postroom.domain.texts import _
from postroom.domain.token import new_guid
from postroom.mail.finishing import MessageFields, finished_bodies
from postroom.mail.mime import MailParts, check_template, compile_mail
from postroom.mail.preview_text import check_preview_text
from postroom.mail.rendition import OWN_FIELDS
from postroom.parsing import in_thread
from postroom.records import bodies, lists, messages
from postroom.records.bodies import MessageBodies
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage, Tables
from postroom.writing.sources import BodySource

CHECKED_AT_ONCE_CHARS = 16 * 1024  # of bodies, in a few milliseconds; larger ones in a thread
FIELD_NAMES_CHARS_MAX = 4000  # of all merge fields together, in the row of the message


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a person writes it."""

    list_name: str
    subject: str
    html: str | None = None
    text: str | None = None
    source: BodySource | None = None  # what the HTML was made from, to be edited again
    preview_text: str = ""
    language: str = ""  # "": the list's
    due_at: datetime | None = None  # None keeps it a draft
    due_zone: str = ""  # the zone or offset that it was given in
    on_doubt: OnDoubt = OnDoubt.RESEND


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """What a person changes. Unset values change nothing; None changes only a body."""

    list_name: str | None = None
    subject: str | None = None
    html: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    source: BodySource | None = None  # of the new HTML; without new HTML it stays
    preview_text: str | None = None
    language: str | None = None
    on_doubt: OnDoubt | None = None


class Origin(msgspec.Struct, frozen=True):
    """The API call that creates a message, and the ref that was reserved for it."""

    call: str
    ref: str


async def compose(act: Act, draft: Draft, origin: Origin | None = None) -> Message:
    """Create a message; its status is pending if the draft has a time."""
    after = {"subject": draft.subject} | ({"due": draft.due_at} if draft.due_at else {})
    async with act.audited(
        AuditKind.MESSAGE,
        f"{draft.list_name} {origin.ref}" if origin else draft.list_name,
        AuditAction.CREATE,
        after=values_text(after),
    ):
        return await _compose(act, draft, origin)


async def _compose(act: Act, draft: Draft, origin: Origin | None = None) -> Message:
    """Check everything, then store: ref, bodies, due entry, status."""
    storage = act.storage
    mailing_list = await lists.read(storage.tables, draft.list_name)
    merge_fields = await _check(draft, mailing_list)
    written = Message(
        ref="",
        list_name=draft.list_name,
        list_created_at=mailing_list.created_at,
        subject=check_subject(draft.subject),
        sender=mailing_list.sender,
        status=Status.DRAFT,
        on_doubt=draft.on_doubt,
        created_at=act.now,
        has_html=draft.html is not None,
        has_text=draft.text is not None,
        kind=draft.source.kind if draft.source else BodyKind.HTML,
        preview_text=check_preview_text(draft.preview_text),
        language=check_language(draft.language),
        merge_fields=merge_fields,
    )
    if origin:
        named = msgspec.structs.replace(written, ref=origin.ref, origin=origin.call)
        message, etag = await messages.reserve_as(storage.tables, named)
    else:
        message, etag = await messages.reserve(storage.tables, written)
    if message.status is not Status.DRAFT:  # an earlier try of the same call got further
        return message
    if not message.edition:
        if message.merge_fields != merge_fields:  # an earlier try, before its template was changed
            message = msgspec.structs.replace(message, merge_fields=merge_fields)
            etag = await messages.replace(storage.tables, message, etag)
        await bodies.put(storage, message, _bodies_of(draft))
    if draft.due_at is None:
        return message
    pending = msgspec.structs.replace(
        message, due_at=draft.due_at, due_zone=draft.due_zone, status=Status.PENDING
    )
    await messages.put_due(storage.tables, pending, act.now)
    await messages.replace(storage.tables, pending, etag)  # Commit point.
    act.wake_scheduler()
    return pending


async def edit(storage: Storage, ref: str, revision: Revision, seen_etag: str) -> Stored[Message]:
    """Change the message; its From becomes the one that the list has now."""
    message, etag = await editable(storage.tables, ref, seen_etag)
    subject = message.subject if revision.subject is None else check_subject(revision.subject)
    mailing_list = await lists.read(storage.tables, revision.list_name or message.list_name)
    before = MessageBodies()
    if UNSET in (revision.html, revision.text):  # else a draft that lost its bodies can be repaired
        before = await bodies.load_all(storage.blobs, message)
    else:
        before = MessageBodies(source=await bodies.load_source(storage.blobs, message))
    has_new_html = revision.html is not UNSET
    draft = Draft(
        list_name=mailing_list.name,
        subject=subject,
        html=before.html if revision.html is UNSET else revision.html,
        text=before.text if revision.text is UNSET else revision.text,
        source=revision.source if has_new_html else before.source,
        preview_text=_new(revision.preview_text, message.preview_text),
        language=_new(revision.language, message.language),
    )
    merge_fields = await _check(draft, mailing_list)
    has_new_bodies = _bodies_of(draft) != before
    edited = msgspec.structs.replace(
        message,
        list_name=mailing_list.name,
        list_created_at=mailing_list.created_at,
        sender=mailing_list.sender,
        subject=draft.subject,
        preview_text=check_preview_text(draft.preview_text),
        language=check_language(draft.language),
        on_doubt=revision.on_doubt or message.on_doubt,
        has_html=draft.html is not None,
        has_text=draft.text is not None,
        kind=draft.source.kind if draft.source else BodyKind.HTML,
        merge_fields=merge_fields,
        edition=new_guid() if has_new_bodies else message.edition,
    )
    if has_new_bodies:
        await bodies.put(storage, edited, _bodies_of(draft))
    new_etag = await messages.replace(storage.tables, edited, etag)  # Commit point.
    if has_new_bodies:
        await bodies.delete(storage.blobs, message)
    return Stored(edited, new_etag)


def _new(changed: str | None, before: str) -> str:
    return before if changed is None else changed


def _bodies_of(draft: Draft) -> MessageBodies:
    return MessageBodies(html=draft.html, text=draft.text, source=draft.source)


async def give_time(
    act: Act, ref: str, due_at: datetime, seen_etag: str | None = None, *, zone: str = ""
) -> Message:
    """Schedule a draft or reschedule a message; the entry under the old date has no effect."""
    message, etag = await editable(act.tables, ref, seen_etag)
    before = values_text({"due": message.due_at}) if message.due_at else ""
    after = values_text({"due": due_at})
    scheduled = AuditAction.SCHEDULE
    async with act.audited(AuditKind.MESSAGE, ref, scheduled, before=before, after=after):
        return await _schedule(act, message, etag, due_at, zone)


async def _schedule(act: Act, message: Message, etag: str, due_at: datetime, zone: str) -> Message:
    tables = act.tables
    ref = message.ref
    pending = msgspec.structs.replace(message, due_at=due_at, due_zone=zone, status=Status.PENDING)
    await messages.put_due(tables, pending, act.now)
    try:
        await messages.replace(tables, pending, etag)  # Commit point.
    except Conflict:
        found = await messages.find_live(tables, ref)
        if found and found.value.due_at:  # we may have replaced its entry: same day, same key
            await messages.put_due(tables, found.value, act.now)
        raise changed_meanwhile(ref) from None
    act.wake_scheduler()
    return pending


async def discard(storage: Storage, ref: str, seen_etag: str | None = None) -> None:
    """Delete a message that was not sent, with its bodies and attachments.

    The row is deleted first: a crash then leaves bodies without a message, which is harmless,
    whereas a message without bodies could still be scheduled.
    """
    _message, etag = await editable(storage.tables, ref, seen_etag)
    try:
        await messages.delete_live(storage.tables, ref, etag)  # Commit point.
    except Conflict:
        if seen_etag is not None:
            raise
        raise changed_meanwhile(ref) from None
    await messages.leave_directory(storage.tables, ref)
    await bodies.delete_all(storage.blobs, ref)


def changed_meanwhile(ref: str) -> WrongState:
    return WrongState(_("Message {ref} has just been changed. Reload it and try again.", ref=ref))


async def editable(tables: Tables, ref: str, seen_etag: str | None = None) -> Stored[Message]:
    """The message if it can be edited; Conflict if the caller saw another version."""
    found = await messages.read_with_etag(tables, ref)
    if found.value.status not in EDITABLE:
        raise WrongState(
            _(
                "Message {ref} is {status}: only a draft or a scheduled message can be changed.",
                ref=ref,
                status=STATUS_TEXTS[found.value.status],
            )
        )
    if seen_etag is not None and seen_etag != found.etag:
        raise Conflict(f"message {ref} has changed")
    return found


async def _check(draft: Draft, mailing_list: MailingList) -> MergeFields | None:
    """Check large bodies in a thread, because everything else in this process would wait."""
    if sum(len(body or "") for body in (draft.html, draft.text)) > CHECKED_AT_ONCE_CHARS:
        return await in_thread(check_bodies, draft, mailing_list)
    return check_bodies(draft, mailing_list)


def check_bodies(draft: Draft, mailing_list: MailingList) -> MergeFields | None:
    """Check templates and header values exactly as the sender will read them, with the footer.

    Returns the merge fields in them; None if their names are too long to be kept.
    """
    if draft.html is None and draft.text is None:
        raise BadInput(_("The message has no body. Add an HTML body, a text body, or both."))
    for body in (draft.html, draft.text, draft.source.text if draft.source else None):
        check_body(body or "")
    # Without the footer, so that errors name the writer's own lines.
    check_template(draft.html or "", is_html=True)
    check_template(draft.text or "", is_html=False)
    check_template(draft.preview_text, is_html=False)
    title = mailing_list.description or mailing_list.name
    own = MessageFields(list_title=title, postal_address=mailing_list.postal_address)
    html, text = finished_bodies(draft.html, draft.text, own, draft.preview_text)
    sender = parse_mailbox(mailing_list.sender)
    compiled = compile_mail(MailParts(sender=sender, subject=draft.subject, html=html, text=text))
    names = tuple(sorted(compiled.fields - OWN_FIELDS))
    return MergeFields(names) if sum(map(len, names)) <= FIELD_NAMES_CHARS_MAX else None
