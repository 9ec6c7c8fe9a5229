"""Messages as rows.

    message / m-<ref>     / message         the message itself, until it is archived
    message / -messages   / <10^18 - ref>   directory of all messages, the newest first
    message / yyyy-mm-dd  / message<ref>    due entry: only points to the message, which decides
    messagearchive / m-<ref> / message      the message once every delivery has its outcome
    messagearchive / yyyy-mm-dd / message<ref>   when it was archived, so that it is found by age

Dates sort apart from every other partition (m-, b, l), so that due messages are found by one cheap
range query that reads no deliveries.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from postroom.domain.errors import NotFound
from postroom.domain.message import Message, Status, ticks
from postroom.domain.texts import _
from postroom.records.rows import (
    FORMAT,
    FORMAT_ONLY,
    OtherFormat,
    Unreadable,
    all_rows,
    find_row,
    first_rows,
    from_properties,
    readable,
    readable_rows,
    to_properties,
    unreadable_logged,
)
from postroom.records.stored import Stored
from postroom.storage.port import Conflict, KeysAcross, KeysWithin, Properties, Tables

LIVE, ARCHIVE = "message", "messagearchive"
_KEY = "message"
DIRECTORY = "-messages"  # sorts apart from every other partition
_REF_TRIES_MAX = 1000
AT_ONCE_S = 1.0  # due since less than this: it was scheduled for "now"
_TOGETHER_MIN = 3  # fewer are read one at a time
_TOGETHER_ROWS = 2  # read for each message wanted, since drafts and others are between them
_REF = re.compile(r"[0-9]{1,18}")


async def reserve(tables: Tables, message: Message) -> Stored[Message]:
    """Insert a message under the next free ref, so that two of the same tick cannot collide."""
    number = ticks(message.created_at)
    for tried in range(_REF_TRIES_MAX):
        candidate = msgspec.structs.replace(message, ref=f"{number + tried:018d}")
        if await tables.get(ARCHIVE, _partition(candidate.ref), _KEY):
            continue  # a clock was set back: the batches of the two would mix
        # The entry comes first: it is skipped without a message, but a message needs one.
        await tables.upsert(LIVE, DIRECTORY, backwards(candidate.ref), FORMAT_ONLY)
        try:
            return Stored(candidate, await insert_live(tables, candidate))
        except Conflict:
            continue
    raise Conflict(f"no free message ref within {_REF_TRIES_MAX} ticks")


async def reserve_as(tables: Tables, message: Message) -> Stored[Message]:
    """Insert a message under its ref, or find it if an earlier attempt of the call inserted it.

    Conflict if the ref belongs to another message, or if two attempts run at the same time.
    """
    found = await find_with_etag(tables, message.ref)
    if found is None:
        await tables.upsert(LIVE, DIRECTORY, backwards(message.ref), FORMAT_ONLY)
        return Stored(message, await insert_live(tables, message))
    if found.value.origin != message.origin:
        raise Conflict(f"the ref {message.ref} is taken")
    return found


async def newest(
    tables: Tables, *, limit: int, after: str | None = None
) -> tuple[list[Message], str | None]:
    """Return a page of all messages, the newest first, and the last ref if there are more."""
    start = f"{backwards(after)} " if after else ""  # a space sorts before every digit
    rows, has_more = await first_rows(tables, LIVE, KeysWithin(DIRECTORY, start), limit=limit)
    refs = [backwards(row.key) for row in rows]
    found = [await _find_readable(tables, ref) for ref in refs]
    return [message for message in found if message], refs[-1] if has_more else None


async def _find_readable(tables: Tables, ref: str) -> Message | None:
    """Return None, and log it, if the row cannot be read, so that pages show the others."""
    with unreadable_logged(ref=ref):
        return await find(tables, ref)
    return None


async def every_message(tables: Tables) -> AsyncIterator[Message]:
    async for row in all_rows(tables, LIVE, KeysWithin(DIRECTORY)):
        if message := await _find_readable(tables, backwards(row.key)):
            yield message


async def leave_directory(tables: Tables, ref: str) -> None:
    await tables.delete(LIVE, DIRECTORY, backwards(ref))


async def find(tables: Tables, ref: str) -> Message | None:
    found = await find_with_etag(tables, ref)
    return found.value if found else None


async def find_with_etag(tables: Tables, ref: str) -> Stored[Message] | None:
    """Find it live, else archived: archiving writes the one row before it deletes the other."""
    return await find_live(tables, ref) or await find_archived(tables, ref)


async def find_live(tables: Tables, ref: str) -> Stored[Message] | None:
    return await find_row(tables, LIVE, _partition(ref), _KEY, Message)


async def find_live_together(tables: Tables, refs: Sequence[str]) -> dict[str, Stored[Message]]:
    """Find several live messages by one scan; use `find_live` for any that it misses."""
    refs = [ref for ref in refs if _REF.fullmatch(ref)]  # anything else may be no key
    if len(refs) < _TOGETHER_MIN:
        return {}
    keys = KeysAcross(_partition(min(refs)), f"{_partition(max(refs))} ")  # just after the last
    rows, _ = await first_rows(tables, LIVE, keys, limit=len(refs) * _TOGETHER_ROWS)
    return {found.value.ref: found for found in readable(rows, Message)}


async def find_archived(tables: Tables, ref: str) -> Stored[Message] | None:
    return await find_row(tables, ARCHIVE, _partition(ref), _KEY, Message)


async def read(tables: Tables, ref: str) -> Message:
    return (await read_with_etag(tables, ref)).value


async def read_with_etag(tables: Tables, ref: str) -> Stored[Message]:
    if not _REF.fullmatch(ref):
        text = _(
            "“{ref}” is not a message ref, which is a number such as 634852858215726983.", ref=ref
        )
        raise NotFound(text)
    found = await find_with_etag(tables, ref)
    if found is None:
        raise NotFound(_("There is no message {ref}.", ref=ref))
    return found


async def replace(tables: Tables, message: Message, etag: str) -> str:
    """Replace the message; the new etag. Conflict if it has changed since."""
    return await tables.replace(LIVE, _partition(message.ref), _KEY, to_properties(message), etag)


async def insert_live(tables: Tables, message: Message) -> str:
    return await tables.insert(LIVE, _partition(message.ref), _KEY, to_properties(message))


async def delete_live(tables: Tables, ref: str, etag: str) -> None:
    await tables.delete(LIVE, _partition(ref), _KEY, etag)


class DueEntry(msgspec.Struct, frozen=True):
    """Names a message that is due at some time."""

    ref: str
    due_at: Annotated[datetime, msgspec.Meta(tz=True)]  # any other row is damaged
    is_due: bool = False  # it was already due when this was written
    etag: str = ""


async def put_due(tables: Tables, message: Message, now: datetime) -> None:
    """Write the due entry. A message that has begun, or is sent "now", is due at once.

    The scheduler's clock decides about all others.
    """
    assert message.due_at is not None
    late_s = (now - message.due_at).total_seconds()
    is_due = message.status is not Status.PENDING or 0 <= late_s < AT_ONCE_S
    entry = DueEntry(message.ref, message.due_at, is_due)
    await tables.upsert(LIVE, _date(message.due_at), _KEY + message.ref, to_properties(entry))


async def find_due(tables: Tables, message: Message) -> DueEntry | None:
    """Find the due entry of a message; None if there is none, or if it cannot be read."""
    if message.due_at is None:
        return None
    row = await tables.get(LIVE, _date(message.due_at), _KEY + message.ref)
    for entry, etag in readable([row] if row else [], DueEntry):
        return msgspec.structs.replace(entry, etag=etag)
    return None


async def has_due(tables: Tables, message: Message) -> bool:
    assert message.due_at is not None
    row = await tables.get(LIVE, _date(message.due_at), _KEY + message.ref)
    try:
        entry = from_properties(row.properties, DueEntry) if row else None
    except OtherFormat:
        return True  # the version that wrote it can read it
    except Unreadable:
        return False  # damaged: it is written again
    return entry is not None and (entry.ref, entry.due_at) == (message.ref, message.due_at)


async def note_due(tables: Tables, entry: DueEntry) -> None:
    """Mark it as due. Conflict if it has been written again since."""
    due = to_properties(msgspec.structs.replace(entry, is_due=True))
    await tables.replace(LIVE, _date(entry.due_at), _KEY + entry.ref, due, entry.etag)


async def due_entries(tables: Tables, now: datetime) -> AsyncIterator[DueEntry]:
    """Yield entries up to the end of tomorrow, due or not, the oldest day first.

    If the clock was set back over midnight, some of tomorrow's messages are already being sent.
    """
    keys = KeysAcross("0", _date(now + timedelta(days=2)))
    async for entry, row in readable_rows(tables, LIVE, keys, DueEntry):
        yield msgspec.structs.replace(entry, etag=row.etag)


async def scheduled_or_sending(
    tables: Tables, *, limit: int, besides: Collection[str] = ()
) -> list[Message]:
    """Return messages that are scheduled or being sent, except `besides`, the earliest day first.

    At most `limit` entries are read.
    """
    rows, _ = await first_rows(tables, LIVE, KeysAcross("0", "a"), limit=limit)
    refs = dict.fromkeys(entry.value.ref for entry in readable(rows, DueEntry))
    found = [await _find_readable(tables, ref) for ref in refs if ref not in besides]
    return [message for message in found if message]


async def delete_due_entry(tables: Tables, entry: DueEntry) -> None:
    """Conflict if it was written again since it was read."""
    await tables.delete(LIVE, _date(entry.due_at), _KEY + entry.ref, entry.etag)


async def put_archived(tables: Tables, message: Message, now: datetime) -> None:
    """Write the entry by date, then the archived row. Conflict if a later round is archived.

    So a scheduler that stalls here cannot restore the books from before a retry.
    """
    await put_archive_entry(tables, message.ref, now)
    found = await find_archived(tables, message.ref)
    if found is None:
        await tables.insert(ARCHIVE, _partition(message.ref), _KEY, to_properties(message))
    elif found.value.restarts > message.restarts:
        raise Conflict(f"message {message.ref} was archived again since")
    else:
        await replace_archived(tables, message, found.etag)


async def put_archive_entry(tables: Tables, ref: str, now: datetime) -> None:
    entry: Properties = {"Format": FORMAT, "MessageRef": ref}
    await tables.upsert(ARCHIVE, _date(now), _KEY + ref, entry)


async def archived_before(tables: Tables, day: datetime) -> AsyncIterator[tuple[str, str]]:
    """(date, ref) of messages archived before that day."""
    async for row in all_rows(tables, ARCHIVE, KeysAcross("0", _date(day))):
        yield row.partition, str(row.properties["MessageRef"])


async def delete_archived(tables: Tables, ref: str) -> None:
    await tables.delete(ARCHIVE, _partition(ref), _KEY)


async def delete_archive_entry(tables: Tables, date: str, ref: str) -> None:
    """Delete the entry last, because the next sweep finds the rest of the message by it."""
    await tables.delete(ARCHIVE, date, _KEY + ref)


async def live_messages(tables: Tables) -> AsyncIterator[Message]:
    """All messages that are not archived, drafts and paused ones included."""
    async for message, _etag in readable_rows(tables, LIVE, KeysAcross("m-", "m."), Message):
        yield message


async def first_live(tables: Tables, *, limit: int) -> tuple[list[Message], bool]:
    """Return the oldest messages that are not archived, with drafts, and whether more follow."""
    rows, has_more = await first_rows(tables, LIVE, KeysAcross("m-", "m."), limit=limit)
    return [found.value for found in readable(rows, Message)], has_more


async def replace_archived(tables: Tables, message: Message, etag: str) -> str:
    """Replace the archived row; the new etag. Conflict if it has been revived or is expiring."""
    where = _partition(message.ref)
    return await tables.replace(ARCHIVE, where, _KEY, to_properties(message), etag)


def date_of(message: Message) -> str:
    """The first field of its work items."""
    return _date(message.due_at or message.created_at)


def backwards(ref: str) -> str:
    """Return a number that falls as refs grow, or the ref of such a number."""
    return f"{10**18 - int(ref):018d}"


def _partition(ref: str) -> str:
    return f"m-{ref}"


def _date(at: datetime) -> str:
    return at.strftime("%Y-%m-%d")
