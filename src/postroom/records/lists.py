"""Mailing lists as rows: `mailinglist`, partition = list name, row `mailinglist`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import MailingList, NoSuchList, folded_name
from postroom.domain.texts import _
from postroom.records.rows import (
    FORMAT,
    all_rows,
    find_row,
    first_rows,
    to_properties,
    unreadable_logged,
)
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, KeysWithin, Properties, Row, Tables

TABLE = "mailinglist"
KEY = "mailinglist"
# A directory of the lists, so that showing them never reads their subscribers. List names have no
# "-", so no list has this partition. The key of an entry is the name in lower case, so the first
# spelling that is entered counts until the list is deleted.
DIRECTORY = "-lists"


async def create(tables: Tables, mailing_list: MailingList) -> None:
    """Write the directory entry first: it is skipped without a list, but a list needs it.

    If the process dies before it writes the list's row, the entry stays. The same name may use it
    again, but no other spelling, because that row may still be written.
    """
    name = mailing_list.name
    await _enter(tables, name)
    try:
        etag = await tables.insert(TABLE, name, KEY, to_properties(mailing_list))
    except Conflict:
        raise AlreadyThere(_("There is already a list {name}.", name=name)) from None
    if await _entry(tables, name) is None:  # deleted meanwhile, and perhaps created again
        await tables.delete(TABLE, name, KEY, etag)
        raise _still_being_deleted(name)


async def _enter(tables: Tables, name: str) -> None:
    """Enter the name; AlreadyThere if another spelling has it, or if it is being deleted."""
    key = folded_name(name)
    with contextlib.suppress(Conflict):  # there is an entry, of a list or of a deletion
        await tables.insert(TABLE, DIRECTORY, key, {"Format": FORMAT, "ListName": name})
        return
    entry = await tables.get(TABLE, DIRECTORY, key)
    if entry is None or "IsDeleting" in entry.properties:  # or just deleted
        raise _still_being_deleted(name)
    if (other := _name_in(entry)) != name:
        raise AlreadyThere(
            _(
                "There is already a list {other}, which differs from {name} only in case. Choose "
                "another name.",
                other=other,
                name=name,
            )
        )


def _still_being_deleted(name: str) -> AlreadyThere:
    return AlreadyThere(
        _("The old list {name} is still being deleted. Try again in a minute.", name=name)
    )


def _name_in(entry: Row) -> str:
    return str(entry.properties.get("ListName", entry.key))


async def find(tables: Tables, name: str) -> MailingList | None:
    found = await find_with_etag(tables, name)
    return found.value if found else None


async def find_with_etag(tables: Tables, name: str) -> Stored[MailingList] | None:
    return await find_row(tables, TABLE, name, KEY, MailingList)


async def read(tables: Tables, name: str) -> MailingList:
    return (await read_with_etag(tables, name)).value


async def read_with_etag(tables: Tables, name: str) -> Stored[MailingList]:
    found = await find_with_etag(tables, name)
    if found is None:
        raise NoSuchList(name)
    return found


async def replace(tables: Tables, mailing_list: MailingList, etag: str) -> str:
    """Replace the list; the new etag. Conflict if it has been changed or deleted since."""
    return await tables.replace(TABLE, mailing_list.name, KEY, to_properties(mailing_list), etag)


async def page(
    tables: Tables, *, limit: int, after: str = ""
) -> tuple[list[MailingList], str | None]:
    """Return lists by name, and the last name if there are more.

    A page may be short: lists that cannot be read are skipped.
    """
    start = f"{folded_name(after)} " if after else ""  # a space sorts before every name
    rows, has_more = await first_rows(tables, TABLE, KeysWithin(DIRECTORY, start), limit=limit)
    names = [_name_in(row) for row in rows]
    found = [await _find_readable(tables, name) for name in names]
    return [each for each in found if each], names[-1] if has_more else None


async def _find_readable(tables: Tables, name: str) -> MailingList | None:
    with unreadable_logged(table=TABLE, partition=name):
        return await find(tables, name)
    return None


async def every_list(tables: Tables) -> AsyncIterator[MailingList]:
    async for name in every_name(tables):
        found = await _find_readable(tables, name)
        if found:
            yield found


async def every_name(tables: Tables) -> AsyncIterator[str]:
    """Yield the names of all lists, including those whose rows are missing or cannot be read."""
    async for row in all_rows(tables, TABLE, KeysWithin(DIRECTORY)):
        yield _name_in(row)


async def start_deleting(tables: Tables, name: str) -> None:
    """Delete the list's row, so that nobody joins or is mailed; the sweep deletes the rest.

    Conflict if the list has been deleted since, and perhaps another one created.
    """
    entry = await _entry(tables, name)
    if entry is None:
        raise Conflict(f"the list {name} was deleted")
    if "IsDeleting" not in entry.properties:
        marked: Properties = {"Format": FORMAT, "ListName": name, "IsDeleting": True}
        await tables.replace(TABLE, DIRECTORY, entry.key, marked, entry.etag)
    await tables.delete(TABLE, name, KEY)


async def being_deleted(tables: Tables) -> AsyncIterator[str]:
    async for row in all_rows(tables, TABLE, KeysWithin(DIRECTORY), where={"IsDeleting": True}):
        yield _name_in(row)


async def is_being_deleted(tables: Tables, name: str) -> bool:
    entry = await _entry(tables, name)
    return entry is not None and "IsDeleting" in entry.properties


async def forget(tables: Tables, name: str) -> None:
    """Finish a deletion, after the last row of the list is deleted."""
    entry = await _entry(tables, name)
    if entry and "IsDeleting" in entry.properties:
        with contextlib.suppress(Conflict):
            await tables.delete(TABLE, DIRECTORY, entry.key, entry.etag)


async def _entry(tables: Tables, name: str) -> Row | None:
    """The entry in the directory, if it has exactly this spelling."""
    entry = await tables.get(TABLE, DIRECTORY, folded_name(name))
    return entry if entry and _name_in(entry) == name else None
