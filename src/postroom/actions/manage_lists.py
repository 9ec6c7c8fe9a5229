"""Action, manage lists: make a list, change what it says, delete it.

Before: an administrator or a program has a name, a From and a description.
After: people join the list; messages written from now on have its From; sweep.py deletes the rows
of a deleted one.
Dies half-way:
    create      before the row there is a name in the directory without a list: passed over, and
                kept for a list of exactly this name
    edit        one guarded write: done or not done
    delete      before the mark nothing happened; from then on the sweep finishes the deletion
Commit point: the list's row; of a deletion, the mark in the directory.

A caller that changes or deletes a list hands in the etag of what it saw, and gets Conflict if the
list has changed since.
"""

from __future__ import annotations

import msgspec

from postroom.act import Act
from postroom.domain.mailing_list import (
    MailingList,
    check_description,
    check_new_list_name,
    check_postal_address,
    check_sender,
)
from postroom.records import lists
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, Tables


class ListChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of a list beside its name; None keeps what it says."""

    sender: str | None = None
    description: str | None = None
    postal_address: str | None = None
    public_form: bool | None = None


class CheckedList(msgspec.Struct, frozen=True, kw_only=True):
    """A list that could be made: everything in it was checked."""

    name: str
    sender: str
    description: str
    postal_address: str
    public_form: bool = False


def checked(
    name: str,
    sender: str,
    description: str = "",
    postal_address: str = "",
    public_form: bool = False,
) -> CheckedList:
    """BadInput, with a sentence, if there can be no such list."""
    return CheckedList(
        name=check_new_list_name(name),
        sender=check_sender(sender),
        description=check_description(description),
        postal_address=check_postal_address(postal_address),
        public_form=public_form,
    )


async def create(act: Act, wanted: CheckedList) -> MailingList:
    """AlreadyThere if the name is taken, or its old list still being deleted."""
    made = MailingList(**msgspec.structs.asdict(wanted), created_at=act.now)
    await lists.create(act.tables, made)
    return made


async def edit(
    tables: Tables, name: str, wording: ListChanges, seen_etag: str
) -> Stored[MailingList]:
    """The list as it says now, and its new etag. Messages written before keep their From."""
    known, etag = await _as_seen(tables, name, seen_etag)
    told = {key: text for key, text in msgspec.structs.asdict(wording).items() if text is not None}
    said = msgspec.structs.replace(known, **told)
    wanted = checked(
        said.name, said.sender, said.description, said.postal_address, said.public_form
    )
    edited = msgspec.structs.replace(known, **msgspec.structs.asdict(wanted))
    return Stored(edited, await lists.replace(tables, edited, etag))


async def delete(act: Act, name: str, seen_etag: str) -> None:
    """From here on nobody joins and nobody is mailed; the rest goes in the background.

    The mark comes before the row, so that a list whose deletion died half-way never gives its
    people to a new one of the same name. What is changed in the moment between the look and the
    mark is deleted with the list.
    """
    await _as_seen(act.tables, name, seen_etag)
    await lists.start_deleting(act.tables, name)
    act.wake_scheduler()


async def _as_seen(tables: Tables, name: str, seen_etag: str) -> Stored[MailingList]:
    found = await lists.read_with_etag(tables, name)
    if found.etag != seen_etag:
        raise Conflict(f"the list {name} has changed")
    return found
