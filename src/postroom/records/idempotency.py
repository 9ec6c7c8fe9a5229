"""Notes on API calls that create something, so that a repeated call creates it once.

    service / idempotency-<key id>  / <sha256>                    the note
    service / idempotency-times     / <time>:<key id>:<sha256>    by age, for the sweep to find it

The note is written before anything is created, and again, with the answer, after it. A call whose
note only says that it began is running, or its process died: repeated late enough, it is taken
over. The note keeps the time of the first attempt: what is created carries it, and by it a later
attempt finds what an earlier one created.
"""

from __future__ import annotations

import contextlib
import hashlib
from datetime import datetime, timedelta

import msgspec

from postroom.records.rows import FORMAT_ONLY, from_properties, to_properties
from postroom.records.sortable_time import sortable
from postroom.storage.port import Conflict, KeysWithin, Tables

KEPT_FOR = timedelta(hours=24)
TAKEN_FOR = timedelta(seconds=60)  # longer than any call takes
FORGOTTEN_A_SWEEP = 500
_TABLE = "service"
_BY_TIME = "idempotency-times"


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that the caller got."""

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
    """The call is ours; the etag guards the note against a process that takes over."""

    key_id: str
    hashed: str
    note: CallNote
    etag: str

    @property
    def call(self) -> str:
        """Identifies this call."""
        return f"{self.key_id}-{self.hashed}"

    @property
    def is_again(self) -> bool:
        """An earlier attempt began it, and may have done any part of it."""
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
    """Note that the call begins, or find what is known of it.

    `taken_for` is how long a call of this kind may take before it can be taken over.
    """
    hashed = hashlib.sha256(key.encode()).hexdigest()
    row = await tables.get(_TABLE, _partition(key_id), hashed)
    fresh = CallNote(request=request, begun_at=now, taken_at=now)
    if row is None:
        return await _write(tables, key_id, hashed, fresh, None, now)
    known = from_properties(row.properties, CallNote)
    if known.begun_at + KEPT_FOR <= now:
        return await _write(tables, key_id, hashed, fresh, row.etag, now)
    if known.request != request:
        return KeyReused()
    if known.answer.status:
        return known.answer
    if now < known.taken_at + taken_for:
        return CallInProgress(known.taken_at + taken_for - now)
    taken = msgspec.structs.replace(known, taken_at=now)
    return await _write(tables, key_id, hashed, taken, row.etag, now)


async def _write(
    tables: Tables, key_id: str, hashed: str, note: CallNote, etag: str | None, now: datetime
) -> CallBegun | CallInProgress:
    """Write the entry by age first: a note that the sweep cannot find would stay for good."""
    await tables.upsert(_TABLE, _BY_TIME, _time_key(note.begun_at, key_id, hashed), FORMAT_ONLY)
    where, properties = _partition(key_id), to_properties(note)
    try:
        if etag is None:
            new_etag = await tables.insert(_TABLE, where, hashed, properties)
        else:
            new_etag = await tables.replace(_TABLE, where, hashed, properties, etag)
    except Conflict:
        return CallInProgress(TAKEN_FOR)
    return CallBegun(key_id, hashed, note, new_etag)


async def finish(tables: Tables, begun: CallBegun, answer: StoredAnswer) -> None:
    """Note the answer, unless another process took over, which notes the same."""
    done = msgspec.structs.replace(begun.note, answer=answer)
    with contextlib.suppress(Conflict):
        where = _partition(begun.key_id)
        await tables.replace(_TABLE, where, begun.hashed, to_properties(done), begun.etag)


async def release(tables: Tables, begun: CallBegun) -> None:
    """The call failed at an unknown point: a repeated call may take it over at once."""
    over = msgspec.structs.replace(begun.note, taken_at=begun.note.begun_at - TAKEN_FOR)
    with contextlib.suppress(Conflict):
        where = _partition(begun.key_id)
        await tables.replace(_TABLE, where, begun.hashed, to_properties(over), begun.etag)


async def forget(tables: Tables, begun: CallBegun) -> None:
    """Nothing was created: the key may be used again with a corrected request."""
    with contextlib.suppress(Conflict):
        await tables.delete(_TABLE, _partition(begun.key_id), begun.hashed, begun.etag)


async def forget_old(tables: Tables, now: datetime) -> int:
    """Delete expired notes, oldest first, at most FORGOTTEN_A_SWEEP; how many."""
    before = now - KEPT_FOR
    page = await tables.scan(
        _TABLE, KeysWithin(_BY_TIME, stop=sortable(before)), limit=FORGOTTEN_A_SWEEP
    )
    for row in page.rows:
        _, key_id, hashed = row.key.split(":")
        await _forget_one(tables, key_id, hashed, before)
        await tables.delete(_TABLE, _BY_TIME, row.key)
    return len(page.rows)


async def _forget_one(tables: Tables, key_id: str, hashed: str, before: datetime) -> None:
    """Delete a note, unless its key was used again since: that note has an entry of its own."""
    row = await tables.get(_TABLE, _partition(key_id), hashed)
    if row and from_properties(row.properties, CallNote).begun_at <= before:
        with contextlib.suppress(Conflict):
            await tables.delete(_TABLE, _partition(key_id), hashed, row.etag)


def _partition(key_id: str) -> str:
    return f"idempotency-{key_id}"


def _time_key(at: datetime, key_id: str, hashed: str) -> str:
    return f"{sortable(at)}:{key_id}:{hashed}"
