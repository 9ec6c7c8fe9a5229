"""Feedback as rows.

    feedback / in:<shard> / <hash of the event id>     an event that has not been processed yet
    feedback / m-<ref> / summary                       the feedback for a message, added up
    feedback / m-<ref> / batch:<batch>                 who in a batch has been counted, by kind
    feedback / m-<ref> / to:<batch>:<position>:<kind>  a bounce or complaint, with the evidence
    feedback / soft / <address key>                    temporary bounces of an address

An event is stored before its reporter gets an answer, and deleted when it has been fully processed.
A recipient who has been counted has a bit in the row of the batch, written together with the
summary, so an event that arrives twice, or is processed twice, counts once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from postroom.domain.delivery_token import DeliveryId
from postroom.domain.feedback import (
    BounceClass,
    BounceReason,
    Classification,
    FeedbackEvent,
    FeedbackKind,
)
from postroom.domain.message import Message
from postroom.records.names import FEEDBACK_QUEUE
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import (
    all_rows,
    find_row,
    first_rows,
    from_properties,
    readable,
    stored,
    to_properties,
)
from postroom.records.stored import Stored
from postroom.storage.port import (
    BATCH_CHANGES_MAX,
    Change,
    Conflict,
    Delete,
    Insert,
    KeysWithin,
    Replace,
    Row,
    Storage,
    Tables,
    Upsert,
)

TABLE = "feedback"
SHARDS = "0123"  # few, because the sweep looks into each
DOMAINS_MAX = 150  # that a summary names; the rest are counted together
OTHER_DOMAINS = "…"
RECORDED_TOGETHER = 45  # events: their rows, those of their batches and the summary are one write
_PENDING = "in:"
_SOFT = "soft"
_SUMMARY = "summary"
_BATCH, _TO = "batch:", "to:"
_END = "~"
_BOUNCE_KEY = re.compile(rf"{_TO}[0-9]{{7,9}}:[0-9]{{2}}:[a-z]{{1,20}}")
# By which a summary counts recipients. Who accepted what is in the books.
COUNTED_KINDS = tuple(kind for kind in FeedbackKind if kind is not FeedbackKind.ACCEPTED)
_COUNTS_BY_DOMAIN = frozenset(
    {FeedbackKind.DELIVERED, FeedbackKind.BOUNCED, FeedbackKind.COMPLAINED}
)


# --- Events that wait -------------------------------------------------------------------------


def shard_of(event: FeedbackEvent) -> str:
    """Events of one batch are in one shard, so that they are processed together."""
    name = event.delivery[:16] or event.id
    return SHARDS[zlib.crc32(name.encode()) % len(SHARDS)]


async def take_in(storage: Storage, events: Sequence[FeedbackEvent]) -> None:
    """Store each event, then put items to have them processed. Harmless if repeated."""
    shards: dict[str, dict[str, Change]] = {}
    for event in events:
        name = hashlib.sha256(f"{event.source}:{event.id}".encode()).hexdigest()[:32]
        shards.setdefault(shard_of(event), {})[name] = Upsert(name, to_properties(event))
    for shard, rows in shards.items():
        changes = list(rows.values())
        for start in range(0, len(changes), BATCH_CHANGES_MAX):
            some = changes[start : start + BATCH_CHANGES_MAX]
            await storage.tables.batch(TABLE, _PENDING + shard, some)
    if shards:
        await storage.queues.put(FEEDBACK_QUEUE, *shards)


async def pending(tables: Tables, shard: str, *, limit: int) -> tuple[list[Row], bool]:
    """Rows of events that wait, and whether there are more."""
    return await first_rows(tables, TABLE, KeysWithin(_PENDING + shard), limit=limit)


def event_of(row: Row) -> FeedbackEvent:
    return from_properties(row.properties, FeedbackEvent)


async def forget_pending(tables: Tables, shard: str, rows: Sequence[Row]) -> None:
    """Delete processed events; somebody else may have deleted some."""
    for start in range(0, len(rows), BATCH_CHANGES_MAX):
        some = rows[start : start + BATCH_CHANGES_MAX]
        try:
            await tables.batch(TABLE, _PENDING + shard, [Delete(row.key) for row in some])
        except Conflict:
            for row in some:
                await tables.delete(TABLE, _PENDING + shard, row.key)


async def shards_with_events(tables: Tables) -> list[str]:
    """For the sweep: a process may have died between the row of an event and its item."""
    found: list[str] = []
    for shard in SHARDS:
        rows, _more = await pending(tables, shard, limit=1)
        found += [shard] if rows else []
    return found


# --- The feedback for a message ----------------------------------------------------------------


class FeedbackSummary(msgspec.Struct, frozen=True):
    """The feedback for a message: recipients by kind, by class, and by domain."""

    kinds: dict[str, int] = {}
    classes: dict[str, int] = {}  # of bounces
    domains: dict[str, dict[str, int]] = {}  # by domain: delivered, complained, or the class
    reasons: dict[str, int] = {}  # "class:reason"
    examples: dict[str, str] = {}  # the server's words, by "class:reason"

    def count(self, kind: FeedbackKind) -> int:
        return self.kinds.get(kind, 0)

    @property
    def by_reason(self) -> list[ReasonCount]:
        """Bounces by class and reason, the most frequent first."""
        found = []
        for why, count in self.reasons.items():
            bounce_class, _colon, reason = why.partition(":")
            example = self.examples.get(why, "")
            row = ReasonCount(BounceClass(bounce_class), BounceReason(reason), count, example)
            found.append(row)
        return sorted(found, key=lambda row: (-row.count, row.bounce_class, row.reason))

    @property
    def by_domain(self) -> list[DomainCount]:
        """Recipients by domain: the most bounces and complaints first, then the most recipients."""
        found = [
            DomainCount(
                domain,
                delivered=counts.get(FeedbackKind.DELIVERED, 0),
                dead=counts.get(BounceClass.DEAD, 0),
                temporary=counts.get(BounceClass.TEMPORARY, 0),
                ours=counts.get(BounceClass.OURS, 0),
                other=counts.get(FeedbackKind.BOUNCED, 0)
                + counts.get(BounceClass.COMPLAINT, 0)
                + counts.get(BounceClass.IGNORE, 0),
                complained=counts.get(FeedbackKind.COMPLAINED, 0),
            )
            for domain, counts in self.domains.items()
        ]
        return sorted(found, key=lambda row: (-row.troubles, -row.total, row.domain))


class ReasonCount(msgspec.Struct, frozen=True):
    """How many recipients bounced for one reason, with a server's response as an example."""

    bounce_class: BounceClass
    reason: BounceReason
    count: int
    example: str = ""


class DomainCount(msgspec.Struct, frozen=True):
    """The feedback from one domain. A recipient may be delivered first and complain later."""

    domain: str  # OTHER_DOMAINS for all that the summary does not name
    delivered: int = 0
    dead: int = 0
    temporary: int = 0
    ours: int = 0
    other: int = 0  # bounces that nobody classified
    complained: int = 0

    @property
    def bounced(self) -> int:
        return self.dead + self.temporary + self.ours + self.other

    @property
    def troubles(self) -> int:
        return self.bounced + self.complained

    @property
    def total(self) -> int:
        return self.delivered + self.troubles


def feedback_data(message: Message, summary: FeedbackSummary) -> dict[str, Any]:
    """The feedback for a message as JSON, the same on the command line and in the API."""
    cause = message.self_pause
    return {
        "ref": message.ref,
        "sent": message.books.sent,
        "failed": message.books.failed,
        **{kind.value: summary.count(kind) for kind in COUNTED_KINDS},
        "classes": {each.value: summary.classes.get(each, 0) for each in BounceClass},
        "reasons": [
            {
                "class": row.bounce_class,
                "reason": row.reason,
                "count": row.count,
                "example": row.example,
            }
            for row in summary.by_reason
        ],
        "domains": [msgspec.structs.asdict(row) for row in summary.by_domain],
        "paused_because": msgspec.structs.asdict(cause) if cause else None,
    }


class CountedRecipients(msgspec.Struct, frozen=True):
    """Who in a batch has been counted: for each kind a bit per position, in hexadecimal."""

    bits: dict[str, str] = {}

    def has(self, kind: FeedbackKind, position: int) -> bool:
        return bool(int(self.bits.get(kind, "0"), 16) >> position & 1)

    def with_bit(self, kind: FeedbackKind, position: int) -> CountedRecipients:
        bits = int(self.bits.get(kind, "0"), 16) | 1 << position
        return CountedRecipients(self.bits | {kind.value: f"{bits:x}"})


class BounceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A bounce or complaint of one recipient of a message."""

    batch: int
    position: int
    kind: FeedbackKind
    at: datetime
    source: str
    key: str  # address key
    address: str
    bounce_class: BounceClass | None = None
    reason: str = ""
    status: str = ""
    words: str = ""


class LocatedEvent(msgspec.Struct, frozen=True):
    """An event whose delivery is known."""

    event: FeedbackEvent
    delivery: DeliveryId
    key: str  # address key
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2].lower()

    @property
    def classification(self) -> Classification | None:
        return self.event.classification


async def find_summary(tables: Tables, ref: str) -> FeedbackSummary:
    found = await find_row(tables, TABLE, _partition(ref), _SUMMARY, FeedbackSummary)
    return found.value if found else FeedbackSummary()


async def find_counted(tables: Tables, ref: str, batch: int) -> CountedRecipients:
    found = await find_row(tables, TABLE, _partition(ref), _batch_key(batch), CountedRecipients)
    return found.value if found else CountedRecipients()


async def record(tables: Tables, ref: str, events: Sequence[LocatedEvent]) -> FeedbackSummary:
    """Count each recipient once for each kind, in one write; return the new summary.

    At most RECORDED_TOGETHER events of one message.
    """
    where = _partition(ref)

    async def write() -> FeedbackSummary:
        known = await find_row(tables, TABLE, where, _SUMMARY, FeedbackSummary)
        summary = known.value if known else FeedbackSummary()
        counted: dict[int, Stored[CountedRecipients] | None] = {}
        after: dict[int, CountedRecipients] = {}
        details: list[Change] = []
        for located in events:
            batch, kind = located.delivery.batch, located.event.kind
            if batch not in after:
                counted[batch] = await find_row(
                    tables, TABLE, where, _batch_key(batch), CountedRecipients
                )
                row = counted[batch]
                after[batch] = row.value if row else CountedRecipients()
            if after[batch].has(kind, located.delivery.position):
                continue
            after[batch] = after[batch].with_bit(kind, located.delivery.position)
            summary = _added(summary, located)
            if kind in (FeedbackKind.BOUNCED, FeedbackKind.COMPLAINED):
                details.append(_detail(located))
        if known and summary == known.value:
            return summary
        changes = [_put(_batch_key(batch), after[batch], counted[batch]) for batch in after]
        changes.append(_put(_SUMMARY, summary, known))
        await tables.batch(TABLE, where, [*changes, *details])
        return summary

    return await retry_on_conflict(write)


async def bounces_of(
    tables: Tables, ref: str, *, after: str = "", limit: int = 100
) -> tuple[list[BounceRecord], str | None]:
    """Bounces and complaints in the order of the audience, and where the next page begins."""
    start = f"{after} " if after else _TO
    rows, more = await first_rows(
        tables, TABLE, KeysWithin(_partition(ref), start, _TO + _END), limit=limit
    )
    found = [from_properties(row.properties, BounceRecord) for row in rows]
    return found, rows[-1].key if rows and more else None


async def bounces_of_delivery(
    tables: Tables, ref: str, batch: int, position: int
) -> list[BounceRecord]:
    """The feedback for one recipient."""
    key = f"{_TO}{batch:07d}:{position:02d}:"
    rows, _more = await first_rows(
        tables, TABLE, KeysWithin(_partition(ref), key, key + _END), limit=len(FeedbackKind)
    )
    return [each.value for each in readable(rows, BounceRecord)]


def is_bounce_cursor(text: str) -> bool:
    """Whether `bounces_of` may have returned it as the beginning of a next page."""
    return _BOUNCE_KEY.fullmatch(text) is not None


async def all_bounces_of(tables: Tables, ref: str) -> AsyncIterator[BounceRecord]:
    """Every bounce and complaint, in the order of the audience; a page at a time."""
    keys = KeysWithin(_partition(ref), _TO, _TO + _END)
    async for row in all_rows(tables, TABLE, keys):
        yield from_properties(row.properties, BounceRecord)


async def delete_feedback(tables: Tables, ref: str) -> None:
    """Delete all feedback for a message that has expired."""
    while True:
        rows, _more = await first_rows(
            tables, TABLE, KeysWithin(_partition(ref)), limit=BATCH_CHANGES_MAX
        )
        if not rows:
            return
        with contextlib.suppress(Conflict):
            await tables.batch(TABLE, _partition(ref), [Delete(row.key) for row in rows])


def _partition(ref: str) -> str:
    return f"m-{ref}"


def _batch_key(batch: int) -> str:
    return f"{_BATCH}{batch:07d}"


def _put(
    key: str,
    after: msgspec.Struct,
    known: Stored[FeedbackSummary] | Stored[CountedRecipients] | None,
) -> Change:
    properties = to_properties(after)
    return Replace(key, properties, known.etag) if known else Insert(key, properties)


def _detail(located: LocatedEvent) -> Change:
    event, delivery = located.event, located.delivery
    found = located.classification
    row = BounceRecord(
        batch=delivery.batch,
        position=delivery.position,
        kind=event.kind,
        at=event.at,
        source=event.source,
        key=located.key,
        address=located.address,
        bounce_class=found.bounce_class if found else None,
        reason=found.reason if found else "",
        status=found.status if found else "",
        words=found.words if found else "",
    )
    key = f"{_TO}{delivery.batch:07d}:{delivery.position:02d}:{event.kind}"
    return Upsert(key, to_properties(row))


def _added(summary: FeedbackSummary, located: LocatedEvent) -> FeedbackSummary:
    kind, found = located.event.kind, located.classification
    kinds = _plus_one(summary.kinds, kind)
    classes, reasons, examples = summary.classes, summary.reasons, summary.examples
    heading = kind.value
    if kind is FeedbackKind.BOUNCED and found:
        heading = found.bounce_class.value
        classes = _plus_one(classes, heading)
        why = f"{heading}:{found.reason}"
        reasons = _plus_one(reasons, why)
        examples = examples if why in examples else examples | {why: found.words[:200]}
    domains = summary.domains
    if kind in _COUNTS_BY_DOMAIN:
        domain = located.domain
        if domain not in domains and len(domains) >= DOMAINS_MAX:
            domain = OTHER_DOMAINS
        domains = domains | {domain: _plus_one(domains.get(domain, {}), heading)}
    return FeedbackSummary(kinds, classes, domains, reasons, examples)


def _plus_one(counts: dict[str, int], name: str) -> dict[str, int]:
    return counts | {name: counts.get(name, 0) + 1}


# --- Temporary bounces ---------------------------------------------------------------------------


class SoftBounces(msgspec.Struct, frozen=True):
    """The temporary bounces of an address since its last delivery: when, by delivery token."""

    strikes: dict[str, datetime] = {}


async def find_soft_bounces(tables: Tables, key: str) -> Stored[SoftBounces] | None:
    return await find_row(tables, TABLE, _SOFT, key, SoftBounces)


async def write_soft_bounces(
    tables: Tables, key: str, bounces: SoftBounces, known: Stored[SoftBounces] | None
) -> None:
    """Conflict if they have changed since."""
    properties = to_properties(bounces)
    if known:
        await tables.replace(TABLE, _SOFT, key, properties, known.etag)
    else:
        await tables.insert(TABLE, _SOFT, key, properties)


async def clear_soft_bounces(tables: Tables, key: str) -> None:
    await tables.delete(TABLE, _SOFT, key)


async def soft_bounces_between(
    tables: Tables, first: str, last: str
) -> AsyncIterator[tuple[str, Stored[SoftBounces]]]:
    """Addresses with temporary bounces in a short range of keys, such as that of a batch."""
    async for row in all_rows(tables, TABLE, KeysWithin(_SOFT, first, last + _END)):
        yield row.key, stored(row, SoftBounces)
