"""The outcome of a message for each of its recipients.

The ledger of a batch has the state; the archive or the delivery row says who and why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec

from postroom.domain.delivery import GROUP_BATCHES, Delivery, Ledger, State
from postroom.domain.message import Message
from postroom.records import archive, batches
from postroom.records.archive import ArchivedDelivery
from postroom.storage.port import Tables

OUTCOMES = {
    "queued": State.QUEUED,
    "sending": State.SENDING,
    "sent": State.SENT,
    "failed": State.FAILED,
    "held": State.HELD,
    "skipped": State.SKIPPED,
}
_WORD = {state: word for word, state in OUTCOMES.items()}
GROUPS_A_PAGE = 10  # ledgers of about 100,000 people
BATCHES_A_PAGE = 20  # whose rows are read: about 2,000 people


class RecipientOutcome(msgspec.Struct, frozen=True):
    address: str
    outcome: str
    at: datetime | None  # when it ended or was held, or when it will be tried again
    words: str


class AudiencePosition(msgspec.Struct, frozen=True, order=True):
    """The position of one recipient in the audience."""

    batch: int = 0
    position: int = 0


async def page(
    tables: Tables, message: Message, only: State | None, *, limit: int, start: AudiencePosition
) -> tuple[list[RecipientOutcome], AudiencePosition | None]:
    """Outcomes from a position on, and where the next page starts, if there is one.

    What is read for a page is bounded, so that it may be short, even empty, and not be the last.
    """
    found: list[RecipientOutcome] = []
    looked = 0
    first = start.batch // GROUP_BATCHES
    for group in range(first, first + GROUPS_A_PAGE):
        for ledger, _ in await batches.load_group(tables, message.ref, group):
            if not _is_wanted(ledger, only, message, start):
                continue
            placed = [each for each in await _of_batch(tables, ledger, only) if each[0] >= start]
            room = limit - len(found)
            found += [fate for _, fate in placed[:room]]
            if len(placed) > room:
                return found, placed[room][0]
            looked += 1
            if looked == BATCHES_A_PAGE:
                return found, _within(message, ledger.batch + 1)
    return found, _within(message, (first + GROUPS_A_PAGE) * GROUP_BATCHES)


def _is_wanted(
    ledger: Ledger, only: State | None, message: Message, start: AudiencePosition
) -> bool:
    """Only batches that the fan-out has counted, as in the books."""
    is_ahead = start.batch <= ledger.batch < message.batches
    return is_ahead and (only is None or only in ledger.states)


def _within(message: Message, batch: int) -> AudiencePosition | None:
    return AudiencePosition(batch) if batch < message.batches else None


async def all_outcomes(
    tables: Tables, message: Message, only: State | None = None
) -> AsyncIterator[RecipientOutcome]:
    """The whole audience in order, or those in one state; one batch in memory at a time."""
    for group in batches.groups(message.batches):
        for ledger, _ in await batches.load_group(tables, message.ref, group):
            for _, fate in await _of_batch(tables, ledger, only):
                yield fate


async def _of_batch(
    tables: Tables, ledger: Ledger, only: State | None
) -> list[tuple[AudiencePosition, RecipientOutcome]]:
    """Delivery rows are read first, because they are deleted only after they are archived."""
    if only is not None and only not in ledger.states:
        return []
    waiting: dict[int, Delivery] = {}
    if not ledger.is_final:
        waiting = await batches.load_deliveries(tables, ledger.ref, ledger.batch)
    ends = {
        ended.delivery.position: ended
        async for ended in archive.load(tables, ledger.ref, ledger.batch)
    }
    return [
        (
            AudiencePosition(ledger.batch, at),
            _fate(ledger, at, State(letter), waiting.get(at), ends.get(at)),
        )
        for at, letter in enumerate(ledger.states)
        if only is None or letter == only
    ]


def _fate(
    ledger: Ledger, at: int, state: State, waiting: Delivery | None, ended: ArchivedDelivery | None
) -> RecipientOutcome:
    """An archived row with another state is of an earlier round: failed, then revived."""
    delivery = ended.delivery if ended else waiting
    address = delivery.address if delivery else ""
    if ended and ended.ended.state is state:
        return RecipientOutcome(address, _WORD[state], ended.ended.ended_at, ended.ended.words)
    wait = ledger.deferred.get(at)
    if wait:
        return RecipientOutcome(
            address, _WORD[state], datetime.fromtimestamp(wait.retry_at, UTC), wait.words
        )
    return RecipientOutcome(address, _WORD[state], None, "")
