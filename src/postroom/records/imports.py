"""Imports as rows: `service`, partition `import`, the newest first.

Every web process sees them; the file itself is on the machine that took it.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime

from postroom.domain.errors import NotFound
from postroom.domain.import_job import ImportJob
from postroom.domain.texts import _
from postroom.records.rows import Unreadable, first_rows, from_properties, stored, to_properties
from postroom.records.sortable_time import sortable_newest_first
from postroom.records.stored import Stored
from postroom.storage.port import KeysWithin, Row, Tables

_TABLE = "service"
_PARTITION = "import"
_NONCE_BYTES = 8
LOOKED_AT_MAX = 50  # a month's imports, as a rule: a page that only mentions them must be quick
_ID = re.compile(r"[0-9]{15}-[0-9a-f]{16}")


def new_id(now: datetime) -> str:
    """An id that sorts the newest first and cannot be guessed."""
    return f"{sortable_newest_first(now)}-{secrets.token_hex(_NONCE_BYTES)}"


async def create(tables: Tables, job: ImportJob) -> None:
    await tables.insert(_TABLE, _PARTITION, job.id, to_properties(job))


async def find(tables: Tables, id_: str) -> Stored[ImportJob] | None:
    row = await tables.get(_TABLE, _PARTITION, id_)
    return stored(row, ImportJob) if row else None


async def read(tables: Tables, id_: str) -> Stored[ImportJob]:
    """The job and its row's etag; NotFound also if the id is none."""
    found = await find(tables, id_) if _ID.fullmatch(id_) else None
    if found is None:
        raise NotFound(_("There is no such import, or it was deleted."))
    return found


async def is_deleted(tables: Tables, id_: str) -> bool:
    """Whether the row of an import was deleted; one that cannot be read was not."""
    return bool(_ID.fullmatch(id_)) and await tables.get(_TABLE, _PARTITION, id_) is None


async def replace(tables: Tables, job: ImportJob, etag: str) -> str:
    """The new etag; Conflict if the job changed meanwhile."""
    return await tables.replace(_TABLE, _PARTITION, job.id, to_properties(job), etag)


async def delete(tables: Tables, job: ImportJob, etag: str) -> None:
    await tables.delete(_TABLE, _PARTITION, job.id, etag)


async def newest(tables: Tables, *, limit: int) -> list[ImportJob]:
    rows, _more = await first_rows(tables, _TABLE, KeysWithin(_PARTITION), limit=limit)
    return [job for row in rows if (job := _readable(row))]


async def unfinished(tables: Tables, list_name: str, now: datetime) -> list[ImportJob]:
    """Imports into a list that are waiting or running, among the newest of all lists."""
    jobs = [job.as_of(now) for job in await newest(tables, limit=LOOKED_AT_MAX)]
    return [job for job in jobs if job.list_name == list_name and not job.is_finished]


async def forget_before(tables: Tables, before: datetime, *, limit: int) -> int:
    """Delete the rows of imports created before a time, at most `limit`; how many."""
    page = await tables.scan(
        _TABLE, KeysWithin(_PARTITION, sortable_newest_first(before)), limit=limit
    )
    for row in page.rows:
        await tables.delete(_TABLE, _PARTITION, row.key)
    return len(page.rows)


def _readable(row: Row) -> ImportJob | None:
    try:
        return from_properties(row.properties, ImportJob)
    except Unreadable:
        return None  # written by a newer version, which shows it
