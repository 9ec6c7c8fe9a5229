"""Import jobs as rows: table `service`, partition `import`, newest first."""

from __future__ import annotations

import contextlib
import re
import secrets
from datetime import datetime

from postroom.domain.errors import NotFound
from postroom.domain.texts import _
from postroom.importing.job import KEPT, ImportJob
from postroom.records.rows import (
    Unreadable,
    find_row,
    first_rows,
    from_properties,
    readable_rows,
    to_properties,
)
from postroom.records.sortable_time import sortable_newest_first
from postroom.records.stored import Stored
from postroom.storage.port import KeysWithin, Tables

_TABLE = "service"
_PARTITION = "import"
_NONCE_BYTES = 8
UNFINISHED_MAX = 50  # jobs read for a page that only mentions them: usually a month of imports
_ID = re.compile(r"[0-9]{15}-[0-9a-f]{16}")


def new_id(now: datetime) -> str:
    """An id that sorts newest first and cannot be guessed."""
    return f"{sortable_newest_first(now)}-{secrets.token_hex(_NONCE_BYTES)}"


async def create(tables: Tables, job: ImportJob) -> None:
    await tables.insert(_TABLE, _PARTITION, job.id, to_properties(job))


async def find(tables: Tables, id_: str) -> Stored[ImportJob] | None:
    return await find_row(tables, _TABLE, _PARTITION, id_, ImportJob)


async def read(tables: Tables, id_: str) -> Stored[ImportJob]:
    """The job; NotFound also for an id that cannot be a key."""
    found = await find(tables, id_) if _ID.fullmatch(id_) else None
    if found is None:
        raise NotFound(_("There is no such import, or it was deleted."))
    return found


async def exists(tables: Tables, id_: str) -> bool:
    """Whether the job has a row, even one that cannot be read."""
    return await tables.get(_TABLE, _PARTITION, id_) is not None


async def replace(tables: Tables, job: ImportJob, etag: str) -> str:
    """Write the job and return its new etag; Conflict if it has changed since."""
    return await tables.replace(_TABLE, _PARTITION, job.id, to_properties(job), etag)


async def delete(tables: Tables, id_: str, etag: str | None = None) -> None:
    await tables.delete(_TABLE, _PARTITION, id_, etag)


async def newest(tables: Tables, *, limit: int) -> list[ImportJob]:
    """The newest jobs; rows that only a newer version can read are left out."""
    rows, _more = await first_rows(tables, _TABLE, KeysWithin(_PARTITION), limit=limit)
    jobs: list[ImportJob] = []
    for row in rows:
        with contextlib.suppress(Unreadable):
            jobs.append(from_properties(row.properties, ImportJob))
    return jobs


async def unfinished(tables: Tables, list_name: str) -> list[ImportJob]:
    """Unfinished imports into a list, among the newest jobs of all lists."""
    jobs = await newest(tables, limit=UNFINISHED_MAX)
    return [job for job in jobs if job.list_name == list_name and not job.is_finished]


async def running(tables: Tables) -> list[ImportJob]:
    keys = KeysWithin(_PARTITION)
    return [
        job async for job, _row in readable_rows(tables, _TABLE, keys, ImportJob) if job.is_running
    ]


async def expired_ids(tables: Tables, now: datetime, *, limit: int) -> list[str]:
    """Ids of the imports that have expired, including those whose rows cannot be read."""
    keys = KeysWithin(_PARTITION, sortable_newest_first(now - KEPT))
    page = await tables.scan(_TABLE, keys, limit=limit)
    return [row.key for row in page.rows]


def is_older(id_: str, moment: datetime) -> bool:
    """Whether an id was created before this moment."""
    return id_ > sortable_newest_first(moment)
