"""Stage 0 of 7, subscribe: people join, confirm and leave.

Before: a client's site, an administrator or an import names an address; or a link was followed.
After: only verified subscribers are in an audience; who left is skipped by send.py even if queued.
Dies half-way:
    sign-up, before the item is put     the row says that nobody was asked: asking again puts it
    sign-up, before the time is noted   asking again may put a second item: one mail more
    confirm, leave                      one write each: done or not done
Commit point: the subscriber's row. No mail is sent inside a request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from postroom.domain.address import Address
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import Gone, Subscriber, clean_attributes
from postroom.domain.token import is_signed, new_guid, sign
from postroom.domain.work_item import ConfirmItem
from postroom.records import lists, subscribers
from postroom.storage.port import SUBSCRIBE_QUEUE, Conflict, Storage, Tables

ASK_AGAIN_AFTER = timedelta(minutes=10)  # so that a form cannot be used to bomb somebody
_TRIES_MAX = 5


class Confirmed(Enum):
    NOW = "now"
    ALREADY = "already"
    UNKNOWN = "unknown"  # no such link, or the person has left


class Left(Enum):
    NOW = "now"
    ALREADY = "already"  # or never there: the page says the same


async def sign_up(
    storage: Storage, list_name: str, address: Address, attributes: Mapping[str, str], now: datetime
) -> None:
    """Store unverified and queue a confirmation. The caller learns nothing about who is there."""
    tables = storage.tables
    await lists.read(tables, list_name)
    kept = clean_attributes(attributes)
    for _ in range(_TRIES_MAX):
        with contextlib.suppress(Conflict, AlreadyThere):  # somebody was faster: look again
            subscriber, etag = await _find_or_join(tables, list_name, address, kept, now)
            if subscriber.verified or _asked_lately(subscriber, now):
                return
            item = ConfirmItem(subscriber.guid, list_name)
            await storage.queues.put(SUBSCRIBE_QUEUE, item.body())
            asked = msgspec.structs.replace(subscriber, asked_at=now)
            await subscribers.replace(tables, asked, etag)
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
) -> Subscriber:
    """An administrator adds somebody. Who left stays away unless `bring_back` names them."""
    await lists.read(tables, list_name)
    newcomer = new_subscriber(list_name, address, clean_attributes(attributes), verified, now)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None:
        await subscribers.join(tables, newcomer)
        return newcomer
    known, etag = found
    if not known.gone:
        raise AlreadyThere(f"{address.typed} is on {list_name} already.")
    if not bring_back:
        raise AlreadyThere(
            f"{address.typed} is gone from {list_name} ({known.gone}): add them again only if "
            "they asked for it, with --bring-back."
        )
    await subscribers.join_again(tables, newcomer, etag)
    return newcomer


def new_subscriber(
    list_name: str, address: Address, attributes: dict[str, str], verified: bool, now: datetime
) -> Subscriber:
    return Subscriber(
        list_name=list_name,
        address=address.typed,
        key=address.storage_key,
        guid=new_guid(),
        verified=verified,
        since=now,
        attributes=attributes,
    )


async def confirm(
    tables: Tables, secret: str, list_name: str, guid: str, token: str, now: datetime
) -> Confirmed:
    """Verified from here on. The token shows that the link came in our mail."""
    if not is_signed(token, secret, "confirm", list_name, guid):
        return Confirmed.UNKNOWN
    for _ in range(_TRIES_MAX):
        found = await subscribers.find_by_guid(tables, list_name, guid)
        if found is None:
            return Confirmed.UNKNOWN
        subscriber, etag = found
        if subscriber.verified:
            return Confirmed.ALREADY
        with contextlib.suppress(Conflict):
            verified = msgspec.structs.replace(subscriber, verified=True, since=now)
            await subscribers.replace(tables, verified, etag)
            return Confirmed.NOW
    raise Conflict("the subscriber changes too fast")


def confirm_token(secret: str, list_name: str, guid: str) -> str:
    return sign(secret, "confirm", list_name, guid)


async def leave(
    tables: Tables, list_name: str, guid: str, now: datetime, why: Gone = Gone.LEFT
) -> Left:
    """From here on nobody mails them, even if they were queued before."""
    for _ in range(_TRIES_MAX):
        found = await subscribers.find_by_guid(tables, list_name, guid)
        if found is None:
            return Left.ALREADY
        with contextlib.suppress(Conflict):
            await subscribers.leave(tables, *found, why=why, now=now)
            return Left.NOW
    raise Conflict("the subscriber changes too fast")


async def remove(tables: Tables, list_name: str, address: Address, now: datetime) -> None:
    """By an administrator."""
    await lists.read(tables, list_name)
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found is None or found[0].gone:
        raise NotFound(f"{address.typed} is not on {list_name}.")
    await leave(tables, list_name, found[0].guid, now, Gone.REMOVED)


async def _find_or_join(
    tables: Tables, list_name: str, address: Address, attributes: dict[str, str], now: datetime
) -> tuple[Subscriber, str]:
    found = await subscribers.find(tables, list_name, address.storage_key)
    if found and not found[0].gone:
        return found
    newcomer = new_subscriber(list_name, address, attributes, False, now)
    if found is None:
        await subscribers.join(tables, newcomer)
    else:
        await subscribers.join_again(tables, newcomer, found[1])
    joined = await subscribers.find(tables, list_name, address.storage_key)
    if joined is None:
        raise Conflict("gone again")
    return joined


def _asked_lately(subscriber: Subscriber, now: datetime) -> bool:
    return subscriber.asked_at is not None and now < subscriber.asked_at + ASK_AGAIN_AFTER
