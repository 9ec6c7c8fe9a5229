"""Test emails and what became of them, as rows of `service`.

trial / <ref>:<user key>    the last one that this user asked for; deleted after a day
"""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from postroom.domain.trial import KEPT_FOR, Trial, TrialState
from postroom.domain.work_item import TrialItem
from postroom.records.rows import from_properties, readable_rows, to_properties
from postroom.storage.port import Conflict, KeysWithin, Tables

_TABLE, _PARTITION = "service", "trial"


async def ask(tables: Tables, trial: Trial) -> None:
    """Write the row of a test, in place of the one before."""
    await tables.upsert(_TABLE, _PARTITION, _key(trial.ref, trial.user), to_properties(trial))


async def find(tables: Tables, ref: str, user: str) -> Trial | None:
    row = await tables.get(_TABLE, _PARTITION, _key(ref, user))
    return from_properties(row.properties, Trial) if row else None


async def note(
    tables: Tables, item: TrialItem, state: TrialState, words: str, now: datetime
) -> None:
    """Note what became of a test, if it is the last one that was asked for."""
    key = _key(item.ref, item.user)
    row = await tables.get(_TABLE, _PARTITION, key)
    if row is None:
        return
    asked = from_properties(row.properties, Trial)
    if asked.nonce != item.nonce:
        return
    told = msgspec.structs.replace(asked, state=state, words=words, at=now)
    with contextlib.suppress(Conflict):  # another one was asked for at this moment
        await tables.replace(_TABLE, _PARTITION, key, to_properties(told), row.etag)


async def forget_old(tables: Tables, now: datetime) -> None:
    async for trial, row in readable_rows(tables, _TABLE, KeysWithin(_PARTITION), Trial):
        if trial.asked_at + KEPT_FOR < now:
            with contextlib.suppress(Conflict):
                await tables.delete(_TABLE, _PARTITION, row.key, row.etag)


def _key(ref: str, user: str) -> str:
    return f"{ref}:{user}"
