"""The secret of this installation, created by the first process that needs it."""

from __future__ import annotations

import contextlib

from postroom.domain.token import new_secret
from postroom.records.rows import FORMAT
from postroom.storage.port import Conflict, Properties, Tables

_TABLE, _PARTITION, _KEY = "service", "secret", "installation"


async def installation_secret(tables: Tables) -> str:
    """Return the secret behind links and Message-IDs: one for all roles, and it never changes."""
    row = await tables.get(_TABLE, _PARTITION, _KEY)
    if row is None:
        with contextlib.suppress(Conflict):  # another process was first
            new: Properties = {"Format": FORMAT, "Secret": new_secret()}
            await tables.insert(_TABLE, _PARTITION, _KEY, new)
        row = await tables.get(_TABLE, _PARTITION, _KEY)
    assert row is not None
    return str(row.properties["Secret"])
