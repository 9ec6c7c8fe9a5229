"""Test emails and their outcomes, as rows of `service`.

trial / <ref>:<user key>    the last one that this user requested; deleted after a day
"""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from postroom.domain.trial import KEPT_FOR, Trial, TrialState
from postroom.domain.work_item import TrialItem
from postroom.records.rows import find_row, readable_rows, to_properties
from postroom.storage.port import Conflict, KeysWithin, Tables

_TABLE, _PARTITION = "service", "trial"


async def ask(tables: Tables, trial: Trial) -> None:
    """Write the row of a test, replacing the one before."""
    await tables.upsert(_TABLE, _PARTITION, _key(trial.ref, trial.user), to_properties(trial))


async def find(tables: Tables, ref: str, user: str) -> Trial | None:
    found = await find_row(tables, _TABLE, _PARTITION, _key(ref, user), Trial)
    return found.value if found else None


async def note(
    tables: Tables, item: TrialItem, state: TrialState, words: str, now: datetime
) -> None:
    """Note the outcome of a test, if it is the last one that was requested."""
    key = _key(item.ref, item.user)
    found = await find_row(tables, _TABLE, _PARTITION, key, Trial)
    if found is None or found.value.nonce != item.nonce:
        return
    noted = msgspec.structs.replace(found.value, state=state, words=words, at=now)
    with contextlib.suppress(Conflict):  # another one is requested at this moment
        await tables.replace(_TABLE, _PARTITION, key, to_properties(noted), found.etag)


async def forget_old(tables: Tables, now: datetime) -> None:
    async for trial, row in readable_rows(tables, _TABLE, KeysWithin(_PARTITION), Trial):
        if trial.asked_at + KEPT_FOR < now:
            with contextlib.suppress(Conflict):
                await tables.delete(_TABLE, _PARTITION, row.key, row.etag)


def _key(ref: str, user: str) -> str:
    return f"{ref}:{user}"
