"""Action, move subscriber: change a subscriber's address, or move them to another list.

Before: an administrator or a program names a subscriber and a destination.
After: the new address is in every audience from now on. The old one is marked as removed: it is not
mailed, even if it is queued, and no import adds it again.

The new row has a new GUID; the old row points to it, so that links in old emails still work.
Somebody who is moved while a message fans out may miss that message or get it at both addresses,
because fan-out goes through a list by address. An old address that is already queued is skipped
and reported as skipped, because its owner gave it up.

Dies half-way:
    within a list     one write: done or not done
    across lists      before the removal they are on both lists; a repeated move finishes
Commit point: the rows of the new address; across lists, the removal from the old one.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from postroom.act import Act
from postroom.domain.address import Address
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.consent import Consent, Event
from postroom.domain.errors import NotFound
from postroom.domain.subscriber import AlreadySubscribed, InactiveReason, Subscriber
from postroom.domain.texts import _
from postroom.domain.token import new_guid
from postroom.flow import subscribe
from postroom.records import lists, subscribers
from postroom.records.stored import Stored
from postroom.storage.port import Conflict


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """The new list and address of a subscriber, and their data there."""

    list_name: str
    address: Address
    verified: bool
    attributes: dict[str, str]
    bring_back: bool = False  # even if that address unsubscribed there: only at their request

    def is_elsewhere(self, subscriber: Subscriber) -> bool:
        return (self.list_name, self.address.storage_key) != (subscriber.list_name, subscriber.key)


async def change(act: Act, subscriber: Subscriber, to: Destination, *, etag: str) -> Subscriber:
    """Move the subscriber if the list or address differs, else edit them; Conflict as in both."""
    if to.is_elsewhere(subscriber):
        name = f"{subscriber.list_name} {subscriber.address}"
        after = values_text({"list": to.list_name, "address": to.address.typed})
        async with act.audited(AuditKind.SUBSCRIBER, name, AuditAction.MOVE, after=after):
            return await move(act, subscriber.list_name, subscriber.key, to, etag=etag)
    return await subscribe.edit(
        act,
        subscriber.list_name,
        subscriber.key,
        verified=to.verified,
        attributes=to.attributes,
        spelling=to.address.typed,
        etag=etag,
    )


async def move(act: Act, list_name: str, key: str, to: Destination, *, etag: str) -> Subscriber:
    """Return the subscriber at the destination; Conflict unless the old row has this etag."""
    tables = act.tables
    before = await subscribers.find(tables, list_name, key)
    if before is None or before.value.inactive_reason:
        raise NotFound(_("They are no longer on {name}.", name=list_name))
    if before.etag != etag:
        raise Conflict("the subscriber has changed")
    await lists.read(tables, to.list_name)
    replaced = await subscribers.find(tables, to.list_name, to.address.storage_key)
    if to.list_name != list_name:
        return await _change_list(act, before, to, replaced)
    if replaced and (replaced.value.inactive_reason is None or not to.bring_back):
        raise AlreadySubscribed(replaced.value)
    after = _at_destination(before.value, to, act.now)
    change = subscribers.AddressChange(
        before=before.value,
        after=after,
        replaced=replaced,
        removed=_event(act, Event.REMOVED, new_address=after.address),
        added=_event(act, Event.ADDED, old_address=before.value.address),
        left_at=act.clock.now(),
    )
    await subscribers.move(tables, change, etag)
    return after


async def _change_list(
    act: Act, before: Stored[Subscriber], to: Destination, replaced: Stored[Subscriber] | None
) -> Subscriber:
    """Somebody already on the new list is left unchanged, so that a repeated move can finish."""
    after = _at_destination(before.value, to, act.now)
    added = _event(act, Event.ADDED, old_list=before.value.list_name)
    if replaced is None:
        await subscribers.join(act.tables, after, added)
    elif replaced.value.inactive_reason:
        former, etag = replaced
        if not to.bring_back:
            raise AlreadySubscribed(former)
        after = (await subscribers.join_again(act.tables, former, after, etag, added)).value
    else:
        after = replaced.value
    removed = _event(act, Event.REMOVED, new_list=to.list_name)
    await subscribers.leave(
        act.tables, *before, why=InactiveReason.REMOVED, consent=removed, left_at=act.clock.now()
    )  # Commit point.
    return after


def _at_destination(before: Subscriber, to: Destination, now: datetime) -> Subscriber:
    """Describe them as an administrator would add them, with no confirmation pending."""
    return msgspec.structs.replace(
        before,
        list_name=to.list_name,
        address=to.address.typed,
        key=to.address.storage_key,
        guid=new_guid(),  # the old one is removed, and its links belong to the old row
        verified=to.verified,
        attributes=to.attributes,
        since=now,
        asked_at=None,
        expires=False,
        inactive_reason_before=None,
        confirmation=None,
    )


def _event(act: Act, event: Event, **other: str) -> Consent:
    """Describe the move in the consent record; each address or list names the other."""
    source = msgspec.structs.replace(act.trace.source, **other)
    return msgspec.structs.replace(act.trace, source=source).consent(event, act.now)
