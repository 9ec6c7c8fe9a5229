"""Stage 0 of 7, subscribe: people join, confirm and leave.

Before: a client's site, an administrator or an import names an address; or a link was followed.
After: only verified subscribers are in an audience; who left is skipped by send.py even if queued.
Dies half-way:
    sign-up, before the item is put     the row says that nobody was asked: asking again puts it
    sign-up, before the time is noted   asking again may put a second item: one mail more
    confirm, edit                       one write each: done or not done
    leave, after its write              nobody was told that it is done; done again, the departure
                                        is noted once more where senders look
Commit point: the subscriber's row, with its event in the consent record and its change of the
counts in the same write. No mail is sent inside a request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec

from postroom.domain.address import Address
from postroom.domain.consent import COMMAND_LINE, Event, Trace
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import INACTIVE_TEXTS, InactiveReason, Subscriber, clean_attributes
from postroom.domain.texts import _
from postroom.domain.token import is_signed, new_guid, sign
from postroom.domain.work_item import ConfirmItem
from postroom.records import lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.storage.port import Conflict, Storage, Tables

ASK_AGAIN_AFTER = timedelta(minutes=10)  # so that a form cannot be used to bomb somebody
_TRIES_MAX = 5
FINISHED_WITHIN = timedelta(days=1)  # whoever clicks again does it sooner


class ConfirmationResult(Enum):
    NOW = "now"
    ALREADY = "already"
    UNKNOWN = "unknown"  # no such link, or the person has left


class UnsubscribeResult(Enum):
    NOW = "now"
    ALREADY = "already"
    UNKNOWN = "unknown"  # nobody on this list ever got such a link, or the list was deleted


async def sign_up(
    storage: Storage,
    list_name: str,
    address: Address,
    attributes: Mapping[str, str],
    now: datetime,
    *,
    trace: Trace = COMMAND_LINE,
) -> None:
    """Store unverified and queue a confirmation. The caller learns nothing about who is there."""
    tables = storage.tables
    await lists.read(tables, list_name)
    kept = clean_attributes(attributes)
    newcomer = new_subscriber(list_name, address, kept, False, now, expires=True)
    put_for = ""  # whom an item was put for: a quick sender may change their row before we do
    for _try in range(_TRIES_MAX):
        with contextlib.suppress(Conflict, AlreadyThere):  # somebody was faster: look again
            known, etag = await _find_or_join(tables, newcomer, trace)
            is_put = known.guid == put_for
            if known.verified or (not is_put and _asked_lately(known, now)):
                return
            if not is_put:
                item = ConfirmItem(known.guid, list_name)
                await storage.queues.put(SINGLE_MAIL_QUEUE, item.body())
                put_for = known.guid
            attempts = known.confirmation if is_put else None  # of this item, or of an earlier one
            asked = msgspec.structs.replace(known, asked_at=now, confirmation=attempts)
            again = trace.consent(Event.ASKED, now) if known.guid != newcomer.guid else None
            await subscribers.replace(tables, known, asked, etag, again)
            return
    raise Conflict("the subscriber changes too fast")


async def add(
    tables: Tables,
    list_name: str,
    address: Address,
    attributes: Mapping[str, str],
    *,
    verified: bool,
    now: datetime,
    bring_back: bool = False,
    trace: Trace = COMMAND_LINE,
) -> Subscriber:
    """An administrator adds somebody. Who left stays away unless `bring_back` names them."""
    await lists.read(tables, list_name)
    newcomer = new_subscriber(list_name, address, clean_attributes(attributes), verified, now)
    added = trace.consent(Event.ADDED, now)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None:
        await subscribers.join(tables, newcomer, added)
        return newcomer
    known, etag = found
    if not known.gone:
        raise AlreadyThere(
            _("{address} is on {name} already.", address=address.typed, name=list_name)
        )
    if not bring_back:
        raise AlreadyThere(
            _(
                "{address} is gone from {name} ({gone}): add them again only if they asked for "
                "it, with --bring-back.",
                address=address.typed,
                name=list_name,
                gone=INACTIVE_TEXTS[known.gone],
            )
        )
    return (await subscribers.join_again(tables, known, newcomer, etag, added))[0]


async def edit(
    tables: Tables,
    list_name: str,
    key: str,
    *,
    verified: bool,
    attributes: Mapping[str, str],
    etag: str,
    now: datetime,
    spelling: str | None = None,
    trace: Trace = COMMAND_LINE,
) -> Subscriber:
    """An administrator changes what is known of somebody who is there.

    `etag` is of the row they saw: Conflict if it is not like that any more. Another spelling of the
    same address stays here; another address, or list, is for move.py.
    """
    found = await subscribers.find(tables, list_name, key)
    if found is None or found[0].gone:
        raise NotFound(_("They are not on {name} any more.", name=list_name))
    known = found[0]
    kept, typed = clean_attributes(attributes), spelling or known.address
    edited = msgspec.structs.replace(known, attributes=kept, address=typed)
    if verified == known.verified:
        await subscribers.replace(tables, known, edited, etag)
        return edited
    edited = msgspec.structs.replace(edited, verified=verified, **_decided(now))
    event = Event.CONFIRMED if verified else Event.UNCONFIRMED
    await subscribers.replace(tables, known, edited, etag, trace.consent(event, now))
    return edited


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
    tables: Tables,
    secret: str,
    list_name: str,
    guid: str,
    token: str,
    now: datetime,
    *,
    trace: Trace = COMMAND_LINE,
) -> ConfirmationResult:
    """Verified from here on. The token shows that the link came in our mail."""
    if not is_signed(token, secret, "confirm", list_name, guid):
        return ConfirmationResult.UNKNOWN
    for _try in range(_TRIES_MAX):
        found = await subscribers.find_by_guid(tables, list_name, guid)
        if found is None:
            return ConfirmationResult.UNKNOWN
        subscriber, etag = found
        if subscriber.verified:
            return ConfirmationResult.ALREADY
        with contextlib.suppress(Conflict):
            verified = msgspec.structs.replace(subscriber, verified=True, **_decided(now))
            confirmed = trace.consent(Event.CONFIRMED, now)
            await subscribers.replace(tables, subscriber, verified, etag, confirmed)
            return ConfirmationResult.NOW
    raise Conflict("the subscriber changes too fast")


def confirm_token(secret: str, list_name: str, guid: str) -> str:
    return sign(secret, "confirm", list_name, guid)


async def leave(
    tables: Tables,
    list_name: str,
    guid: str,
    now: datetime,
    why: InactiveReason = InactiveReason.LEFT,
    *,
    trace: Trace = COMMAND_LINE,
) -> UnsubscribeResult:
    """From here on nobody mails them, even if they were queued before.

    The GUID may be of an earlier membership: whoever got that link and is on the list again leaves
    it. Dying half-way, a second try finds who is still there.
    """
    consent = trace.consent(Event.LEFT if why is InactiveReason.LEFT else Event.REMOVED, now)
    for _try in range(_TRIES_MAX):
        linked = await subscribers.find_linked(tables, list_name, guid)
        if linked.there is None:
            return await _is_gone(tables, linked, now)
        with contextlib.suppress(Conflict):
            await subscribers.leave(tables, *linked.there, why=why, consent=consent)
            return UnsubscribeResult.NOW
    raise Conflict("the subscriber changes too fast")


async def _is_gone(
    tables: Tables, linked: subscribers.LinkedSubscriber, now: datetime
) -> UnsubscribeResult:
    """Finish what a first try may have left undone, if that was lately."""
    if linked.gone and abs(now - linked.gone.since) < FINISHED_WITHIN:
        await subscribers.repeat_departure(tables, linked.gone, linked.gone.since)
    return UnsubscribeResult.ALREADY if linked.is_known else UnsubscribeResult.UNKNOWN


async def remove(
    tables: Tables,
    list_name: str,
    address: Address,
    now: datetime,
    *,
    etag: str | None = None,
    trace: Trace = COMMAND_LINE,
) -> None:
    """By an administrator. With the etag of the row they saw: Conflict if it has changed."""
    await lists.read(tables, list_name)
    consent = trace.consent(Event.REMOVED, now)
    for _try in range(_TRIES_MAX):
        found = await subscribers.find(tables, list_name, address.storage_key)
        if found is None or found[0].gone:
            raise NotFound(_("{address} is not on {name}.", address=address.typed, name=list_name))
        subscriber, known = found
        try:
            await subscribers.leave(
                tables, subscriber, etag or known, why=InactiveReason.REMOVED, consent=consent
            )
            return
        except Conflict:
            if etag is not None:
                raise
    raise Conflict("the subscriber changes too fast")


async def _find_or_join(
    tables: Tables, newcomer: Subscriber, trace: Trace
) -> tuple[Subscriber, str]:
    """Who has this address, and their row's etag; the newcomer, if nobody was there."""
    found = await subscribers.find(tables, newcomer.list_name, newcomer.key)
    if found and not found[0].gone:
        return found
    asked = trace.consent(Event.ASKED, newcomer.since)
    if found is None:
        return newcomer, await subscribers.join(tables, newcomer, asked)
    known, etag = found
    newcomer = msgspec.structs.replace(newcomer, gone_before=known.gone)
    return await subscribers.join_again(tables, known, newcomer, etag, asked)


def _decided(now: datetime) -> dict[str, Any]:
    """What changes with `verified`: nobody waits for a confirmation any more."""
    return {"since": now, "expires": False, "gone_before": None, "confirmation": None}


def _asked_lately(subscriber: Subscriber, now: datetime) -> bool:
    """An email is on its way, or will be tried again: one more would only be one too many."""
    attempts = subscriber.confirmation
    if attempts and attempts.has_ended:
        return False
    if attempts and attempts.retry_at and attempts.last_at <= now:
        return now < attempts.retry_at + ASK_AGAIN_AFTER
    return subscriber.asked_at is not None and now < subscriber.asked_at + ASK_AGAIN_AFTER
