"""Mailing lists as rows: `mailinglist`, partition = list name, row `mailinglist`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import structlog

from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.mailing_list import MailingList
from postroom.domain.texts import _
from postroom.records.rows import FORMAT, Unreadable, all_rows, from_properties, to_properties
from postroom.storage.port import Conflict, Tables, Within

log = structlog.get_logger("records")
TABLE = "mailinglist"
KEY = "mailinglist"
# A directory of the lists, so that showing them never reads past their subscribers. List names
# have no "-", so this partition is nobody's.
DIRECTORY = "-lists"


async def create(tables: Tables, mailing_list: MailingList) -> None:
    """Directory first: a name in it without a list is passed over, a list not in it would hide."""
    name = mailing_list.name
    with contextlib.suppress(Conflict):  # it has an entry, of a list or of a deletion
        await tables.insert(TABLE, DIRECTORY, name, {"v": FORMAT})
    if await is_being_deleted(tables, name):
        raise AlreadyThere(
            _("The old list {name} is still being deleted: try again in a minute.", name=name)
        )
    try:
        await tables.insert(TABLE, name, KEY, to_properties(mailing_list))
    except Conflict:
        raise AlreadyThere(_("There is a list {name} already.", name=name)) from None


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
        raise NotFound(
            _(
                "There is no list {name}: make it with “postroom list create {name} --from "
                "ADDRESS”.",
                name=name,
            )
        )
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
    keys = Within(DIRECTORY, f"{after} " if after else "")  # a space sorts before every name
    entries = await tables.scan(TABLE, keys, limit=limit)
    while not entries.rows and entries.next:
        entries = await tables.scan(TABLE, keys, limit=limit, after=entries.next)
    names = [row.key for row in entries.rows]
    found = [await _find_readable(tables, name) for name in names]
    return [each for each in found if each], names[-1] if entries.next else None


async def _find_readable(tables: Tables, name: str) -> MailingList | None:
    try:
        return await find(tables, name)
    except Unreadable as error:
        log.error("row_unreadable", table=TABLE, partition=name, error=str(error)[:200])
        return None


async def every_list(tables: Tables) -> AsyncIterator[MailingList]:
    async for row in all_rows(tables, TABLE, Within(DIRECTORY)):
        found = await _find_readable(tables, row.key)
        if found:
            yield found


async def start_deleting(tables: Tables, name: str) -> None:
    """From here on nobody joins and nobody is mailed; the sweep deletes the rest."""
    await tables.upsert(TABLE, DIRECTORY, name, {"v": FORMAT, "deleting": True})
    await tables.delete(TABLE, name, KEY)


async def being_deleted(tables: Tables) -> AsyncIterator[str]:
    async for row in all_rows(tables, TABLE, Within(DIRECTORY), where={"deleting": True}):
        yield row.key


async def is_being_deleted(tables: Tables, name: str) -> bool:
    row = await tables.get(TABLE, DIRECTORY, name)
    return row is not None and "deleting" in row.properties


async def forget(tables: Tables, name: str) -> None:
    """Last step of a deletion, when no row of the list is left."""
    row = await tables.get(TABLE, DIRECTORY, name)
    if row and "deleting" in row.properties:
        with contextlib.suppress(Conflict):
            await tables.delete(TABLE, DIRECTORY, name, row.etag)
