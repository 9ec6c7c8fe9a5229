"""Runs that ask a whole list, as a row of the list's partition: it goes when the list does.

unconfirmed    the last run, or the one under way
"""

from __future__ import annotations

from postroom.domain.ask_job import AskJob
from postroom.records.rows import stored, to_properties
from postroom.records.stored import Stored
from postroom.storage.port import Tables

_TABLE = "mailinglist"
_KEY = "unconfirmed"  # stands behind the row of the list: no range of people reads it


async def find(tables: Tables, list_name: str) -> Stored[AskJob] | None:
    """The job and its row's etag."""
    row = await tables.get(_TABLE, list_name, _KEY)
    return stored(row, AskJob) if row else None


async def put(tables: Tables, job: AskJob, etag: str | None) -> str:
    """The new etag; Conflict if the row changed, or is there without an etag being given."""
    properties = to_properties(job)
    if etag is None:
        return await tables.insert(_TABLE, job.list_name, _KEY, properties)
    return await tables.replace(_TABLE, job.list_name, _KEY, properties, etag)
