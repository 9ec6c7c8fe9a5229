"""Notes on API calls that create something, so that a repeated call creates it once.

    service / idempotency-<key id>  / <sha256>                    the note
    service / idempotency-times     / <time>:<key id>:<sha256>    by age, for the sweep to find it

The note is written before anything is created, and again, with the answer, afterwards. A call
whose note has no answer is running, or its process died; a repeated call takes it over after a
while. Whatever is created carries the time of the first attempt, which the note keeps, so that a
later attempt finds what an earlier one created.
"""

from __future__ import annotations

import contextlib
import hashlib
from datetime import datetime, timedelta

import msgspec

from postroom.records.rows import FORMAT_ONLY, find_row, to_properties, write_row
from postroom.records.sortable_time import sortable
from postroom.storage.port import Conflict, KeysWithin, Tables

KEPT_FOR = timedelta(hours=24)
TAKEN_FOR = timedelta(seconds=60)  # longer than any call takes
FORGOTTEN_A_SWEEP = 500
_TABLE = "service"
_BY_TIME = "idempotency-times"


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 0  # no answer yet
    body: str = ""
    location: str = ""
    etag: str = ""


class CallNote(msgspec.Struct, frozen=True, kw_only=True):
    request: str  # hash of method, path and body
    begun_at: datetime
    taken_at: datetime
    answer: StoredAnswer = StoredAnswer()


class CallBegun(msgspec.Struct, frozen=True):
    """The call is ours; the etag guards the note if another process takes over."""

    key_id: str
    hashed: str
    note: CallNote
    etag: str

    @property
    def call(self) -> str:
        return f"{self.key_id}-{self.hashed}"

    @property
    def is_again(self) -> bool:
        """Whether an earlier attempt began it and may have done any part of it."""
        return self.note.begun_at < self.note.taken_at


class CallInProgress(msgspec.Struct, frozen=True):
    """Another process is working on it; when to try again."""

    wait: timedelta


class KeyReused(msgspec.Struct, frozen=True):
    """The key was used for another request."""


async def begin(
    tables: Tables,
    key_id: str,
    key: str,
    request: str,
    now: datetime,
    *,
    taken_for: timedelta = TAKEN_FOR,
) -> CallBegun | StoredAnswer | CallInProgress | KeyReused:
    """Note that the call begins, or return what an earlier attempt noted.

    `taken_for` is how long a call of this kind may take before it can be taken over.
    """
    hashed = hashlib.sha256(key.encode()).hexdigest()
    found = await find_row(tables, _TABLE, _partition(key_id), hashed, CallNote)
    if found is None or found.value.begun_at + KEPT_FOR <= now:
        fresh = CallNote(request=request, begun_at=now, taken_at=now)
        return await _write(tables, key_id, hashed, fresh, found.etag if found else None)
    known = found.value
    if known.request != request:
        return KeyReused()
    if known.answer.status:
        return known.answer
    if now < known.taken_at + taken_for:
        return CallInProgress(known.taken_at + taken_for - now)
    taken = msgspec.structs.replace(known, taken_at=now)
    return await _write(tables, key_id, hashed, taken, found.etag)


async def _write(
    tables: Tables, key_id: str, hashed: str, note: CallNote, etag: str | None
) -> CallBegun | CallInProgress:
    """Write the entry by age first: a note that the sweep cannot find would never be deleted."""
    key = f"{sortable(note.begun_at)}:{key_id}:{hashed}"
    await tables.upsert(_TABLE, _BY_TIME, key, FORMAT_ONLY)
    properties = to_properties(note)
    try:
        new = await write_row(tables, _TABLE, _partition(key_id), hashed, properties, etag)
    except Conflict:
        return CallInProgress(TAKEN_FOR)
    return CallBegun(key_id, hashed, note, new)


async def finish(tables: Tables, begun: CallBegun, answer: StoredAnswer) -> None:
    """Note the answer, unless another process took over and notes the same one."""
    await _change(tables, begun, answer=answer)


async def release(tables: Tables, begun: CallBegun) -> None:
    """Let a repeated call take over at once, because this one failed at an unknown point."""
    await _change(tables, begun, taken_at=begun.note.begun_at - TAKEN_FOR)


async def _change(tables: Tables, begun: CallBegun, **fields: StoredAnswer | datetime) -> None:
    row = to_properties(msgspec.structs.replace(begun.note, **fields))
    with contextlib.suppress(Conflict):
        await tables.replace(_TABLE, _partition(begun.key_id), begun.hashed, row, begun.etag)


async def forget(tables: Tables, begun: CallBegun) -> None:
    """Delete the note of a call that created nothing: a corrected request may use the key again."""
    with contextlib.suppress(Conflict):
        await tables.delete(_TABLE, _partition(begun.key_id), begun.hashed, begun.etag)


async def forget_old(tables: Tables, now: datetime) -> int:
    """Delete expired notes, oldest first, at most FORGOTTEN_A_SWEEP; return how many."""
    before = now - KEPT_FOR
    keys = KeysWithin(_BY_TIME, stop=sortable(before))
    page = await tables.scan(_TABLE, keys, limit=FORGOTTEN_A_SWEEP)
    for row in page.rows:
        _, key_id, hashed = row.key.split(":")
        note = await find_row(tables, _TABLE, _partition(key_id), hashed, CallNote)
        if note and note.value.begun_at <= before:  # a key that was used again has a new entry
            with contextlib.suppress(Conflict):
                await tables.delete(_TABLE, _partition(key_id), hashed, note.etag)
        await tables.delete(_TABLE, _BY_TIME, row.key)
    return len(page.rows)


def _partition(key_id: str) -> str:
    return f"idempotency-{key_id}"
