"""Stage 1 of 7, compose: a message is written, checked, edited and given a time.

Before: an administrator has a subject and bodies.
After: schedule.py finds a pending message under its date.
Dies half-way:
    before the ref is reserved     nothing happened
    before the bodies are whole    a draft that nobody will send
    before the due entry           the same
    before the status              a draft with a due entry: the scheduler passes it over
    an edit, before the row        bodies of an edition that nobody reads, deleted with the message
    an edit, after the row         the same with those of the edition before
Commit point: the status, pending; of an edit, the message's row.

A call that may be repeated names the ref before it begins (`Origin`): repeated, it goes on with
what it finds under it. Whoever edits or deletes hands in the etag of what they saw, and gets
Conflict if the message is not like that any more.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from postroom.act import Act
from postroom.domain.address import parse_mailbox
from postroom.domain.errors import BadInput, WrongState
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import (
    EDITABLE,
    STATUS_TEXTS,
    Message,
    OnDoubt,
    Status,
    check_body,
    check_subject,
)
from postroom.domain.texts import _
from postroom.domain.token import new_guid
from postroom.mail.footer import with_footer
from postroom.mail.merge import compile_html, parse
from postroom.mail.mime import MailParts, compile_mail
from postroom.parsing import in_thread
from postroom.records import bodies, lists, messages
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Storage, Tables

CHECKED_AT_ONCE_CHARS = 16 * 1024  # of bodies, in a few milliseconds; larger ones in a thread


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gives."""

    list_name: str
    subject: str
    html: str | None = None
    text: str | None = None
    markdown: str | None = None  # what the HTML was made from, to be edited again
    due_at: datetime | None = None  # None keeps it a draft
    due_zone: str = ""  # the zone or offset that it was given in
    on_doubt: OnDoubt = OnDoubt.RESEND


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """What a person changes; what is None or unset stays. A body that is None is taken away."""

    list_name: str | None = None
    subject: str | None = None
    html: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    markdown: str | None = None  # what this HTML was made from; without new HTML it stays
    on_doubt: OnDoubt | None = None


class Origin(msgspec.Struct, frozen=True):
    """The call a message comes from, and the ref that was noted for it before it began."""

    call: str
    ref: str


async def compose(act: Act, draft: Draft, origin: Origin | None = None) -> Message:
    """Check everything, then store: ref, bodies, due entry, status."""
    storage = act.storage
    mailing_list = await lists.read(storage.tables, draft.list_name)
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
    )
    await _check(draft, mailing_list)
    message, etag = await _reserve(storage.tables, written, origin)
    if message.status is not Status.DRAFT:  # an earlier try of the same call got further
        return message
    if not message.edition:
        await bodies.put(storage.blobs, message, draft.html, draft.text, draft.markdown)
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
    """The message as it says now, and its new etag. Its From becomes that of the list today."""
    message, etag = await _editable(storage.tables, ref, seen_etag)
    subject = message.subject if revision.subject is None else check_subject(revision.subject)
    mailing_list = await lists.read(storage.tables, revision.list_name or message.list_name)
    html, text = await _kept_bodies(storage, message, revision)
    markdown = await bodies.load_markdown(storage.blobs, message)
    draft = Draft(
        list_name=mailing_list.name,
        subject=subject,
        html=html if revision.html is UNSET else revision.html,
        text=text if revision.text is UNSET else revision.text,
        markdown=markdown if revision.html is UNSET else revision.markdown,
    )
    await _check(draft, mailing_list)
    has_new_bodies = (draft.html, draft.text, draft.markdown) != (html, text, markdown)
    edited = msgspec.structs.replace(
        message,
        list_name=mailing_list.name,
        list_created_at=mailing_list.created_at,
        sender=mailing_list.sender,
        subject=draft.subject,
        on_doubt=revision.on_doubt or message.on_doubt,
        has_html=draft.html is not None,
        has_text=draft.text is not None,
        edition=new_guid() if has_new_bodies else message.edition,
    )
    if has_new_bodies:
        await bodies.put(storage.blobs, edited, draft.html, draft.text, draft.markdown)
    new_etag = await messages.replace(storage.tables, edited, etag)  # Commit point.
    if has_new_bodies:
        await bodies.delete(storage.blobs, message)
    return Stored(edited, new_etag)


async def _kept_bodies(
    storage: Storage, message: Message, revision: Revision
) -> tuple[str | None, str | None]:
    """What is stored, unless both are new: a draft that has lost its bodies can be mended."""
    if revision.html is not UNSET and revision.text is not UNSET:
        return None, None
    return await bodies.load(storage.blobs, message)


async def give_time(
    act: Act, ref: str, due_at: datetime, seen_etag: str | None = None, *, zone: str = ""
) -> Message:
    """Schedule a draft or reschedule a message. The entry under the old date decides nothing."""
    tables = act.tables
    message, etag = await _editable(tables, ref, seen_etag)
    pending = msgspec.structs.replace(message, due_at=due_at, due_zone=zone, status=Status.PENDING)
    await messages.put_due(tables, pending, act.now)
    try:
        await messages.replace(tables, pending, etag)  # Commit point.
    except Conflict:
        found = await messages.find_live(tables, ref)
        if found and found.value.due_at:  # our entry may stand in its place: same day, same key
            await messages.put_due(tables, found.value, act.now)
        raise WrongState(
            _("Message {ref} changed at this moment: look at it again.", ref=ref)
        ) from None
    act.wake_scheduler()
    return pending


async def discard(storage: Storage, ref: str, seen_etag: str | None = None) -> None:
    """Delete a message that was not sent, with its bodies.

    The row first, as the commit point: dying after it leaves bodies that belong to nobody, the
    other way round a message without bodies could be given a time.
    """
    _message, etag = await _editable(storage.tables, ref, seen_etag)
    try:
        await messages.delete_live(storage.tables, ref, etag)  # Commit point.
    except Conflict:
        if seen_etag is not None:
            raise
        raise WrongState(
            _("Message {ref} changed at this moment: look at it again.", ref=ref)
        ) from None
    await messages.leave_directory(storage.tables, ref)
    await bodies.delete_all(storage.blobs, ref)


async def _reserve(tables: Tables, written: Message, origin: Origin | None) -> Stored[Message]:
    if origin is None:
        return await messages.reserve(tables, written)
    named = msgspec.structs.replace(written, ref=origin.ref, origin=origin.call)
    return await messages.reserve_as(tables, named)


async def _editable(tables: Tables, ref: str, seen_etag: str | None = None) -> Stored[Message]:
    """Conflict if the caller saw another version; a caller without an etag saw none."""
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


async def _check(draft: Draft, mailing_list: MailingList) -> None:
    """Large bodies take their time, which everybody else in this process would wait for."""
    if sum(len(body or "") for body in (draft.html, draft.text)) > CHECKED_AT_ONCE_CHARS:
        await in_thread(check_bodies, draft, mailing_list)
    else:
        check_bodies(draft, mailing_list)


def check_bodies(draft: Draft, mailing_list: MailingList) -> None:
    """Templates and header values, exactly as the sender will read them, their foot included."""
    if draft.html is None and draft.text is None:
        raise BadInput(_("The message has no body: give an HTML body, a text body, or both."))
    for body in (draft.html, draft.text, draft.markdown):
        check_body(body or "")
    title, postal = mailing_list.description or mailing_list.name, mailing_list.postal_address
    compile_html(draft.html or "")  # without the footer: a mistake names a line the writer knows
    parse(draft.text or "")
    html, text = with_footer(draft.html, draft.text, list_title=title, postal=postal)
    sender = parse_mailbox(mailing_list.sender)
    compile_mail(MailParts(sender=sender, subject=draft.subject, html=html, text=text))
