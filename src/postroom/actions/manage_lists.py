"""Action, manage lists: create, edit and delete lists.

Before: an administrator or a program has a name, a From and a description.
After: people can join the list, and new messages have its From; sweep.py deletes the rows of a
deleted list.
Dies half-way:
    create      before the row there is a name in the directory without a list: it is ignored, and
                reserved for a list of exactly this name
    edit        one guarded write: done or not done
    delete      before the mark nothing happened; from then on the sweep finishes the deletion
Commit point: the list's row; of a deletion, the mark in the directory.

A caller that changes or deletes a list passes the etag it read, and gets Conflict if the list has
changed since.
"""

from __future__ import annotations

import msgspec

from postroom.act import Act
from postroom.domain.audit import AuditAction, AuditKind, changed_values, values_text
from postroom.domain.mailing_list import (
    MailingList,
    check_description,
    check_new_list_name,
    check_postal_address,
    check_sender,
)
from postroom.domain.message import check_language
from postroom.domain.message_template import check_template_id
from postroom.records import lists
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables


class ListChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a list; None keeps the present value."""

    sender: str | None = None
    description: str | None = None
    postal_address: str | None = None
    public_form: bool | None = None
    language: str | None = None
    template: str | None = None


class CheckedList(msgspec.Struct, frozen=True, kw_only=True):
    """A list that can be created, because every value was checked."""

    name: str
    sender: str
    description: str
    postal_address: str
    public_form: bool = False
    language: str = "en"
    template: str = ""


def checked(
    name: str,
    sender: str,
    description: str = "",
    postal_address: str = "",
    public_form: bool = False,
    language: str = "en",
    template: str = "",
) -> CheckedList:
    """Check every value; BadInput if one cannot be used."""
    return CheckedList(
        name=check_new_list_name(name),
        sender=check_sender(sender),
        description=check_description(description),
        postal_address=check_postal_address(postal_address),
        public_form=public_form,
        language=check_language(language) or "en",
        template=check_template_id(template),
    )


async def create(act: Act, new: CheckedList) -> MailingList:
    """AlreadyThere if the name is in use, or its old list is still being deleted."""
    created = MailingList(**msgspec.structs.asdict(new), created_at=act.now)
    after = values_text({"From": new.sender, "description": new.description})
    async with act.audited(AuditKind.LIST, new.name, AuditAction.CREATE, after=after):
        await lists.create(act.tables, created)
    return created


async def edit(act: Act, name: str, changes: ListChanges, etag: str) -> Stored[MailingList]:
    """Return the edited list and its new etag. Existing messages keep their From."""
    found = await _read_unchanged(act.tables, name, etag)
    fields = msgspec.structs.asdict(found.value)
    fields |= {key: new for key, new in msgspec.structs.asdict(changes).items() if new is not None}
    valid = checked(**{key: fields[key] for key in CheckedList.__struct_fields__})
    edited = msgspec.structs.replace(found.value, **msgspec.structs.asdict(valid))
    before, after = changed_values(
        msgspec.structs.asdict(found.value), msgspec.structs.asdict(edited)
    )
    async with act.audited(AuditKind.LIST, name, AuditAction.CHANGE, before=before, after=after):
        return Stored(edited, await lists.replace(act.tables, edited, etag))


async def delete(act: Act, name: str, etag: str) -> None:
    """Delete a list: nobody can join it or gets its mail; its rows are deleted in the background.

    The mark is written before the row is deleted, so that after a crash a new list of the same name
    never gets the old list's people. A change between the read and the mark is deleted as well.
    """
    await _read_unchanged(act.tables, name, etag)
    async with act.audited(AuditKind.LIST, name, AuditAction.DELETE):
        await lists.start_deleting(act.tables, name)
    act.wake_scheduler()


async def _read_unchanged(tables: Tables, name: str, etag: str) -> Stored[MailingList]:
    found = await lists.read_with_etag(tables, name)
    if found.etag != etag:
        raise Conflict(f"the list {name} has changed")
    return found
