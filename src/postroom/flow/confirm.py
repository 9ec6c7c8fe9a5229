"""Beside the path, confirm: mail the link by which somebody says yes.

Before: subscribe.py stored the subscriber unverified and put an item on the subscribe queue.
After: the person has a mail; following its link verifies them.
Dies half-way: the item comes back; at worst the same mail, with the same Message-ID, goes twice,
and the consent record says so.
Commit point: the completion of the item.
"""

from __future__ import annotations

from typing import Protocol

from postroom.clock import Clock
from postroom.domain.consent import Event, Trace
from postroom.domain.mailing_list import MailingList
from postroom.domain.outcome import Outcome, Sent
from postroom.domain.retry import RetryRules, retry_after_s
from postroom.domain.subscriber import Subscriber
from postroom.domain.work_item import BadItem, ConfirmItem, parse_confirm_item
from postroom.records import consents, lists, subscribers
from postroom.records.rows import Unreadable
from postroom.records.single_mails import TAKES_MAX, bury, complete, conclude, start_over
from postroom.storage.port import Claim, Storage, Tables
from postroom.transport.port import Lane, Mail, Permit

RULES = RetryRules(first_s=30.0, longest_s=1800.0)
_BY_MAIL = Trace(source="confirmation mail")


class Writer(Protocol):
    def confirmation(self, mailing_list: MailingList, subscriber: Subscriber) -> Mail: ...


async def mail_confirmation(
    storage: Storage, claim: Claim, lane: Lane, writer: Writer, clock: Clock, permit: Permit
) -> Outcome | None:
    """All the steps of one item; the outcome, or None if there was nobody to ask, or no turn."""
    try:
        item = parse_confirm_item(claim.body)
    except BadItem:
        await bury(storage.queues, claim)
        return None
    if claim.taken > TAKES_MAX:  # it ended its sender every time
        await bury(storage.queues, claim)
        return None
    try:
        written = await _written(storage.tables, item, writer)
    except Unreadable:  # of a newer version, whose sender may take it
        await storage.queues.release(claim, delay_s=retry_after_s(claim.taken, RULES))
        return None
    except ValueError:  # the list's From cannot stand in a mail: a person has to change it
        await bury(storage.queues, claim)
        return None
    if written is None:
        await complete(storage.queues, claim)
        return None
    key, mail = written
    if wait_s := await permit.wait_s(mail.recipient):
        await start_over(storage.queues, claim, wait_s)
        return None
    [outcome] = await lane.send([mail], permit)
    if isinstance(outcome, Sent):
        mailed = _BY_MAIL.consent(Event.MAILED, clock.now())
        await consents.note(storage.tables, item.list_name, key, mailed)
    await conclude(storage.queues, claim, outcome, RULES)
    return outcome


async def _written(tables: Tables, item: ConfirmItem, writer: Writer) -> tuple[str, Mail] | None:
    """The person's key, and the mail; None if there is nobody to ask any more."""
    mailing_list = await lists.find(tables, item.list_name)
    found = await subscribers.find_by_guid(tables, item.list_name, item.guid)
    if mailing_list is None or found is None or found[0].verified:
        return None
    return found[0].key, writer.confirmation(mailing_list, found[0])
