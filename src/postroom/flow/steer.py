"""Beside the path, steer: what people may do to a message on its way.

Before: any stage.   After: the scheduler and the senders find the new status within seconds.
Dies half-way: each act is one guarded write, retried if the message moved meanwhile. Unscheduling
deletes the due entry after it: one that is left is passed over, and cleared away later.
Commit point: the message row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime

import msgspec

from postroom.domain import message as rules
from postroom.domain.errors import WrongState
from postroom.domain.message import STATUS_TEXTS, Message, Revive
from postroom.domain.texts import _
from postroom.records import messages
from postroom.storage.port import Conflict, Tables

_TRIES_MAX = 20  # the scheduler writes the row about once a second


async def unschedule(tables: Tables, ref: str) -> Message:
    """Bring a scheduled message back to draft; WrongState once the scheduler has started it.

    The due entry is read before the row is written, and deleted only if it is still the same: one
    that was put meanwhile belongs to a new time, and that message would be found without it only by
    the sweep.
    """
    found = await messages.find_live(tables, ref)
    entry = await messages.find_due(tables, found[0]) if found else None
    draft = await _change(tables, ref, rules.unscheduled)
    if entry:
        with contextlib.suppress(Conflict):
            await messages.delete_due_entry(tables, entry)
    return draft


async def pause(tables: Tables, ref: str) -> Message:
    return await _change(tables, ref, rules.paused)


async def resume(tables: Tables, ref: str) -> Message:
    return await _change(tables, ref, rules.resumed)


async def cancel(tables: Tables, ref: str, now: datetime) -> Message:
    """One that was not due yet becomes so, for the scheduler to close its books."""

    def change(message: Message) -> Message:
        due_at = min(message.due_at or now, now)
        return msgspec.structs.replace(rules.cancelled(message), due_at=due_at)

    cancelled = await _change(tables, ref, change)
    await messages.put_due(tables, cancelled, now)  # dying before it, the sweep puts it
    return cancelled


async def retry_failed(tables: Tables, ref: str, now: datetime) -> Message:
    """Queue the failed again, out of the archive if need be."""
    return await _revive(tables, ref, Revive.FAILED, now)


async def decide_held(tables: Tables, ref: str, *, send_again: bool, now: datetime) -> Message:
    return await _revive(tables, ref, Revive.HELD if send_again else Revive.HELD_AS_SENT, now)


async def _revive(tables: Tables, ref: str, revive: Revive, now: datetime) -> Message:
    if await messages.find_live(tables, ref):
        return await _change(tables, ref, lambda message: rules.revived(message, revive))
    found = await messages.find_archived(tables, ref)
    archived = found[0] if found else await messages.read(tables, ref)
    if found is None or revive is not Revive.FAILED or not archived.books.failed:
        raise WrongState(_("Message {ref} has nobody to decide on or to send to again.", ref=ref))
    back = msgspec.structs.replace(rules.revived(archived, revive), due_at=archived.due_at or now)
    try:
        await _rejuvenate(tables, *found, now)
        await messages.put_due(tables, back, now)  # an entry without a message is passed over
        await messages.insert_live(tables, back)
    except Conflict:
        return await _change(tables, ref, lambda message: message)  # somebody else was faster
    return back


async def _rejuvenate(tables: Tables, archived: Message, etag: str, now: datetime) -> None:
    """From this write on the sweep takes it for young, so that nothing expires under the living."""
    await messages.put_archive_entry(tables, archived.ref, now)
    young = msgspec.structs.replace(archived, completed_at=now)
    await messages.replace_archived(tables, young, etag)


async def _change(tables: Tables, ref: str, change: Callable[[Message], Message]) -> Message:
    for _try in range(_TRIES_MAX):
        found = await messages.find_live(tables, ref)
        if found is None:
            archived = await messages.read(tables, ref)
            raise WrongState(
                _(
                    "Message {ref} is already {status} and can no longer be changed.",
                    ref=ref,
                    status=STATUS_TEXTS[archived.status],
                )
            )
        message, etag = found
        try:
            changed = change(message)
            await messages.replace(tables, changed, etag)
            return changed
        except Conflict:
            continue
    raise WrongState(_("Message {ref} changes too fast: try again.", ref=ref))
