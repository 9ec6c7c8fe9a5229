"""The outcome of a message for each of its recipients.

The ledger of a batch has the state; the archive or the delivery row has the person and the reason.
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

OUTCOMES = {state.name.lower(): state for state in State}
GROUPS_A_PAGE = 10  # ledgers of about 100,000 people
BATCHES_A_PAGE = 20  # whose rows are read: about 2,000 people


class RecipientOutcome(msgspec.Struct, frozen=True):
    address: str
    outcome: str
    at: datetime | None  # when it ended or was held, or when it will be tried again
    words: str
    place: str = ""  # batch and position, by which its story is found


class AudiencePosition(msgspec.Struct, frozen=True, order=True):
    batch: int = 0
    position: int = 0


async def page(
    tables: Tables, message: Message, only: State | None, *, limit: int, start: AudiencePosition
) -> tuple[list[RecipientOutcome], AudiencePosition | None]:
    """Return outcomes from a position on, and where the next page starts, if there is one.

    The rows read for a page are limited, so a page may be short, even empty, and not be the last.
    """
    found: list[RecipientOutcome] = []
    batches_read = 0
    first = start.batch // GROUP_BATCHES
    for group in range(first, first + GROUPS_A_PAGE):
        for ledger, _ in await batches.load_group(tables, message.ref, group):
            is_counted = start.batch <= ledger.batch < message.batches  # by the fan-out
            if not is_counted or (only is not None and only not in ledger.states):
                continue
            placed = [each for each in await _of_batch(tables, ledger, only) if each[0] >= start]
            room = limit - len(found)
            found += [outcome for _, outcome in placed[:room]]
            if len(placed) > room:
                return found, placed[room][0]
            batches_read += 1
            if batches_read == BATCHES_A_PAGE:
                return found, _within(message, ledger.batch + 1)
    return found, _within(message, (first + GROUPS_A_PAGE) * GROUP_BATCHES)


def _within(message: Message, batch: int) -> AudiencePosition | None:
    return AudiencePosition(batch) if batch < message.batches else None


async def all_outcomes(
    tables: Tables, message: Message, only: State | None = None
) -> AsyncIterator[RecipientOutcome]:
    """Yield the whole audience in order, or those in one state; one batch in memory at a time."""
    for group in batches.groups(message.batches):
        for ledger, _ in await batches.load_group(tables, message.ref, group):
            for _, outcome in await _of_batch(tables, ledger, only):
                yield outcome


async def _of_batch(
    tables: Tables, ledger: Ledger, only: State | None
) -> list[tuple[AudiencePosition, RecipientOutcome]]:
    """Read delivery rows first, because they are deleted only after they are archived."""
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
            msgspec.structs.replace(
                _outcome(ledger, at, State(code), waiting.get(at), ends.get(at)),
                place=f"{ledger.batch}.{at}",
            ),
        )
        for at, code in enumerate(ledger.states)
        if only is None or code == only
    ]


def _outcome(
    ledger: Ledger, at: int, state: State, waiting: Delivery | None, ended: ArchivedDelivery | None
) -> RecipientOutcome:
    """Ignore an archived row with another state: it is of an earlier round, before a retry."""
    delivery = ended.delivery if ended else waiting
    address = delivery.address if delivery else ""
    word = state.name.lower()
    if ended and ended.ended.state is state:
        return RecipientOutcome(address, word, ended.ended.ended_at, ended.ended.words)
    if wait := ledger.deferred.get(at):
        retry_at = datetime.fromtimestamp(wait.retry_at, UTC)
        return RecipientOutcome(address, word, retry_at, wait.words)
    return RecipientOutcome(address, word, None, "")
