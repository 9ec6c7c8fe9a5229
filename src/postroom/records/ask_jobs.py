"""Runs that ask all of a list to confirm, as a row of the list's partition: deleted with the list.

unconfirmed    the last run, or the current one
"""

from __future__ import annotations

from postroom.domain.ask_job import AskJob
from postroom.records.rows import stored, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import Tables

_TABLE = "mailinglist"
_KEY = "unconfirmed"  # sorts after the row of the list: no range of subscribers reads it


async def find(tables: Tables, list_name: str) -> Stored[AskJob] | None:
    """The job and its row's etag."""
    row = await tables.get(_TABLE, list_name, _KEY)
    return stored(row, AskJob) if row else None


async def put(tables: Tables, job: AskJob, etag: str | None) -> str:
    """The new etag; Conflict if the row changed, or if it exists and no etag is given."""
    properties = to_properties(job)
    if etag is None:
        return await tables.insert(_TABLE, job.list_name, _KEY, properties)
    return await tables.replace(_TABLE, job.list_name, _KEY, properties, etag)
