"""Action, control message: unschedule, pause, resume, cancel or retry it, decide on held ones.

Before: any stage.   After: the scheduler and the senders see the new status within seconds.
Dies half-way: each action is one guarded write, retried if the message has changed since.
Unscheduling deletes the due entry afterwards; an entry that remains is ignored, and deleted later.
Commit point: the message row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import assert_never

import msgspec

from postroom.act import Act
from postroom.domain import message as rules
from postroom.domain.audit import AuditAction, AuditKind
from postroom.domain.errors import WrongState
from postroom.domain.message import STATUS_TEXTS, Message, Revive
from postroom.domain.texts import _
from postroom.flow import report
from postroom.records import messages
from postroom.records.retry import retry_on_conflict
from postroom.storage.port import Conflict, Tables

_TRIES_MAX = 20  # more than elsewhere: the scheduler writes the row about once a second


class Control(StrEnum):
    """What people may do to a message that is scheduled or being sent."""

    UNSCHEDULE = "unschedule"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY_FAILED = "retry"
    SEND_HELD_AGAIN = "send-again"
    COUNT_HELD_AS_SENT = "count-as-sent"


async def control(act: Act, ref: str, action: Control) -> Message:
    """Apply the action, wake the scheduler, and return the message with its current books."""
    async with act.audited(AuditKind.MESSAGE, ref, AuditAction(action.value)):
        changed = await _apply(act, ref, action)
    act.wake_scheduler()
    return await report.books_of(act.tables, changed)


async def _apply(act: Act, ref: str, action: Control) -> Message:
    tables = act.tables
    now = act.now
    match action:
        case Control.UNSCHEDULE:
            return await unschedule(tables, ref)
        case Control.PAUSE:
            return await pause(tables, ref)
        case Control.RESUME:
            return await resume(tables, ref)
        case Control.CANCEL:
            return await cancel(tables, ref, now)
        case Control.RETRY_FAILED:
            return await retry_failed(tables, ref, now)
        case Control.SEND_HELD_AGAIN:
            return await decide_held(tables, ref, send_again=True, now=now)
        case Control.COUNT_HELD_AS_SENT:
            return await decide_held(tables, ref, send_again=False, now=now)
        case _:
            assert_never(action)


async def unschedule(tables: Tables, ref: str) -> Message:
    """Bring a scheduled message back to draft; WrongState once the scheduler has started it.

    The due entry is read before the row is written, and deleted only if it is still the same,
    because an entry put meanwhile belongs to a new time.
    """
    found = await messages.find_live(tables, ref)
    entry = await messages.find_due(tables, found.value) if found else None
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
    """Cancel the message, and make it due at once, so that the scheduler closes its books."""

    def change(message: Message) -> Message:
        due_at = min(message.due_at or now, now)
        return msgspec.structs.replace(rules.cancelled(message), due_at=due_at)

    cancelled = await _change(tables, ref, change)
    await messages.put_due(tables, cancelled, now)  # after a crash before this, the sweep puts it
    return cancelled


async def retry_failed(tables: Tables, ref: str, now: datetime) -> Message:
    """Queue the failed recipients again, from the archive if necessary."""
    return await _revive(tables, ref, Revive.FAILED, now)


async def decide_held(tables: Tables, ref: str, *, send_again: bool, now: datetime) -> Message:
    return await _revive(tables, ref, Revive.HELD if send_again else Revive.HELD_AS_SENT, now)


async def _revive(tables: Tables, ref: str, revive: Revive, now: datetime) -> Message:
    live = await messages.find_live(tables, ref)
    archived = None if live else await messages.find_archived(tables, ref)
    found = live or archived
    message = found.value if found else await messages.read(tables, ref)
    back = msgspec.structs.replace(rules.revived(message, revive), due_at=message.due_at or now)
    books = (await report.books_of(tables, message)).books
    if revive is Revive.FAILED and not books.failed:
        raise WrongState(_("Message {ref} has no failed recipients.", ref=ref))
    if revive is not Revive.FAILED and not books.held:
        raise WrongState(_("Message {ref} has no held recipients.", ref=ref))
    if archived is None:
        return await _change(tables, ref, lambda message: rules.revived(message, revive))
    try:
        # Restart its age: the sweep must not delete batches of a message that is live again.
        await messages.put_archive_entry(tables, ref, now)
        young = msgspec.structs.replace(message, completed_at=now)
        await messages.replace_archived(tables, young, archived.etag)
        await messages.put_due(tables, back, now)  # an entry without a message is ignored
        await messages.insert_live(tables, back)
    except Conflict:
        return await _change(tables, ref, lambda message: message)  # somebody else was faster
    return back


async def _change(tables: Tables, ref: str, change: Callable[[Message], Message]) -> Message:
    async def write() -> Message:
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
        changed = change(found.value)
        await messages.replace(tables, changed, found.etag)
        return changed

    too_fast = WrongState(_("Message {ref} is changing right now. Try again in a moment.", ref=ref))
    return await retry_on_conflict(write, tries=_TRIES_MAX, at_last=too_fast)
