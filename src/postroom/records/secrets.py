"""The secret of this installation, created by the first process that needs it."""

from __future__ import annotations

import contextlib

from postroom.domain.token import new_secret
from postroom.records.rows import FORMAT
from postroom.storage.port import Conflict, Tables

_TABLE, _PARTITION, _KEY = "service", "secret", "installation"


async def installation_secret(tables: Tables) -> str:
    """The secret that signs links and makes Message-IDs: the same for every role, and for good."""
    row = await tables.get(_TABLE, _PARTITION, _KEY)
    if row is None:
        with contextlib.suppress(Conflict):  # another process was first
            await tables.insert(
                _TABLE, _PARTITION, _KEY, {"Format": FORMAT, "Secret": new_secret()}
            )
        row = await tables.get(_TABLE, _PARTITION, _KEY)
    assert row is not None
    return str(row.properties["Secret"])
