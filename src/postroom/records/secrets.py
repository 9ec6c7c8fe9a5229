"""The secret of this installation: made once, by whoever comes first."""

from __future__ import annotations

import contextlib

from postroom.domain.token import new_secret
from postroom.records.rows import FORMAT
from postroom.storage.port import Conflict, Tables

_TABLE, _PARTITION, _KEY = "service", "secret", "installation"


async def installation_secret(tables: Tables) -> str:
    """Signs links and makes Message-IDs; the same for every role and for good."""
    row = await tables.get(_TABLE, _PARTITION, _KEY)
    if row is None:
        with contextlib.suppress(Conflict):  # another process was first
            await tables.insert(_TABLE, _PARTITION, _KEY, {"v": FORMAT, "secret": new_secret()})
        row = await tables.get(_TABLE, _PARTITION, _KEY)
    assert row is not None
    return str(row.properties["secret"])
