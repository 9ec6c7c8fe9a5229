"""Stage 0 of 7, subscribe: people join, confirm and unsubscribe.

Before: a client's site, an administrator or an import names an address; or a link was followed.
After: only verified subscribers are in an audience; send.py skips people who unsubscribed, even if
they were queued.
Dies half-way:
    sign-up, before the item is put     the row has no time of asking, so the next sign-up puts it
    sign-up, before the time is noted   the next sign-up may put a second item: one more email
    confirm, edit                       one write each: done or not done
    unsubscribe, after its write        the person saw no answer; a repeated request writes the
                                        departure again, where senders look for it
Commit point: the subscriber's row, with its event in the consent record and its change of the
counts in the same write. No mail is sent inside a request.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from postroom.act import Act
from postroom.domain.address import Address
from postroom.domain.audit import AuditAction, AuditKind, changed_values, values_text
from postroom.domain.consent import Event
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import AlreadySubscribed, InactiveReason, Subscriber
from postroom.domain.texts import _
from postroom.domain.token import is_signed, new_guid
from postroom.domain.work_item import ConfirmItem
from postroom.records import lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.records.retry import TRIES_MAX, retry_on_conflict
from postroom.records.stored import Stored

ASK_AGAIN_AFTER = timedelta(minutes=10)  # so that nobody can use a form to flood a mailbox
FINISHED_WITHIN = timedelta(days=1)  # people click again sooner


class ConfirmationResult(Enum):
    NOW = "now"
    ALREADY = "already"
    UNKNOWN = "unknown"  # no such link, or the person has unsubscribed


class UnsubscribeResult(Enum):
    NOW = "now"
    ALREADY = "already"
    UNKNOWN = "unknown"  # nobody on this list ever got such a link, or the list was deleted


async def sign_up(act: Act, list_name: str, address: Address, attributes: dict[str, str]) -> None:
    """Store the address unverified and queue a confirmation; reveal nothing about the list."""
    tables = act.tables
    await lists.read(tables, list_name)
    newcomer = new_subscriber(list_name, address, attributes, False, act.now, expires=True)
    put_for = ""  # the GUID of our item; a fast sender may change the row before we do

    async def join() -> None:
        nonlocal put_for
        known, etag = await _find_or_join(act, newcomer)
        is_put = known.guid == put_for
        if known.verified or (not is_put and _asked_recently(known, act.now)):
            return
        if not is_put:
            item = ConfirmItem(known.guid, list_name)
            await act.storage.queues.put(SINGLE_MAIL_QUEUE, item.body())
            put_for = known.guid
        attempts = known.confirmation if is_put else None  # of this item, or of an earlier one
        asked = msgspec.structs.replace(known, asked_at=act.now, confirmation=attempts)
        again = act.consent(Event.ASKED) if known.guid != newcomer.guid else None
        await subscribers.replace(tables, known, asked, etag, again)

    await retry_on_conflict(join, also=AlreadyThere)
    act.wake_senders()


async def add(
    act: Act,
    list_name: str,
    address: Address,
    attributes: dict[str, str],
    *,
    verified: bool,
    bring_back: bool = False,
) -> Subscriber:
    """An administrator adds somebody; `bring_back` re-adds a person who unsubscribed."""
    await lists.read(act.tables, list_name)
    newcomer = new_subscriber(list_name, address, attributes, verified, act.now)
    name = f"{list_name} {address.typed}"
    after = values_text({"confirmed": verified})
    async with act.audited(AuditKind.SUBSCRIBER, name, AuditAction.CREATE, after=after):
        return await _add(act, newcomer, bring_back=bring_back)


async def _add(act: Act, newcomer: Subscriber, *, bring_back: bool) -> Subscriber:
    tables = act.tables
    added = act.consent(Event.ADDED)
    found = await subscribers.find(tables, newcomer.list_name, newcomer.key)
    if found is None:
        await subscribers.join(tables, newcomer, added)
        return newcomer
    known, etag = found
    if known.inactive_reason is None or not bring_back:
        raise AlreadySubscribed(known)
    return (await subscribers.join_again(tables, known, newcomer, etag, added)).value


async def edit(
    act: Act,
    list_name: str,
    key: str,
    *,
    verified: bool,
    attributes: dict[str, str],
    etag: str,
    spelling: str | None = None,
) -> Subscriber:
    """An administrator changes somebody on the list; Conflict unless the row has this etag.

    Another spelling of the same address is an edit; another address or list is a move.
    """
    tables = act.tables
    found = await subscribers.find(tables, list_name, key)
    if found is None or found.value.inactive_reason:
        raise NotFound(_("They are no longer on {name}.", name=list_name))
    known = found.value
    edited = msgspec.structs.replace(
        known, attributes=attributes, address=spelling or known.address
    )
    event = None
    if verified != known.verified:
        edited = msgspec.structs.replace(edited, verified=verified, **_decided(act.now))
        event = act.consent(Event.CONFIRMED if verified else Event.UNCONFIRMED)
    name = f"{list_name} {known.address}"
    before, after = changed_values(_audited_values(known), _audited_values(edited))
    change = AuditAction.CHANGE
    async with act.audited(AuditKind.SUBSCRIBER, name, change, before=before, after=after):
        await subscribers.replace(tables, known, edited, etag, event)
    return edited


def _audited_values(one: Subscriber) -> dict[str, object]:
    return {"confirmed": one.verified, **one.attributes}


def new_subscriber(
    list_name: str,
    address: Address,
    attributes: dict[str, str],
    verified: bool,
    now: datetime,
    *,
    expires: bool = False,
) -> Subscriber:
    return Subscriber(
        list_name=list_name,
        address=address.typed,
        key=address.storage_key,
        guid=new_guid(),
        verified=verified,
        since=now,
        attributes=attributes,
        expires=expires,
    )


async def confirm(
    act: Act, secret: str, list_name: str, guid: str, token: str
) -> ConfirmationResult:
    """Verify the subscriber of a link; the token proves that the link is from our email."""
    if not is_signed(token, secret, "confirm", list_name, guid):
        return ConfirmationResult.UNKNOWN

    async def verify() -> ConfirmationResult:
        found = await subscribers.find_by_guid(act.tables, list_name, guid)
        if found is None:
            return ConfirmationResult.UNKNOWN
        known, etag = found
        if known.verified:
            return ConfirmationResult.ALREADY
        verified = msgspec.structs.replace(known, verified=True, **_decided(act.now))
        confirmed = act.consent(Event.CONFIRMED)
        await subscribers.replace(act.tables, known, verified, etag, confirmed)
        return ConfirmationResult.NOW

    return await retry_on_conflict(verify)


async def leave(
    act: Act, list_name: str, guid: str, why: InactiveReason = InactiveReason.UNSUBSCRIBED
) -> UnsubscribeResult:
    """Unsubscribe somebody: they get no more email, even if one is already queued.

    The GUID may be that of an earlier subscription; the current one ends too.
    """
    consent = act.consent(
        Event.UNSUBSCRIBED if why is InactiveReason.UNSUBSCRIBED else Event.REMOVED
    )

    async def unsubscribe() -> UnsubscribeResult:
        linked = await subscribers.find_linked(act.tables, list_name, guid)
        if linked.there:
            await subscribers.leave(act.tables, *linked.there, why=why, consent=consent)
            return UnsubscribeResult.NOW
        # A first try may have died before the departure was noted for the senders.
        if linked.inactive and abs(act.now - linked.inactive.since) < FINISHED_WITHIN:
            await subscribers.repeat_departure(act.tables, linked.inactive, linked.inactive.since)
        return UnsubscribeResult.ALREADY if linked.is_known else UnsubscribeResult.UNKNOWN

    return await retry_on_conflict(unsubscribe)


async def remove(act: Act, list_name: str, address: Address, *, etag: str | None = None) -> None:
    """Remove somebody for an administrator; Conflict if the row no longer has the given etag."""
    await lists.read(act.tables, list_name)
    consent = act.consent(Event.REMOVED)

    async def unsubscribe() -> None:
        found = await subscribers.find(act.tables, list_name, address.storage_key)
        if found is None or found.value.inactive_reason:
            raise NotFound(_("{address} is not on {name}.", address=address.typed, name=list_name))
        one, known = found
        await subscribers.leave(
            act.tables, one, etag or known, why=InactiveReason.REMOVED, consent=consent
        )

    name = f"{list_name} {address.typed}"
    async with act.audited(AuditKind.SUBSCRIBER, name, AuditAction.DELETE):
        await retry_on_conflict(unsubscribe, tries=1 if etag else TRIES_MAX)


async def _find_or_join(act: Act, newcomer: Subscriber) -> Stored[Subscriber]:
    """The subscriber with this address: an existing one, or the newcomer."""
    found = await subscribers.find(act.tables, newcomer.list_name, newcomer.key)
    if found and not found.value.inactive_reason:
        return found
    asked = act.consent(Event.ASKED)
    if found is None:
        return Stored(newcomer, await subscribers.join(act.tables, newcomer, asked))
    known, etag = found
    newcomer = msgspec.structs.replace(newcomer, inactive_reason_before=known.inactive_reason)
    return await subscribers.join_again(act.tables, known, newcomer, etag, asked)


def _decided(now: datetime) -> dict[str, Any]:
    """The other fields that change with `verified`: a confirmation is no longer pending."""
    return {"since": now, "expires": False, "inactive_reason_before": None, "confirmation": None}


def _asked_recently(subscriber: Subscriber, now: datetime) -> bool:
    """Whether an email was sent recently or will be retried, so that none is needed."""
    attempts = subscriber.confirmation
    if attempts and attempts.has_ended:
        return False
    if attempts and attempts.retry_at and attempts.last_at <= now:
        return now < attempts.retry_at + ASK_AGAIN_AFTER
    return subscriber.asked_at is not None and now < subscriber.asked_at + ASK_AGAIN_AFTER
