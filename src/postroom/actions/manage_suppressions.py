"""Action, manage suppressions: add, explain, remove, export and erase addresses that get no email.

Before: somebody wants an address to get no more email, or asks why it gets none.
After: fan-out leaves the address out, and senders skip it within seconds, even if it was queued.
Subscribers stay on their lists, so that removing the entry is enough to mail them again.
Dies half-way:
    add, remove                one write each: done or not done
    erase, after the hash      they get no more mail; erasing again deletes the other rows
Commit point: the entry, in one write with its mark in the log that senders follow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from postroom.act import Act
from postroom.domain.address import Address
from postroom.domain.audit import AuditAction, AuditKind, values_text
from postroom.domain.delivery_token import DeliveryId, SingleMailId, parse_token
from postroom.domain.errors import NotFound
from postroom.domain.message import Message
from postroom.domain.suppression import (
    Suppression,
    SuppressionReason,
    SuppressionScope,
    check_lists,
    check_note,
    mark_of,
    source_of,
)
from postroom.domain.texts import _
from postroom.records import (
    archive,
    erasure,
    feedback,
    lists,
    messages,
    subscribers,
    suppressions,
)
from postroom.records.stored import Stored
from postroom.storage.port import Tables

EXPORT_COLUMNS = (
    "email",
    "scope",
    "reason",
    "since",
    "lists",
    "source",
    "status",
    "words",
    "note",
)


class AddedSuppression(msgspec.Struct, frozen=True):
    """What is stored now, and whether adding changed anything."""

    entry: Suppression
    is_changed: bool


async def add(
    act: Act,
    secret: str,
    address: Address,
    scope: SuppressionScope,
    *,
    list_names: Sequence[str] = (),
    note: str = "",
) -> AddedSuppression:
    """Add an entry, or widen the existing one; a narrower one changes nothing."""
    names = check_lists(scope, list_names)
    for name in list_names:
        await lists.read(act.tables, name)
    entry = Suppression(
        key=address.storage_key,
        address=address.typed,
        scope=scope,
        reason=SuppressionReason.ADDED,
        since=act.now,
        lists=names,
        source=source_of(act.trace.source),
        note=check_note(note),
    )
    key = address.storage_key
    before = await suppressions.find(act.tables, secret, key)
    if before and before.value.reason is SuppressionReason.ERASED:
        return AddedSuppression(before.value, is_changed=False)  # wide enough, without the address
    wanted = values_text({"scope": scope.value, "lists": names, "note": entry.note})
    create = AuditAction.CREATE
    async with act.audited(AuditKind.SUPPRESSION, address.typed, create, after=wanted):
        after = await suppressions.put(act.tables, secret, key, entry, act.clock.now())
    return AddedSuppression(after, before is None or before.value != after)


async def read(tables: Tables, secret: str, address: Address) -> Stored[Suppression]:
    found = await suppressions.find(tables, secret, address.storage_key)
    if found is None:
        raise NotSuppressed(address)
    return found


async def remove(
    act: Act, secret: str, address: Address, *, etag: str | None = None
) -> Suppression:
    """Remove an entry: from the next message on the address is mailed again."""
    async with act.audited(AuditKind.SUPPRESSION, address.typed, AuditAction.DELETE):
        removed = await suppressions.remove(act.tables, secret, address.storage_key, etag=etag)
        if removed is None:
            raise NotSuppressed(address)
    return removed


async def erase(act: Act, secret: str, address: Address) -> list[str]:
    """Keep only a hash of the address, and delete it from all lists; return their names.

    Senders skip the person because of the hash, so no list has to note a departure.
    """
    async with act.audited(AuditKind.SUPPRESSION, address.typed, AuditAction.ERASE):
        return await _erase(act, secret, address)


async def _erase(act: Act, secret: str, address: Address) -> list[str]:
    key = address.storage_key
    entry = Suppression(
        key="",
        scope=SuppressionScope.ALL,
        reason=SuppressionReason.ERASED,
        since=act.now,
        source=source_of(act.trace.source),
        mark=mark_of(key),
    )
    await suppressions.put(act.tables, secret, key, entry, act.clock.now())
    names = [
        name
        async for name in lists.every_name(act.tables)
        if await erasure.erase_from_list(act.tables, name, key, act.now)
    ]
    await feedback.clear_soft_bounces(act.tables, key)
    await suppressions.forget_address(act.tables, key)
    return names


class NotSuppressed(NotFound):
    def __init__(self, address: Address) -> None:
        super().__init__(_("{address} is not suppressed.", address=address.typed))


class SuppressionCause(msgspec.Struct, frozen=True):
    """The email that led to an entry, as far as its records still exist."""

    ref: str = ""  # of the message
    message: Message | None = None  # None if it is deleted
    sent_at: datetime | None = None
    is_confirmation: bool = False
    list_name: str = ""  # of a confirmation email, if the list still knows it


async def find_cause(tables: Tables, secret: str, entry: Suppression) -> SuppressionCause | None:
    """Find the email by the delivery token; None if no email led to the entry."""
    match parse_token(secret.encode(), entry.delivery):
        case DeliveryId(ref=ref) as delivery:
            message = await messages.find(tables, ref)
            sent_at = await _find_end(tables, delivery) if message else None
            return SuppressionCause(ref, message, sent_at)
        case SingleMailId(guid=guid):
            name = await subscribers.find_list_of(tables, guid)
            return SuppressionCause(is_confirmation=True, list_name=name or "")
    return None


async def _find_end(tables: Tables, delivery: DeliveryId) -> datetime | None:
    """When the email was handed over; None if that is not recorded yet."""
    async for old in archive.load(tables, delivery.ref, delivery.batch):
        if old.delivery.position == delivery.position:
            return old.ended.ended_at
    return None


async def export_rows(tables: Tables) -> AsyncIterator[list[object]]:
    """The cells of EXPORT_COLUMNS for every entry. Erased people have no address to export."""
    async for _name, (entry, _etag) in suppressions.everyone(tables):
        if entry.key:
            yield [
                entry.address,
                entry.scope.value,
                entry.reason.value,
                entry.since,
                entry.lists,
                entry.source,
                entry.status,
                entry.words,
                entry.note,
            ]


def suppression_data(entry: Suppression, address: Address | None = None) -> dict[str, object]:
    """An entry as commands and the web service show it; an erased one has the asked address."""
    return {
        "address": entry.address or (address.typed if address else ""),
        "scope": entry.scope.value,
        "lists": entry.lists.split(",") if entry.lists else [],
        "reason": entry.reason.value,
        "since": entry.since,
        "source": entry.source,
        "status": entry.status,
        "words": entry.words,
        "note": entry.note,
    }


def cause_data(cause: SuppressionCause | None) -> dict[str, object]:
    """The email that led to an entry, as commands and the web service show it."""
    message = cause.message if cause else None
    return {
        "message": cause.ref if cause else "",
        "subject": message.subject if message else "",
        "sent_at": cause.sent_at if cause else None,
        "confirmation": cause is not None and cause.is_confirmation,
    }
