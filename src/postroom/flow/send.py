"""Stage 4 of 7, send: claim the work item of a batch and send its deliveries.

Before: fan_out.py wrote the batch, its ledger and its work item.
After: report.py finds final states in the ledger, archive rows say how each delivery ended, and the
item is completed. feedback.py finds an event for everyone who was refused.
Steps: claim > is the message still going out? > is the ledger free? (else settle what a dead sender
left) > load > skip people who unsubscribed > announce a slice > hand it to the lane > archive the
ends > record, together with announcing the next slice > delete what is final > complete the item.
Archiving, recording and deleting are one call of the storage, which keeps this order.
Dies half-way: the item reappears, and the ledger shows the next sender the state of each delivery.
    before the announcement     queued: nothing happened; the journal shows whose item is hidden
    announced, nothing handed   settled by the journal: queued again. Without it: in doubt
    handed over, no answer      in doubt: resend or hold, by the message's policy
    answered, not archived      settled by the journal. Without it: in doubt
    refusals reported           reported again, which changes nothing: the archive comes after
    archived, not recorded      settled by the archive rows
    recorded, item not done     the next sender finds a final ledger, deletes the rows and completes
                                the item; the journal shows only that we had the item
Stalls past its lease: the sender that took over changed the ledger, so our next write conflicts.
Commit point: the ledger row. A slice may be on the wire only between two writes of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.dead_letter import Reason
from postroom.domain.delivery import (
    ATTEMPTS_WITHOUT_OUTCOME_MAX,
    Delivery,
    DeliveryEnd,
    State,
    after_doubt,
    announced,
    due_positions,
    held_for_people,
    judge_slice,
    skipped,
)
from postroom.domain.errors import PostroomError
from postroom.domain.message import GOING_OUT, Message, PauseCause, Status, paused_for
from postroom.domain.outcome import Outcome, Sent, Untried, clip, is_fault
from postroom.domain.retry import RetryRules
from postroom.domain.suppression import REASON_TEXTS
from postroom.domain.work_item import BadItem, BatchItem, RecipientItem, parse_mail_item
from postroom.flow.render import CompiledMessage, Renderer
from postroom.pacing.pacer import Pacer
from postroom.records import batches, dead_letters, messages
from postroom.records.departures import DepartureCache
from postroom.records.retry import retry_on_conflict
from postroom.records.rows import Unreadable
from postroom.records.suppression_filter import SuppressionFilter
from postroom.sending.claimed_batch import BatchLost, ClaimedBatch
from postroom.sending.lease import SendingLease
from postroom.sending.recovery import BatchSettler
from postroom.storage.port import Claim, ClaimLost, Conflict, Storage
from postroom.transport.port import GuardedWatch, HandOverRecord, Lane

log = structlog.get_logger("send")
BUSY_DELAY_S = 5.0  # another sender has the batch: try again when it may be done or dead
OWN_DELAY_S = 60.0  # another lane of ours has it, though its claim has lapsed
UNREADABLE_DELAY_S = 60.0  # time for a newer sender to claim it
FAULT_DELAY_S = 10.0  # our provider has a problem: the item waits, and no attempt is used up
HELD_WORDS = {
    Reason.ROWS_MISSING: "rows of this batch are missing",
    Reason.SENDERS_STOPPED: "several senders in a row stopped while sending this batch",
}
SLICES_IN_HAND_MAX = 12  # under a slow limit, of a few seconds each; then other items go first
RETRY_DELAY_S_MAX = 6 * 3600.0  # of a claimed item; below Azure's seven days


class Journal(HandOverRecord, Protocol):
    """The ack journal of one lane: what was handed over, readable even after a kill."""

    def begin(self, ref: str, batch: int) -> None: ...
    def recorded(self) -> None: ...
    def end(self) -> None: ...


class ItemResult(Enum):
    """How the handling of a claimed item ended."""

    DONE = "done"  # completed: nothing of the batch is open
    LATER = "later"  # given back until something is due
    IDLE = "idle"  # completed or given back: there was nobody to send to
    BUSY = "busy"  # given back: another sender has the batch
    FAULT = "fault"  # put back: our own provider has a problem
    DROPPED = "dropped"  # completed: its message has ended or is paused (resuming puts a new item)
    DEAD = "dead"  # in the dead letters, its deliveries held
    UNREADABLE = "unreadable"  # given back: a newer version wrote it, or it is damaged
    LOST = "lost"  # another sender has taken over


# A row is damaged or of a newer version: other items continue, and the sweep puts this one again.
_UNREADABLE = (UNREADABLE_DELAY_S, ItemResult.UNREADABLE, Reason.UNREADABLE)


@dataclass(frozen=True)
class BatchSender:
    """Sends batches; shared by the lanes of a process."""

    storage: Storage
    clock: Clock
    lease: SendingLease
    settler: BatchSettler
    renderer: Renderer
    pacer: Pacer
    rules: RetryRules = field(default_factory=RetryRules)
    slice_size: int = 50
    suppressions: SuppressionFilter | None = None  # None: nobody is suppressed
    _departures: DepartureCache = field(default_factory=DepartureCache)

    async def handle(self, claim: Claim, lane: Lane, journal: Journal) -> ItemResult:
        """Take one work item through all the steps."""
        try:
            item = parse_mail_item(claim.body)
        except BadItem:
            return await self._bury(claim, Reason.MALFORMED)
        if isinstance(item, RecipientItem):
            found = await self._find_batch(claim, item)
            if isinstance(found, ItemResult):
                return found
            item = found
        if item.restart:
            log.info("item_after_restart", ref=item.ref, batch=item.batch)
        journal.begin(item.ref, item.batch)  # from now on our successor knows what we were sending
        await self.pacer.keep_alive(must_know=True)
        try:
            handled = await self._send_batch(claim, item, lane, journal)
        except (BatchLost, ClaimLost):
            handled = ItemResult.LOST
        except Unreadable:
            handled = await self._give_back_or_bury(claim, *_UNREADABLE)
        finally:
            await self.pacer.release(lane.id)
        journal.end()
        return handled

    async def _send_batch(
        self, claim: Claim, item: BatchItem, lane: Lane, journal: Journal
    ) -> ItemResult:
        message = await self._find_message_unless_paused(item.ref)
        if message is None:
            await self._delete_rows_of_archived_batch(item)
            return await self._complete(claim, ItemResult.DROPPED)
        found = await batches.find_ledger(self.storage.tables, item.ref, item.batch)
        if found is None:  # an item is put after its ledger: it is a stray, or storage lags behind
            return await self._give_back_or_bury(
                claim, BUSY_DELAY_S, ItemResult.BUSY, Reason.NO_BATCH
            )
        batch = await ClaimedBatch.load(
            self.storage.tables, self.clock, self.lease.owner, message, found
        )
        if not batch.is_whole():
            return await self._hold_and_bury(claim, batch, Reason.ROWS_MISSING)
        if not await self.settler.settle_if_abandoned(batch):
            is_ours = batch.ledger.owner == self.lease.owner
            delay_s = OWN_DELAY_S if is_ours else BUSY_DELAY_S
            return await self._give_back(claim, delay_s, ItemResult.BUSY)
        if batch.ledger.attempts_without_outcome >= ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._hold_and_bury(claim, batch, Reason.SENDERS_STOPPED)
        if batch.ledger.is_open:
            try:
                compiled = await self.renderer.compiled(message)
            except PostroomError as error:  # a body is missing or cannot be read
                return await self._hold_and_bury(claim, batch, Reason.NO_CONTENT, str(error))
            await self._send_slices(batch, compiled, lane, journal)
            # Another lane of ours may get the item before we hear that it was given back, and its
            # mails must not be judged by our answers.
            journal.recorded()
        return await self._complete_or_give_back(claim, batch)

    async def _find_message_unless_paused(self, ref: str) -> Message | None:
        """While it is paused the item may be completed, because resuming puts a new one."""
        found = await messages.find_live(self.storage.tables, ref)
        if found is None or found.value.status is Status.PAUSED:
            return None
        return found.value

    async def _delete_rows_of_archived_batch(self, item: BatchItem) -> None:
        """Delete rows that no sender deleted before the message was archived.

        They are read before the ledger is found final, so none of them is of a revived delivery.
        """
        rows = await batches.load_batch(self.storage.tables, item.ref, item.batch)
        found = await batches.find_ledger(self.storage.tables, item.ref, item.batch)
        if found and found.value.is_final:
            await batches.delete_deliveries(self.storage.tables, item.ref, item.batch, rows)

    async def _send_slices(
        self, batch: ClaimedBatch, compiled: CompiledMessage, lane: Lane, journal: Journal
    ) -> None:
        """Announce, hand over, archive. Each ledger write also records the previous slice."""
        watch = GuardedWatch(journal, self.lease.is_held)
        size = self.pacer.slice_max(self.slice_size)
        if batch.message.status is Status.CANCELLED:
            due = batch.ledger.positions(State.QUEUED)  # all of them, to be skipped
        else:
            due = due_positions(batch.ledger, self.clock.now().timestamp(), self.rules)
        if size < self.slice_size:  # a slow limit: no item is in hand for longer than its claim
            due = due[: size * SLICES_IN_HAND_MAX]
        for start in range(0, len(due), size):
            try:
                if not await self._may_send_next_slice(batch, is_first=start == 0):
                    break
                slice_ = await self._skip_departed(batch, due[start : start + size])
                slice_ = await self._defer_those_over_a_domain_limit(batch, slice_, lane)
            except Unreadable:
                if start == 0:
                    raise  # nothing is announced: the item is given back
                break  # record first
            if slice_:
                await self._announce(batch, slice_)
                deliveries = batch.deliveries
                mails = compiled.mails_for(batch.ledger.batch, [deliveries[at] for at in slice_])
                outcomes = await lane.send(mails, watch)
                await self._note_ends(batch, dict(zip(slice_, outcomes, strict=True)))
        await batch.record(msgspec.structs.replace(batch.ledger, owner=""))

    async def _may_send_next_slice(self, batch: ClaimedBatch, *, is_first: bool) -> bool:
        """False if we are stopping, the provider has a problem, or the message was paused."""
        if batch.fault or not self.lease.is_held():
            return False
        if is_first:
            return True
        message = await batch.retry_until_stored(
            lambda: self._find_message_unless_paused(batch.message.ref)
        )
        if message is not None:
            batch.message = message
        return message is not None

    async def _skip_departed(self, batch: ClaimedBatch, positions: Sequence[int]) -> list[int]:
        """Skip people who unsubscribed or were suppressed since; return the others."""
        reason, is_skipped = await self._skip_rule(batch)
        deliveries = batch.deliveries
        reasons = {at: reason for at in positions if is_skipped(deliveries[at])}
        reasons |= await self._suppressed(batch, [at for at in positions if at not in reasons])
        if not reasons:
            return list(positions)
        now = self.clock.now()
        waits = batch.ledger.deferred
        words = {at: after_doubt(why, waits.get(at)) for at, why in reasons.items()}
        batch.ends |= {at: DeliveryEnd(State.SKIPPED, words[at], now) for at in words}
        batch.ledger = skipped(batch.ledger, words, now_s=now.timestamp())
        return [at for at in positions if at not in words]

    async def _suppressed(self, batch: ClaimedBatch, positions: Sequence[int]) -> dict[int, str]:
        """Why people get no more email, for those who were suppressed after they were queued."""
        suppressions = self.suppressions
        if suppressions is None:
            return {}
        deliveries = batch.deliveries
        keys = {deliveries[at].key: at for at in positions}
        found = await batch.retry_until_stored(
            lambda: suppressions.suppressed(list(keys), batch.message.list_name)
        )
        return {
            keys[key]: f"suppressed: {REASON_TEXTS[entry.reason]}" for key, entry in found.items()
        }

    async def _skip_rule(self, batch: ClaimedBatch) -> tuple[str, Callable[[Delivery], bool]]:
        message = batch.message
        if message.status is Status.CANCELLED:
            return "the message was cancelled", lambda _: True
        since = message.queuing_at or message.created_at
        departures = self._departures.of(message.list_name, message.list_created_at, since)
        found = await batch.retry_until_stored(
            lambda: departures.refresh(self.storage.tables, self.clock.now())
        )
        if found is None or found.created_at != message.list_created_at:
            return "the list was deleted", lambda _: True
        return "unsubscribed before it was sent", lambda delivery: delivery in departures

    async def _defer_those_over_a_domain_limit(
        self, batch: ClaimedBatch, positions: list[int], lane: Lane
    ) -> list[int]:
        """Leave them queued, untried, with a time to come back; return the others."""
        if not self.pacer.is_limited:
            return positions
        addresses = [batch.deliveries[at].address for at in positions]
        deferred = (await self.pacer.admit(lane.id, addresses)).deferred
        batch.defer({positions[place]: until for place, until in deferred.items()})
        return [at for place, at in enumerate(positions) if place not in deferred]

    async def _announce(self, batch: ClaimedBatch, slice_: Sequence[int]) -> None:
        now_s = self.clock.now().timestamp()
        await batch.record(announced(batch.ledger, slice_, owner=self.lease.owner, now_s=now_s))

    async def _note_ends(self, batch: ClaimedBatch, outcomes: Mapping[int, Outcome]) -> None:
        """Judge the outcomes; they are archived and recorded with the next write of the ledger."""
        ledger, ends = judge_slice(
            batch.ledger,
            outcomes,
            on_doubt=batch.message.on_doubt,
            rules=self.rules,
            now=self.clock.now(),
        )
        await batch.retry_until_stored(lambda: self.settler.report_refusals(batch, ends))
        batch.ends |= ends
        if doubts := ledger.doubts - batch.ledger.doubts:
            log.warning("deliveries_in_doubt", ref=ledger.ref, batch=ledger.batch, count=doubts)
        batch.ledger = ledger
        others = [outcome for outcome in outcomes.values() if type(outcome) is not Sent]
        faults = sum(map(is_fault, others))
        batch.fault = faults > 0
        batch.is_tried |= faults < len(outcomes)
        for outcome in others:
            if isinstance(outcome, Untried) and outcome.too_large:
                await self._pause_as_too_large(batch, outcome.words)
                break

    async def _pause_as_too_large(self, batch: ClaimedBatch, words: str) -> None:
        """Pause a message whose attachments the server does not accept; no attempt is counted."""
        tables = self.storage.tables

        async def pause() -> None:
            found = await messages.find_live(tables, batch.message.ref)
            if found is None or found.value.status not in GOING_OUT:
                return
            known = found.value.pause_cause or PauseCause(0, 0)
            cause = PauseCause(known.refused, known.ended, clip(words), is_too_large=True)
            await messages.replace(tables, paused_for(found.value, cause), found.etag)
            log.warning("message_paused_as_too_large", ref=batch.message.ref, words=words)

        # What became of the slice must be recorded now; the next one is refused and pauses again.
        with contextlib.suppress(Conflict, Unreadable):
            await batch.retry_until_stored(lambda: retry_on_conflict(pause))

    async def _complete_or_give_back(self, claim: Claim, batch: ClaimedBatch) -> ItemResult:
        """Delete the rows of a final batch; complete the item, or give it back until it is due."""
        ledger = batch.ledger
        if ledger.is_final:
            await batch.delete_rows()
        if not ledger.is_open:
            return await self._complete(
                claim, ItemResult.DONE if batch.is_tried else ItemResult.IDLE
            )
        if batch.fault:
            return await self._give_back(claim, FAULT_DELAY_S, ItemResult.FAULT)
        wait_s = ledger.next_retry_at() - self.clock.now().timestamp()
        handled = ItemResult.LATER if batch.is_tried else ItemResult.IDLE
        return await self._give_back(claim, max(0.0, wait_s), handled)

    async def _find_batch(self, claim: Claim, item: RecipientItem) -> BatchItem | ItemResult:
        """The item of the batch with a recipient's delivery; handled if there is none, or not yet.

        Only items that another program put name a recipient.
        """
        tables = self.storage.tables
        try:
            message = await messages.find(tables, item.ref)
            batch = await batches.find_batch_of(tables, message, item.key) if message else None
        except Unreadable:
            return await self._give_back_or_bury(claim, *_UNREADABLE)
        if batch is not None:
            return BatchItem(item.date, item.ref, item.key, item.restart, batch)
        if message is None or message.fanned_out:
            return await self._bury(claim, Reason.NO_DELIVERY)
        return await self._give_back_or_bury(
            claim, BUSY_DELAY_S, ItemResult.BUSY, Reason.NO_DELIVERY
        )

    async def _give_back_or_bury(
        self, claim: Claim, delay_s: float, handled: ItemResult, reason: Reason
    ) -> ItemResult:
        """Give the item back, or bury it once it was claimed too often without an outcome."""
        if claim.taken > ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._bury(claim, reason)
        return await self._give_back(claim, delay_s, handled)

    async def _hold_and_bury(
        self, claim: Claim, batch: ClaimedBatch, reason: Reason, words: str = ""
    ) -> ItemResult:
        """Hold the deliveries for a person, because retrying would not help."""
        words = clip(words) or HELD_WORDS[reason]
        now_s = self.clock.now().timestamp()
        await batch.record(held_for_people(batch.ledger, words, now_s=now_s))
        return await self._bury(claim, reason)

    async def _bury(self, claim: Claim, reason: Reason) -> ItemResult:
        await dead_letters.bury(self.storage.queues, claim, reason, self.clock.now())
        return ItemResult.DEAD

    async def _complete(self, claim: Claim, handled: ItemResult) -> ItemResult:
        await self.storage.queues.complete(claim)
        return handled

    async def _give_back(self, claim: Claim, delay_s: float, handled: ItemResult) -> ItemResult:
        await self.storage.queues.release(claim, delay_s=min(delay_s, RETRY_DELAY_S_MAX))
        return handled
