"""Action, handle dead letters: put them back, send a confirmation again, or clear them away.

Before: a sender set an item aside (records/dead_letters.py), with the reason.
After: the item is back on its queue, or deleted, or the person gets a new confirmation email.
Dies half-way: an item is on its queue, or its confirmation is requested, before the dead letter is
deleted. So it may be done and still be listed. Repeating it is safe: the ledger of a batch decides
whether anything is to be sent, and people can be asked to confirm only so often.
Commit point: the deletion of the dead letter.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from postroom.act import Act
from postroom.actions import ask_to_confirm
from postroom.domain import work_item
from postroom.domain.asking import CANNOT_ASK_TEXTS
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.dead_letter import DeadLetter, names_of
from postroom.domain.errors import NotFound, PostroomError, WrongState
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import _
from postroom.domain.work_item import BadItem, ConfirmItem
from postroom.records import dead_letters, subscribers
from postroom.records.dead_letters import BuriedItem
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.queue_items import claim_one
from postroom.storage.port import Claim, ClaimLost, Tables

ALL = "all"  # the name of all of them in the audit log


async def put_back(act: Act, id_: str) -> None:
    """Put one item back on its queue."""
    queues = act.storage.queues
    async with _claimed(act, id_, AuditAction.PUT_BACK) as (claim, buried):
        if not buried.can_be_put_back:
            raise WrongState(
                _("No sender can process this item, so it cannot be put back. Clear it.")
            )
        await queues.put(buried.letter.queue, buried.letter.body)
        await queues.complete(claim)
    act.wake_senders()


async def put_back_all(act: Act) -> tuple[int, int]:
    """Put back all that a sender understands; return how many were put back and how many remain."""
    async with act.audited(AuditKind.DEAD_LETTER, ALL, AuditAction.PUT_BACK):
        done = await dead_letters.put_back(act.storage.queues)
    act.wake_senders()
    return done


async def resend(act: Act, id_: str) -> Subscriber:
    """Ask the person of a confirmation to confirm, and clear the item; return the person."""
    queues = act.storage.queues
    async with _claimed(act, id_, AuditAction.ASK) as (claim, buried):
        found = await find_person(act.tables, buried.letter)
        if found is None:
            raise NotFound(_("This person is no longer on any list. Clear the item."))
        why = await ask_to_confirm.ask_one(act, found.list_name, found.key)
        if why:
            raise WrongState(str(CANNOT_ASK_TEXTS[why]))
        await queues.complete(claim)
    act.wake_senders()
    return found


async def clear(act: Act, id_: str) -> None:
    async with _claimed(act, id_, AuditAction.CLEAR) as (claim, _buried):
        await act.storage.queues.complete(claim)


async def clear_all(act: Act) -> int:
    async with act.audited(AuditKind.DEAD_LETTER, ALL, AuditAction.CLEAR):
        return await dead_letters.clear(act.storage.queues)


def confirmation_of(letter: DeadLetter) -> ConfirmItem | None:
    """The confirmation that the item asks for, if it is one."""
    if letter.queue != SINGLE_MAIL_QUEUE or work_item.is_trial_item(letter.body):
        return None
    with contextlib.suppress(BadItem):
        return work_item.parse_confirm_item(letter.body)
    return None


async def find_person(tables: Tables, letter: DeadLetter) -> Subscriber | None:
    """The person whom a confirmation is for, if they are still on their list."""
    item = confirmation_of(letter)
    if item is None:
        return None
    list_name = item.list_name or await subscribers.find_list_of(tables, item.guid)
    if not list_name:
        return None
    found = await subscribers.find_by_guid(tables, list_name, item.guid)
    return found.value if found else None


@contextlib.asynccontextmanager
async def _claimed(
    act: Act, id_: str, action: AuditAction
) -> AsyncIterator[tuple[Claim, BuriedItem]]:
    """Claim one dead letter, recorded in the audit log; a refusal leaves it where it is."""
    queues = act.storage.queues
    claim = await claim_one(queues, DEAD_LETTER_QUEUE, id_)
    buried = dead_letters.buried_item(claim)
    name = " ".join(names_of(buried.letter.body).values())
    before = values_text({"reason": buried.letter.reason.value, "queue": buried.letter.queue})
    try:
        async with act.audited(AuditKind.DEAD_LETTER, name, action, before=before):
            yield claim, buried
    except PostroomError:
        with contextlib.suppress(ClaimLost):
            await queues.release(claim)
        raise
