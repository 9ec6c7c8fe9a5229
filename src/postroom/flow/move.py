"""Beside the path, move: somebody's address changes, or they go over to another list.

Before: an administrator or a program names who, and where to.
After: the new address is in every audience from now on. The old one is not mailed any more, even if
it is queued, stands there as removed, and no import brings it back.

Within a list the GUID stays, so that links in mails to the old address still work; another list is
another consent, so there it is a new one, and so it is for who moves back. Who moves while fan-out
goes over the list may be passed over by that message, or get it at both addresses: it goes by the
alphabet, and has been at the one or is yet to come to the other. An old address that is still
queued then is skipped, and told as skipped: better than mail to an address that was given up.

Dies half-way:
    within a list     one write: done or not done
    across lists      before the departure they are on both lists: repeating it finishes
Commit point: the rows of the new address; across lists, the departure from the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from postroom.domain.address import Address
from postroom.domain.consent import COMMAND_LINE, Consent, Event, Trace
from postroom.domain.errors import AlreadyThere, NotFound
from postroom.domain.subscriber import INACTIVE_TEXTS, InactiveReason, Subscriber, clean_attributes
from postroom.domain.texts import _
from postroom.domain.token import new_guid
from postroom.records import lists, subscribers
from postroom.storage.port import Conflict, Tables


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody goes, and what is known of them there."""

    list_name: str
    address: Address
    verified: bool
    attributes: Mapping[str, str]
    bring_back: bool = False  # also if that address left that list: only if they asked for it


async def move(
    tables: Tables,
    list_name: str,
    key: str,
    to: Destination,
    *,
    etag: str,
    now: datetime,
    left_at: datetime | None = None,
    trace: Trace = COMMAND_LINE,
) -> Subscriber:
    """Who they are there. `etag` is of the row that was seen: Conflict if it has changed.

    `left_at` is this moment, where `now` is that of an earlier try.
    """
    before = await _as_seen(tables, list_name, key, etag)
    await lists.read(tables, to.list_name)
    replaced = await subscribers.find(tables, to.list_name, to.address.storage_key)
    if to.list_name != list_name:
        return await _change_list(tables, before, to, replaced, etag, now, left_at, trace)
    if replaced:
        _check_free(*replaced, to)
    after = _there(before, to, now)
    change = subscribers.AddressChange(
        before=before,
        after=after,
        replaced=replaced,
        removed=_event(Event.REMOVED, trace, now, new_address=after.address),
        added=_event(Event.ADDED, trace, now, old_address=before.address),
        left_at=left_at or now,
    )
    await subscribers.move(tables, change, etag)
    return after


async def _change_list(
    tables: Tables,
    before: Subscriber,
    to: Destination,
    replaced: tuple[Subscriber, str] | None,
    etag: str,
    now: datetime,
    left_at: datetime | None,
    trace: Trace,
) -> Subscriber:
    """Who is on the new list already stays there as they are: so a repeated move is finished."""
    after = _there(before, to, now)
    added = _event(Event.ADDED, trace, now, old_list=before.list_name)
    if replaced is None:
        await subscribers.join(tables, after, added)
    elif replaced[0].gone:
        _check_free(*replaced, to)
        after, _ = await subscribers.join_again(tables, replaced[0], after, replaced[1], added)
    else:
        after = replaced[0]
    removed = _event(Event.REMOVED, trace, now, new_list=to.list_name)
    await subscribers.leave(
        tables, before, etag, why=InactiveReason.REMOVED, consent=removed, left_at=left_at
    )  # Commit point.
    return after


async def _as_seen(tables: Tables, list_name: str, key: str, etag: str) -> Subscriber:
    found = await subscribers.find(tables, list_name, key)
    if found is None or found[0].gone:
        raise NotFound(_("They are not on {name} any more.", name=list_name))
    if found[1] != etag:
        raise Conflict("the subscriber has changed")
    return found[0]


def _check_free(known: Subscriber, _etag: str, to: Destination) -> None:
    if not known.gone:
        raise AlreadyThere(
            _("{address} is on {name} already.", address=known.address, name=to.list_name)
        )
    if not to.bring_back:
        raise AlreadyThere(
            _(
                "{address} is gone from {name} ({gone}): bring them back only if they asked "
                "for it.",
                address=known.address,
                name=to.list_name,
                gone=INACTIVE_TEXTS[known.gone],
            )
        )


def _there(before: Subscriber, to: Destination, now: datetime) -> Subscriber:
    """As an administrator adds somebody: nobody waits for a confirmation any more."""
    return msgspec.structs.replace(
        before,
        list_name=to.list_name,
        address=to.address.typed,
        key=to.address.storage_key,
        guid=new_guid(),  # the old one's departure must not count, and its links are another's
        verified=to.verified,
        attributes=clean_attributes(to.attributes),
        since=now,
        asked_at=None,
        expires=False,
        gone_before=None,
        confirmation=None,
    )


def _event(event: Event, trace: Trace, now: datetime, **other: str) -> Consent:
    """The record of each address or list names the other."""
    source = msgspec.structs.replace(trace.source, **other)
    return msgspec.structs.replace(trace, source=source).consent(event, now)
