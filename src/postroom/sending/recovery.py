"""Recovery: decide about every delivery that a dead sender had announced.

The archive rows decide, or the dead sender's journal if it is on this machine; otherwise a delivery
is in doubt. A sender of another machine counts as dead once its lease has expired.
Dies half-way: the ledger still names the dead owner, so the next sender settles the batch again;
archive rows that are already written decide the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.delivery import (
    FINAL,
    DeliveryEnd,
    JournalEvidence,
    SenderStillAlive,
    State,
    ends_of,
    judge_in_hindsight,
    judged,
)
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.feedback import SMTP_SOURCE, FeedbackEvent, FeedbackKind
from postroom.domain.retry import RetryRules
from postroom.domain.trace_entry import person_id
from postroom.domain.trouble import one_line
from postroom.domain.work_item import BatchItem
from postroom.feedback.classify import classify_words
from postroom.records import archive, batches, feedback, leases, messages
from postroom.records.leases import RenewalTracker
from postroom.records.names import MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.sending.claimed_batch import BatchLost, ClaimedBatch
from postroom.sending.journal import FileJournals
from postroom.storage.port import Storage

log = structlog.get_logger("sender")
JOURNALS_EVERY_S = 10.0


class Journals(Protocol):
    def recall(self, owner: str, ref: str, batch: int) -> JournalEvidence | SenderStillAlive | None:
        """What the journal of another sender proves; None if it is not on this machine."""
        ...


class BatchSettler:
    """Settles batches whose sender died."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        owner: str,
        journals: Journals,
        rules: RetryRules,
        secret: str,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._owner = owner
        self._journals = journals
        self._rules = rules
        self._renewal_tracker = RenewalTracker(clock)
        self._secret = secret.encode()

    async def report_refusals(self, batch: ClaimedBatch, ends: Mapping[int, DeliveryEnd]) -> None:
        """Store an event for everyone who was refused, before the archive rows are written.

        If we die in between, the delivery is judged again and leads to the same event.
        """
        failed = [at for at, ended in ends.items() if ended.state is State.FAILED]
        if not failed:
            return
        ledger = batch.ledger
        tokens = delivery_tokens(self._secret, ledger.ref, ledger.batch, failed)
        events = [
            FeedbackEvent(
                id=f"{tokens[at]}-{ledger.revived}",
                kind=FeedbackKind.BOUNCED,
                at=ends[at].ended_at,
                source=SMTP_SOURCE,
                delivery=tokens[at],
                address=batch.deliveries[at].address,
                classification=classify_words("", ends[at].words),
            )
            for at in failed
        ]
        await feedback.take_in(self._storage, events)
        person = batch.deliveries[failed[0]].guid if len(failed) == 1 else ""
        log.warning(
            "deliveries_failed",
            ref=ledger.ref,
            batch=ledger.batch,
            count=len(failed),
            words=one_line(ends[failed[0]].words),
            person=person_id(person),
        )

    async def settle_if_abandoned(self, batch: ClaimedBatch) -> bool:
        """Settle the batch if its sender died; return whether it is free to be sent now."""
        ledger = batch.ledger
        if not ledger.owner:
            return True
        if ledger.owner == self._owner:
            return False  # another lane of ours
        memory = self._journals.recall(ledger.owner, ledger.ref, ledger.batch)
        if isinstance(memory, SenderStillAlive):
            return False
        if memory is None and await self._is_alive(ledger.owner):
            return False
        await self._settle(batch, memory)
        return True

    async def settle_for(self, owner: str, ref: str, batch: int) -> None:
        """Settle a batch of a dead sender on this machine, and put an item; its own is hidden."""
        tables = self._storage.tables
        message = await messages.find_live(tables, ref)
        ledger = await batches.find_ledger(tables, ref, batch)
        if message is None or ledger is None or ledger.value.owner not in ("", owner):
            return  # already settled, and another sender has it
        claimed = await ClaimedBatch.load(tables, self._clock, self._owner, message.value, ledger)
        try:
            if not claimed.is_whole() or not await self.settle_if_abandoned(claimed):
                return
        except BatchLost:
            return  # another sender settled it at this moment
        if claimed.ledger.is_final:
            await claimed.delete_rows()
        if claimed.ledger.is_open:
            date = messages.date_of(claimed.message)
            item = BatchItem(date, ref, claimed.ledger.first, True, batch)
            await self._storage.queues.put(MAIL_QUEUE, item.body())

    async def _is_alive(self, owner: str) -> bool:
        return await leases.is_alive(
            self._storage.tables, owner, self._clock.now(), self._renewal_tracker
        )

    async def _settle(self, batch: ClaimedBatch, memory: JournalEvidence | None) -> None:
        ledger = batch.ledger
        ends = await archive.ends_of(self._storage.tables, ledger)
        now = self._clock.now()
        verdicts = judge_in_hindsight(
            ledger,
            ends,
            memory,
            on_doubt=batch.message.on_doubt,
            rules=self._rules,
            now_s=now.timestamp(),
        )
        new = {at: verdict for at, verdict in verdicts.items() if at not in ends}
        new_ends = ends_of(new, now)
        await self.report_refusals(batch, new_ends)
        await batch.write_settled(new_ends)
        has_outcomes = any(verdict.state is not State.QUEUED for verdict in verdicts.values())
        settled = judged(ledger, verdicts, now_s=now.timestamp(), has_outcome=has_outcomes)
        await batch.record(msgspec.structs.replace(settled, owner=""))
        states = [verdict.state for verdict in verdicts.values()]
        log.warning(
            "batch_taken_over",
            ref=ledger.ref,
            batch=ledger.batch,
            owner=ledger.owner,
            known=sum(state in FINAL for state in states),
            again=states.count(State.QUEUED),
            held=states.count(State.HELD),
        )


class JournalRecovery:
    """Immediately settles what senders that died on this machine were sending."""

    def __init__(self, settler: BatchSettler, journals: FileJournals, clock: Clock) -> None:
        self._settler = settler
        self._journals = journals
        self._clock = clock
        self._next_at_s = 0.0

    async def settle_dead_senders(self) -> None:
        """Settle the journals of dead senders, every JOURNALS_EVERY_S."""
        now_s = self._clock.monotonic()
        if now_s < self._next_at_s:
            return
        self._next_at_s = now_s + JOURNALS_EVERY_S
        self._journals.delete_unfinished_folders()
        for owner in self._journals.dead_owners():
            pages = list(self._journals.pages(owner))
            is_settled = True
            for ref, batch in pages:
                try:
                    await self._settler.settle_for(owner, ref, batch)
                except Unreadable as error:  # written by a newer version, which will settle it
                    log.error("journal_kept", owner=owner, ref=ref, error=str(error)[:200])
                    is_settled = False
            if is_settled:
                self._journals.forget(owner)
                log.info("sender_died", owner=owner, batches_in_hand=len(pages))
