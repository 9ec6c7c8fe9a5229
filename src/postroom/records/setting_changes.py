"""Settings that people changed while the service runs: `service` / `settings` / `changes`.

One row for all of them, guarded by its etag, so that every role reads them with one call.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from postroom.domain.consent import ConsentSource
from postroom.records.rows import find_row, to_properties, write_row
from postroom.records.stored import Stored
from postroom.storage.port import Tables, Value

_TABLE, _PARTITION, _KEY = "service", "settings", "changes"


class ChangedSetting(msgspec.Struct, frozen=True):
    value: Value
    at: datetime
    by: ConsentSource


class SettingChanges(msgspec.Struct, frozen=True):
    changed: dict[str, ChangedSetting] = {}  # by the name of the setting


NO_CHANGES = Stored(SettingChanges(), "")


async def read(tables: Tables) -> Stored[SettingChanges]:
    """The changes and the etag of their row, empty while there is none."""
    return await find_row(tables, _TABLE, _PARTITION, _KEY, SettingChanges) or NO_CHANGES


async def write(tables: Tables, changes: SettingChanges, etag: str) -> Stored[SettingChanges]:
    """Replace the version `etag` names; Conflict if somebody else was faster."""
    properties = to_properties(changes)
    new = await write_row(tables, _TABLE, _PARTITION, _KEY, properties, etag or None)
    return Stored(changes, new)
