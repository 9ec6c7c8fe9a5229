"""Mailing lists as rows: `mailinglist`, partition = list name, row `mailinglist`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import structlog

from postroom.domain.errors import AlreadyThere
from postroom.domain.mailing_list import MailingList, NoSuchList, folded_name
from postroom.domain.texts import _
from postroom.records.rows import FORMAT, Unreadable, all_rows, from_properties, to_properties
from postroom.storage.port import Conflict, KeysWithin, Properties, Row, Tables

log = structlog.get_logger("records")
TABLE = "mailinglist"
KEY = "mailinglist"
# A directory of the lists, so that showing them never reads past their subscribers. List names
# have no "-", so this partition is nobody's. An entry's key is the folded name: whoever inserts it
# first decides how the name is spelt, until the list is deleted.
DIRECTORY = "-lists"


async def create(tables: Tables, mailing_list: MailingList) -> None:
    """Directory first: a name in it without a list is passed over, a list not in it would hide.

    Whoever dies before the list's row leaves the entry: it is taken up again by the same name, and
    never given to another spelling, for the row may still be on its way.
    """
    name = mailing_list.name
    await _enter(tables, name)
    try:
        etag = await tables.insert(TABLE, name, KEY, to_properties(mailing_list))
    except Conflict:
        raise AlreadyThere(_("There is a list {name} already.", name=name)) from None
    if await _entry(tables, name) is None:  # deleted while we were slow, and perhaps taken
        await tables.delete(TABLE, name, KEY, etag)
        raise _still_going(name)


async def _enter(tables: Tables, name: str) -> None:
    """AlreadyThere, unless the directory has this name now, just so spelt and not being deleted."""
    with contextlib.suppress(Conflict):  # there is an entry, of a list or of a deletion
        await tables.insert(TABLE, DIRECTORY, folded_name(name), {"v": FORMAT, "name": name})
        return
    entry = await tables.get(TABLE, DIRECTORY, folded_name(name))
    if entry is None or "deleting" in entry.properties:  # or just deleted
        raise _still_going(name)
    if (other := _name_in(entry)) != name:
        raise AlreadyThere(
            _(
                "There is a list {other} already, and {name} differs from it in capitals alone: "
                "choose another name.",
                other=other,
                name=name,
            )
        )


def _still_going(name: str) -> AlreadyThere:
    return AlreadyThere(
        _("The old list {name} is still being deleted: try again in a minute.", name=name)
    )


def _name_in(entry: Row) -> str:
    return str(entry.properties.get("name", entry.key))


async def find(tables: Tables, name: str) -> MailingList | None:
    found = await find_with_etag(tables, name)
    return found[0] if found else None


async def find_with_etag(tables: Tables, name: str) -> tuple[MailingList, str] | None:
    """For whoever is going to change it."""
    row = await tables.get(TABLE, name, KEY)
    return (from_properties(row.properties, MailingList), row.etag) if row else None


async def read(tables: Tables, name: str) -> MailingList:
    return (await read_with_etag(tables, name))[0]


async def read_with_etag(tables: Tables, name: str) -> tuple[MailingList, str]:
    found = await find_with_etag(tables, name)
    if found is None:
        raise NoSuchList(name)
    return found


async def replace(tables: Tables, mailing_list: MailingList, etag: str) -> str:
    """The new etag; Conflict if somebody changed or deleted the list meanwhile."""
    return await tables.replace(TABLE, mailing_list.name, KEY, to_properties(mailing_list), etag)


async def page(
    tables: Tables, *, limit: int, after: str = ""
) -> tuple[list[MailingList], str | None]:
    """Lists by name, and the name to go on after, if there are more.

    A page may be short: a list that cannot be read is passed over, and hides none of the others.
    """
    keys = KeysWithin(
        DIRECTORY, f"{folded_name(after)} " if after else ""
    )  # a space sorts before every name
    entries = await tables.scan(TABLE, keys, limit=limit)
    while not entries.rows and entries.next:
        entries = await tables.scan(TABLE, keys, limit=limit, after=entries.next)
    names = [_name_in(row) for row in entries.rows]
    found = [await _find_readable(tables, name) for name in names]
    return [each for each in found if each], names[-1] if entries.next else None


async def _find_readable(tables: Tables, name: str) -> MailingList | None:
    try:
        return await find(tables, name)
    except Unreadable as error:
        log.error("row_unreadable", table=TABLE, partition=name, error=str(error)[:200])
        return None


async def every_list(tables: Tables) -> AsyncIterator[MailingList]:
    async for row in all_rows(tables, TABLE, KeysWithin(DIRECTORY)):
        found = await _find_readable(tables, _name_in(row))
        if found:
            yield found


async def start_deleting(tables: Tables, name: str) -> None:
    """From here on nobody joins and nobody is mailed; the sweep deletes the rest.

    Conflict if it is gone meanwhile, and its entry perhaps that of another list.
    """
    entry = await _entry(tables, name)
    if entry is None:
        raise Conflict(f"the list {name} is gone")
    if "deleting" not in entry.properties:
        marked: Properties = {"v": FORMAT, "name": name, "deleting": True}
        await tables.replace(TABLE, DIRECTORY, entry.key, marked, entry.etag)
    await tables.delete(TABLE, name, KEY)


async def being_deleted(tables: Tables) -> AsyncIterator[str]:
    async for row in all_rows(tables, TABLE, KeysWithin(DIRECTORY), where={"deleting": True}):
        yield _name_in(row)


async def is_being_deleted(tables: Tables, name: str) -> bool:
    entry = await _entry(tables, name)
    return entry is not None and "deleting" in entry.properties


async def forget(tables: Tables, name: str) -> None:
    """Last step of a deletion, when no row of the list is left."""
    entry = await _entry(tables, name)
    if entry and "deleting" in entry.properties:
        with contextlib.suppress(Conflict):
            await tables.delete(TABLE, DIRECTORY, entry.key, entry.etag)


async def _entry(tables: Tables, name: str) -> Row | None:
    """In the directory, if it is of just this name."""
    entry = await tables.get(TABLE, DIRECTORY, folded_name(name))
    return entry if entry and _name_in(entry) == name else None
