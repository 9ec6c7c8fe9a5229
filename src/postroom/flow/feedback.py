"""Stage 5 of 7, feedback: act on what servers and providers report about sent mails.

Before: a webhook, the bounce mailbox or a sender stored each event (records/feedback.py) before it
answered, and put an item.
After: people whose address is dead, or who complained, are suppressed and off the list; the message
shows who was reached, who bounced and why; deliveries in doubt are settled by the provider's
reports.
Steps: claim an item > read the events of its shard > find their deliveries > settle doubts > act on
people > count > delete the events > complete the item.
Dies half-way: the item reappears, and every step is done again. Each of them can be repeated:
    doubts settled             the ledger is no longer in doubt; the books are counted again
    people acted on            an entry is widened, never duplicated; people who unsubscribed stay
                               off; a delivery is one strike, however often it is reported
    counted                    the bit of the recipient is set: the event has no further effect
    events deleted             nothing is left; the item is completed
Commit point: the row of the batch's counted recipients, written with the message's summary.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain import message as rules
from postroom.domain.confirmation import ConfirmationAttempts, ConfirmationState
from postroom.domain.consent import Consent, ConsentSource, Event, SourceKind
from postroom.domain.delivery import Delivery, DeliveryEnd, Ledger, State, with_states
from postroom.domain.delivery_token import DeliveryId, SingleMailId, parse_token
from postroom.domain.feedback import (
    SMTP_SOURCE,
    BounceClass,
    FeedbackEffect,
    FeedbackEvent,
    FeedbackKind,
    FeedbackPolicy,
    effect_of,
)
from postroom.domain.message import GOING_OUT, Message, PauseCause, Status
from postroom.domain.subscriber import InactiveReason
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.records import archive, batches, feedback, messages, subscribers, suppressions
from postroom.records.feedback import RECORDED_TOGETHER, FeedbackSummary, LocatedEvent
from postroom.records.names import FEEDBACK_QUEUE
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import Unreadable
from postroom.storage.port import Claim, ClaimLost, Conflict, Row, Storage

log = structlog.get_logger("feedback")
EVENTS_TOGETHER = 500  # of a shard: a few milliseconds each
CLAIM_S = 60.0
LATER_S = 5.0  # a sender is sending the batch
TRIES_MAX = 200  # claims of an item whose events cannot be processed; the sweep puts it again
SETTLED_WORDS = "accepted, as the provider reports"
_EVIDENCE_OF_HAND_OVER = frozenset(FeedbackKind) - {FeedbackKind.UNSUBSCRIBED}


@dataclass
class FeedbackHandler:
    """Processes the events that are waiting in storage."""

    storage: Storage
    clock: Clock
    secret: str
    policy: FeedbackPolicy = field(default_factory=FeedbackPolicy)  # may change while it runs

    async def step(self) -> bool:
        """Process the events of one item; return whether there may be more."""
        claims = await self.storage.queues.claim(FEEDBACK_QUEUE, limit=1, lease_s=CLAIM_S)
        for claim in claims:
            await self._handle(claim)
        return bool(claims)

    async def _handle(self, claim: Claim) -> None:
        queues = self.storage.queues
        shard = claim.body
        is_done = shard not in feedback.SHARDS or await self.handle_shard(shard)
        with contextlib.suppress(ClaimLost):
            if is_done or claim.taken > TRIES_MAX:
                await queues.complete(claim)
            else:
                await queues.release(claim, delay_s=LATER_S)

    async def handle_shard(self, shard: str) -> bool:
        """Process the events of a shard; False if some must wait or there are more."""
        rows, has_more = await feedback.pending(self.storage.tables, shard, limit=EVENTS_TOGETHER)
        events: dict[str, tuple[FeedbackEvent, Row]] = {}
        for row in rows:
            try:
                events[row.key] = feedback.event_of(row), row
            except Unreadable as error:
                log.error("event_unreadable", shard=shard, error=str(error)[:200])
        waiting = await self._handle_events([event for event, _row in events.values()])
        done = [row for event, row in events.values() if event.id not in waiting]
        await feedback.forget_pending(self.storage.tables, shard, done)
        return not waiting and not has_more

    async def _handle_events(self, events: Sequence[FeedbackEvent]) -> set[str]:
        """Process some events; return the ids of those that must wait for a sender."""
        by_batch: dict[tuple[str, int], list[tuple[int, FeedbackEvent]]] = defaultdict(list)
        waiting: set[str] = set()
        unknown = 0
        for event in sorted(events, key=lambda event: (event.at, event.id)):
            match parse_token(self.secret.encode(), event.delivery):
                case DeliveryId(ref=ref, batch=batch, position=position):
                    by_batch[ref, batch].append((position, event))
                case SingleMailId(guid=guid):
                    unknown += not await self._handle_confirmation(guid, event)
                case None:
                    unknown += 1
        for (ref, batch), some in by_batch.items():
            message = await messages.find(self.storage.tables, ref)
            if message is None:  # expired, and its recipients deleted
                unknown += len(some)
                continue
            waiting |= await self._handle_batch(message, batch, some)
        if unknown:
            log.info("feedback_unknown", events=unknown)
        return waiting

    async def _handle_batch(
        self, message: Message, batch: int, events: Sequence[tuple[int, FeedbackEvent]]
    ) -> set[str]:
        tables = self.storage.tables
        counted = await feedback.find_counted(tables, message.ref, batch)
        events = [(at, event) for at, event in events if not counted.has(event.kind, at)]
        if not events:
            return set()
        deliveries, settled = await self._deliveries_of(message.ref, batch)
        if message.completed_at and settled & {at for at, _event in events}:
            await self._count_again(message.ref)  # a crash may have prevented it
        unsettled = await self._settle_doubts(message, batch, deliveries, events)
        located = [
            LocatedEvent(
                event,
                DeliveryId(message.ref, batch, at),
                deliveries[at].key,
                deliveries[at].address,
            )
            for at, event in events
            if at in deliveries and at not in unsettled
        ]
        await self._clear_strikes(located)
        for each in located:
            await self._act_on_person(message, deliveries[each.delivery.position], each.event)
        counts = [each for each in located if each.event.kind is not FeedbackKind.ACCEPTED]
        for start in range(0, len(counts), RECORDED_TOGETHER):
            some = counts[start : start + RECORDED_TOGETHER]
            summary = await feedback.record(tables, message.ref, some)
            if any(effect_of(each.event) is FeedbackEffect.BLAME_US for each in some):
                await self._pause_if_too_many_refusals(message.ref, summary)
        return {event.id for at, event in events if at in unsettled}

    async def _deliveries_of(self, ref: str, batch: int) -> tuple[dict[int, Delivery], set[int]]:
        """All deliveries of a batch, and those that a report has settled."""
        tables = self.storage.tables
        known = await batches.load_deliveries(tables, ref, batch)
        settled: set[int] = set()
        async for old in archive.load(tables, ref, batch):
            known[old.delivery.position] = old.delivery
            if old.ended.words == SETTLED_WORDS:
                settled.add(old.delivery.position)
        return known, settled

    # --- Doubts ---------------------------------------------------------------------------------

    async def _settle_doubts(
        self,
        message: Message,
        batch: int,
        deliveries: Mapping[int, Delivery],
        events: Sequence[tuple[int, FeedbackEvent]],
    ) -> set[int]:
        """Record deliveries in doubt as sent if the provider reports on them.

        Returns the positions that a sender is working on: they may become doubts at any moment.
        """
        reported = {
            at
            for at, event in events
            if event.source != SMTP_SOURCE and event.kind in _EVIDENCE_OF_HAND_OVER
        }
        if message.completed_at and not message.books.held:
            return set()
        found = await batches.find_ledger(self.storage.tables, message.ref, batch)
        if found is None or not reported:
            return set()
        ledger = found.value
        sending = {at for at in reported if ledger.states[at] == State.SENDING}
        doubted = [at for at in reported if _is_in_doubt(ledger, at) and at in deliveries]
        if doubted and ledger.owner:
            return sending | set(doubted)
        if doubted:
            await self._record_as_sent(message, found.value, found.etag, deliveries, doubted)
        return sending

    async def _record_as_sent(
        self,
        message: Message,
        ledger: Ledger,
        etag: str,
        deliveries: Mapping[int, Delivery],
        doubted: Sequence[int],
    ) -> None:
        """Write archive rows first, then the ledger, as a sender does."""
        tables = self.storage.tables
        now = self.clock.now()
        ended = DeliveryEnd(State.SENT, SETTLED_WORDS, now)
        await archive.write(tables, ledger, deliveries, dict.fromkeys(doubted, ended))
        settled = msgspec.structs.replace(
            ledger,
            states=with_states(ledger, dict.fromkeys(doubted, State.SENT)),
            deferred={at: wait for at, wait in ledger.deferred.items() if at not in doubted},
            touched_at=now.timestamp(),
        )
        rows = await batches.load_batch(tables, ledger.ref, ledger.batch)
        await batches.replace_ledger(tables, settled, etag)
        if settled.is_final:
            await batches.delete_deliveries(tables, ledger.ref, ledger.batch, rows)
        log.info("doubts_settled", ref=ledger.ref, batch=ledger.batch, count=len(doubted))
        await self._count_again(message.ref)

    async def _count_again(self, ref: str) -> None:
        """Count again, because nothing else updates the books of a completed message."""

        async def write() -> None:
            found = await messages.find_live(self.storage.tables, ref)
            if found and found.value.completed_at and found.value.status is Status.COMPLETED:
                again = rules.requeued(found.value, found.value.revive)
                await messages.replace(self.storage.tables, again, found.etag)

        await retry_on_conflict(write)

    # --- People ---------------------------------------------------------------------------------

    async def _act_on_person(
        self, message: Message, delivery: Delivery, event: FeedbackEvent
    ) -> None:
        match effect_of(event):
            case FeedbackEffect.SUPPRESS:
                await self._suppress(delivery.key, delivery.address, event, SuppressionReason.DEAD)
                await self._take_off_list(message, delivery, event, InactiveReason.BOUNCED)
            case FeedbackEffect.COMPLAINT:
                reason = SuppressionReason.COMPLAINED
                await self._suppress(delivery.key, delivery.address, event, reason)
                await self._take_off_list(message, delivery, event, InactiveReason.COMPLAINED)
            case FeedbackEffect.UNSUBSCRIBE:
                await self._take_off_list(message, delivery, event, InactiveReason.UNSUBSCRIBED)
            case FeedbackEffect.STRIKE:
                if await self._has_struck_out(delivery.key, event):
                    reason = SuppressionReason.KEEPS_BOUNCING
                    await self._suppress(delivery.key, delivery.address, event, reason)
                    await self._take_off_list(message, delivery, event, InactiveReason.BOUNCED)
            case FeedbackEffect.CLEAR_STRIKES:
                pass  # done for all of them together
            case FeedbackEffect.BLAME_US | FeedbackEffect.NOTHING:
                pass

    async def _clear_strikes(self, located: Sequence[LocatedEvent]) -> None:
        """Delete the temporary bounces of people who were reached.

        One range query per batch, whose people are in key order; it nearly always finds nobody.
        """
        reached = {
            each.key for each in located if effect_of(each.event) is FeedbackEffect.CLEAR_STRIKES
        }
        if not reached:
            return
        tables = self.storage.tables
        between = feedback.soft_bounces_between(tables, min(reached), max(reached))
        struck = [key async for key, _bounces in between if key in reached]
        for key in struck:
            await feedback.clear_soft_bounces(tables, key)

    async def _suppress(
        self, key: str, address: str, event: FeedbackEvent, reason: SuppressionReason
    ) -> None:
        is_complaint = reason is SuppressionReason.COMPLAINED
        found = event.classification
        entry = Suppression(
            key=key,
            address=address,
            scope=SuppressionScope.BULK if is_complaint else SuppressionScope.ALL,
            reason=reason,
            since=event.at,
            source=event.source,
            delivery=event.delivery,
            status=found.status if found else "",
            words=found.words if found else "",
        )
        await suppressions.put(self.storage.tables, self.secret, key, entry, self.clock.now())

    async def _take_off_list(
        self, message: Message, delivery: Delivery, event: FeedbackEvent, why: InactiveReason
    ) -> None:
        """Take the person off the message's list, unless they have joined again since."""
        tables = self.storage.tables
        source = ConsentSource(_SOURCES[why], event.source)
        now = self.clock.now()

        async def leave() -> None:
            found = await subscribers.find(tables, message.list_name, delivery.key)
            if found is None or found.value.inactive_reason or found.value.guid != delivery.guid:
                return
            removal = Event.UNSUBSCRIBED if why is InactiveReason.UNSUBSCRIBED else Event.REMOVED
            consent = Consent(event=removal, at=now, source=source)
            await subscribers.leave(tables, found.value, found.etag, why=why, consent=consent)

        await retry_on_conflict(leave)

    async def _has_struck_out(self, key: str, event: FeedbackEvent) -> bool:
        """Record a temporary bounce; return whether there are too many over too long a time."""
        tables = self.storage.tables

        async def strike() -> dict[str, datetime]:
            known = await feedback.find_soft_bounces(tables, key)
            before = known.value.strikes if known else {}
            after = self.policy.with_strike(before, event.delivery, event.at)
            if after != before:
                await feedback.write_soft_bounces(tables, key, feedback.SoftBounces(after), known)
            return after

        return self.policy.keeps_bouncing(await retry_on_conflict(strike))

    async def _handle_confirmation(self, guid: str, event: FeedbackEvent) -> bool:
        """Show on the person's page that their confirmation bounced; False if nobody has it."""
        tables = self.storage.tables
        list_name = await subscribers.find_list_of(tables, guid)
        found = await subscribers.find_by_guid(tables, list_name, guid) if list_name else None
        if found is None or list_name is None:
            return False
        effect = effect_of(event)
        if effect in (FeedbackEffect.SUPPRESS, FeedbackEffect.COMPLAINT):
            is_dead = effect is FeedbackEffect.SUPPRESS
            reason = SuppressionReason.DEAD if is_dead else SuppressionReason.COMPLAINED
            await self._suppress(found.value.key, found.value.address, event, reason)
        if event.kind is not FeedbackKind.BOUNCED or found.value.verified:
            return True
        words = event.classification.words if event.classification else ""
        refused = ConfirmationAttempts(
            state=ConfirmationState.REFUSED,
            count=1,
            first_at=event.at,
            last_at=event.at,
            words=words or "the email bounced",
        )
        after = msgspec.structs.replace(found.value, confirmation=refused)
        with contextlib.suppress(Conflict):  # the person has done something newer since
            await subscribers.replace(tables, found.value, after, found.etag)
        return True

    # --- Our own fault --------------------------------------------------------------------------

    async def _pause_if_too_many_refusals(self, ref: str, summary: FeedbackSummary) -> None:
        refused = summary.classes.get(BounceClass.OURS, 0)
        words = next(
            (reply for why, reply in summary.examples.items() if why.startswith("ours:")), ""
        )

        async def pause() -> None:
            found = await messages.find_live(self.storage.tables, ref)
            if found is None or found.value.status not in GOING_OUT:
                return
            message = found.value
            known = message.pause_cause or PauseCause(0, 0)
            ended = message.books.sent + message.books.failed
            if self.policy.should_pause(refused - known.refused, ended - known.ended):
                cause = PauseCause(refused, ended, words)
                after = rules.paused_for(message, cause)
                await messages.replace(self.storage.tables, after, found.etag)
                log.warning("message_paused_by_refusals", ref=ref, refused=refused, ended=ended)

        await retry_on_conflict(pause)


_SOURCES = {
    InactiveReason.BOUNCED: SourceKind.BOUNCE,
    InactiveReason.COMPLAINED: SourceKind.COMPLAINT,
    InactiveReason.UNSUBSCRIBED: SourceKind.PROVIDER,
}


def _is_in_doubt(ledger: Ledger, at: int) -> bool:
    wait = ledger.deferred.get(at)
    return wait is not None and wait.in_doubt and ledger.states[at] in (State.QUEUED, State.HELD)


async def put_forgotten_items(storage: Storage) -> None:
    """A chore of the sweep: put items for events whose item was lost."""
    if await storage.queues.length(FEEDBACK_QUEUE) == 0:
        await storage.queues.put(FEEDBACK_QUEUE, *await feedback.shards_with_events(storage.tables))
