"""Emails in the test mailbox: rows, the newest first, and the source of each as a blob.

Emails with the same attachments share a blob with them, which is the end of their source.

The transport (transport/outbox.py) writes both; here they are read and deleted.
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.records.rows import first_rows, from_properties
from postroom.storage.port import KeysWithin, Row, Storage, Tables

TABLE, PARTITION = "outbox", "mails"
ATTACHMENTS = "outbox/attachments-"  # each blob of them is the end of one or more emails
_KEY = re.compile(r"[0-9]{13}-[0-9a-f]{16}")


class StoredMail(msgspec.Struct, frozen=True):
    key: str
    sender: str
    recipient: str
    bytes: int
    at: datetime
    attachments: str = ""  # the blob with the end of the email, if it has attachments


async def newest(
    tables: Tables, *, limit: int, after: str | None = None
) -> tuple[list[StoredMail], str | None]:
    """Return a page of emails, the newest first, and the last key if there are more."""
    start = f"{_checked(after)} " if after else ""  # a space sorts before every other character
    rows, has_more = await first_rows(tables, TABLE, KeysWithin(PARTITION, start), limit=limit)
    mails = [_of_row(row) for row in rows]
    return mails, mails[-1].key if mails and has_more else None


async def read(storage: Storage, key: str) -> tuple[StoredMail, bytes]:
    row = await storage.tables.get(TABLE, PARTITION, _checked(key))
    source = await storage.blobs.get(_blob(key)) if row else None
    if row is None or source is None:
        raise NotFound(_("There is no such email in the test mailbox."))
    mail = _of_row(row)
    attached = await storage.blobs.get(mail.attachments) if mail.attachments else None
    return mail, source + (attached or b"")


async def read_beginning(storage: Storage, key: str) -> bytes:
    """The email without its attachments."""
    return await storage.blobs.get(_blob(_checked(key))) or b""


async def count(tables: Tables, *, most: int) -> int:
    """Count the emails, up to `most` + 1."""
    rows, _more = await first_rows(tables, TABLE, KeysWithin(PARTITION), limit=most + 1)
    return len(rows)


async def is_empty(tables: Tables) -> bool:
    return await count(tables, most=0) == 0


async def delete_newest(storage: Storage, *, limit: int) -> int:
    """Delete at most `limit` emails, each row first: a row without its blob cannot be shown."""
    rows, _more = await first_rows(storage.tables, TABLE, KeysWithin(PARTITION), limit=limit)
    for row in rows:
        await storage.tables.delete(TABLE, PARTITION, row.key)
        await storage.blobs.delete(_blob(row.key))
    if len(rows) < limit:  # no email is left that could name them
        names, _next = await storage.blobs.list(ATTACHMENTS)
        for name in names:
            await storage.blobs.delete(name)
    return len(rows)


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise NotFound(_("There is no such email in the test mailbox."))
    return key


def _blob(key: str) -> str:
    return f"outbox/{key}.eml"


def _of_row(row: Row) -> StoredMail:
    return from_properties(row.properties | {"Key": row.key}, StoredMail)
