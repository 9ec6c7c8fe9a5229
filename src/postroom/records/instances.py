"""Running instances as rows: `service` / `instance` / `<host>.<process id>`.

`serve` writes the rows of all its processes together; a role that runs alone writes its own. They
are only shown to people; nothing relies on them. Dies half-way: a row that is no longer written
stops counting after `lasts_s`, and the sweep deletes it later.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from postroom.domain.instance import RunningInstance
from postroom.records.rows import all_rows, readable, readable_rows, to_properties
from postroom.storage.port import BATCH_CHANGES_MAX, KeysWithin, Tables, Upsert

FORGOTTEN_AFTER = timedelta(hours=1)
_TABLE, _PARTITION = "service", "instance"


async def write(tables: Tables, instances: Sequence[RunningInstance]) -> None:
    """Write their rows in one call."""
    changes = [Upsert(each.id, to_properties(each)) for each in instances[:BATCH_CHANGES_MAX]]
    await tables.batch(_TABLE, _PARTITION, changes)


async def forget(tables: Tables, ids: Collection[str]) -> None:
    """Delete the rows of processes that have ended."""
    for each in ids:
        await tables.delete(_TABLE, _PARTITION, each)


async def running(tables: Tables, now: datetime) -> list[RunningInstance]:
    """Every running instance: by host, the oldest first."""
    rows = [row async for row in all_rows(tables, _TABLE, KeysWithin(_PARTITION))]
    found = [each.value for each in readable(rows, RunningInstance)]
    alive = [each for each in found if each.is_running(now)]
    return sorted(alive, key=lambda each: (each.host, each.since, each.pid))


async def forget_ended(tables: Tables, now: datetime) -> None:
    """Delete rows that have not been written for a long time."""
    keys = KeysWithin(_PARTITION)
    async for instance, row in readable_rows(tables, _TABLE, keys, RunningInstance):
        if instance.seen_at + FORGOTTEN_AFTER < now:
            await tables.delete(_TABLE, _PARTITION, row.key)
