"""Jobs that ask everyone on a list to confirm, as a row of the list's partition.

unconfirmed    the current job, or the last one; deleted with the list
"""

from __future__ import annotations

from postroom.domain.ask_job import AskJob
from postroom.records.rows import find_row, to_properties, write_row
from postroom.records.stored import Stored
from postroom.storage.port import Tables

_TABLE = "mailinglist"
_KEY = "unconfirmed"  # sorts after the row of the list: no range of subscribers reads it


async def find(tables: Tables, list_name: str) -> Stored[AskJob] | None:
    return await find_row(tables, _TABLE, list_name, _KEY, AskJob)


async def put(tables: Tables, job: AskJob, etag: str | None) -> str:
    """Write the job; the new etag. Conflict if the row changed, or exists and `etag` is None."""
    return await write_row(tables, _TABLE, job.list_name, _KEY, to_properties(job), etag)
