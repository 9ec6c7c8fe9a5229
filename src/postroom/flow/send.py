"""Stage 4 of 7, send: take the work item of a batch and get its deliveries out.

Before: fan_out.py wrote the batch, its ledger and its work item.
After: report.py finds final letters in the ledger, archive rows tell each fate, the item is gone.
Steps: claim > message still going out? > ledger free? (else settle what a dead sender left) > load
> skip who left > announce a slice > hand it to the lane > archive the ends > record, together with
announcing the next slice > delete what is final > complete the item.
Dies half-way: the item comes back and the ledger tells the next sender where each delivery stands.
    before the announcement     queued: nothing happened; the journal tells whose item is hidden
    announced, nothing handed   settled by the journal: queued again. Without it: in doubt
    handed over, no answer      in doubt: resend or hold, as the message says
    answered, not archived      settled by the journal. Without it: in doubt
    archived, not recorded      settled by the archive rows
    recorded, item not done     the next one finds a final ledger, deletes, completes; the journal
                                tells that we had the item, and no more of its mails
Stalls past its lease: whoever took over changed the ledger, so our next write of it conflicts.
Commit point: the ledger row. A slice may be on the wire only between two writes of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    JournalEvidence,
    Ledger,
    SenderStillAlive,
    State,
    after_doubt,
    announced,
    due_positions,
    ends_of,
    held_for_people,
    judge,
    judge_in_hindsight,
    judged,
    skipped,
)
from postroom.domain.errors import PostroomError
from postroom.domain.message import Message, Status
from postroom.domain.outcome import Outcome, clip, is_fault
from postroom.domain.retry import RetryRules
from postroom.domain.work_item import BadItem, BatchItem, RecipientItem, parse_mail_item
from postroom.flow.render import CompiledMessage, Renderer
from postroom.records import archive, batches, dead_letters, leases, messages
from postroom.records.departures import DepartureCache
from postroom.records.in_hand import InHand, Lost
from postroom.records.leases import RenewalTracker, Right
from postroom.records.names import MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.records.stored import Stored
from postroom.records.turns import Turns
from postroom.storage.port import Claim, ClaimLost, Storage
from postroom.transport.port import Lane

log = structlog.get_logger("send")
BUSY_DELAY_S = 5.0  # another sender has the batch: look again when it may be done or dead
OWN_DELAY_S = 60.0  # another lane of ours is still at it, its claim has lapsed: it will be done
UNREADABLE_DELAY_S = 60.0  # time for a newer sender to take it
FAULT_DELAY_S = 10.0  # our provider is in trouble: the item waits, nobody loses an attempt
HELD_WORDS = {
    Reason.ROWS_MISSING: "rows of this batch are missing",
    Reason.SENDERS_STOPPED: "several senders in a row stopped while sending this batch",
}
SLICES_IN_HAND_MAX = 12  # of a few seconds each under a slow limit: others have their turn, too
RETRY_DELAY_S_MAX = 6 * 3600.0  # a claimed item's delay; below Azure's seven days


class Journal(Protocol):
    """The ack journal of one lane: what went over the line, known even after a kill."""

    def begin(self, ref: str, batch: int) -> None: ...
    def handing_over(self, positions: Sequence[int]) -> None: ...
    def returned(self, positions: Sequence[int]) -> None: ...
    def answered(self, position: int, outcome: Outcome) -> None: ...
    def recorded(self) -> None: ...
    def end(self) -> None: ...


class Journals(Protocol):
    def recall(self, owner: str, ref: str, batch: int) -> JournalEvidence | SenderStillAlive | None:
        """What the journal of another sender tells; None if it is not on this machine."""
        ...


class Handled(Enum):
    """What became of a claimed item."""

    DONE = "done"  # completed: nothing of the batch is open
    LATER = "later"  # given back, to be taken again when something is due
    IDLE = "idle"  # completed or given back: there was nobody to send to
    BUSY = "busy"  # given back: another sender has the batch
    FAULT = "fault"  # given back: our own provider is in trouble
    DROPPED = "dropped"  # completed: its message is gone or paused (a resume puts it again)
    DEAD = "dead"  # in the dead letters, its deliveries held
    UNREADABLE = "unreadable"  # given back: a newer version wrote it, or it is spoilt
    LOST = "lost"  # another sender took over meanwhile


@dataclass(frozen=True)
class _Watch:
    right: Right
    journal: Journal

    def may_hand_over(self) -> bool:
        return self.right.holds()

    def handing_over(self, positions: Sequence[int]) -> None:
        self.journal.handing_over(positions)

    def returned(self, positions: Sequence[int]) -> None:
        self.journal.returned(positions)

    def answered(self, position: int, outcome: Outcome) -> None:
        self.journal.answered(position, outcome)


@dataclass(frozen=True)
class Sender:
    """Everything a lane works with; shared by the lanes of a process."""

    storage: Storage
    clock: Clock
    right: Right
    journals: Journals
    renderer: Renderer
    rules: RetryRules = field(default_factory=RetryRules)
    slice_size: int = 50
    turns: Turns | None = None  # None: no limit counts here
    _departures: DepartureCache = field(default_factory=DepartureCache)
    _takes: Iterator[int] = field(default_factory=itertools.count)
    _renewal_tracker: RenewalTracker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_renewal_tracker", RenewalTracker(self.clock))

    async def handle(self, claim: Claim, lane: Lane, journal: Journal) -> Handled:
        """All the steps of one work item."""
        try:
            item = parse_mail_item(claim.body)
        except BadItem:
            return await self._bury(claim, Reason.MALFORMED)
        if isinstance(item, RecipientItem):
            found = await self._find_batch(claim, item)
            if isinstance(found, Handled):
                return found
            item = found
        if item.restart:
            log.info("item_after_restart", ref=item.ref, batch=item.batch)
        journal.begin(item.ref, item.batch)  # from here on our successor knows what we had in hand
        if self.turns:
            await self.turns.ask()
        try:
            handled = await self._send_batch(claim, item, lane, journal)
        except (Lost, ClaimLost):
            handled = Handled.LOST
        except Unreadable:
            handled = await self._set_aside(claim)
        journal.end()
        return handled

    async def _send_batch(
        self, claim: Claim, item: BatchItem, lane: Lane, journal: Journal
    ) -> Handled:
        message = await self._message_going_out(item.ref)
        if message is None:
            await self._delete_leftovers(item)
            return await self._complete(claim, Handled.DROPPED)
        found = await batches.find_ledger(self.storage.tables, item.ref, item.batch)
        if found is None:
            return await self._without_ledger(claim)
        batch = self._in_hand(message, found)
        await batch.load()
        if not batch.is_whole():
            return await self._hold_for_people(claim, batch, Reason.ROWS_MISSING)
        if not await self._is_free(batch):
            is_ours = batch.ledger.owner == self.right.owner
            delay_s = OWN_DELAY_S if is_ours else BUSY_DELAY_S
            return await self._give_back(claim, delay_s, Handled.BUSY)
        if batch.ledger.attempts_without_outcome >= ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._hold_for_people(claim, batch, Reason.SENDERS_STOPPED)
        if batch.ledger.is_open:
            try:
                compiled = await self.renderer.compiled(message)
            except PostroomError as error:  # a body is missing or cannot be read
                return await self._hold_for_people(claim, batch, Reason.NO_CONTENT, str(error))
            await self._send_slices(batch, compiled, lane, journal)
            # Another lane of ours may have the item before we hear that it was given back, and its
            # mails must not be judged by our answers.
            journal.recorded()
        return await self._finish(claim, batch)

    async def settle_for(self, owner: str, ref: str, batch: int) -> None:
        """A sender of this machine died with this batch: decide, and put an item; its own hides."""
        found = await messages.find_live(self.storage.tables, ref)
        ledger = await batches.find_ledger(self.storage.tables, ref, batch)
        if found is None or ledger is None or ledger[0].owner not in ("", owner):
            return  # settled already, and another sender is at it
        in_hand = self._in_hand(found[0], ledger)
        await in_hand.load()
        try:
            if not in_hand.is_whole() or not await self._is_free(in_hand):
                return
        except Lost:
            return  # somebody else settled it at this moment
        if in_hand.ledger.is_final:
            await in_hand.delete_rows()
        if in_hand.ledger.is_open:
            date = messages.date_of(in_hand.message)
            item = BatchItem(date, ref, in_hand.ledger.first, True, batch)
            await self.storage.queues.put(MAIL_QUEUE, item.body())

    async def _delete_leftovers(self, item: BatchItem) -> None:
        """Rows that a sender did not come to delete before the message was archived.

        Read before the ledger is found final, they cannot be anybody's who is revived.
        """
        rows = await batches.load_batch(self.storage.tables, item.ref, item.batch)
        found = await batches.find_ledger(self.storage.tables, item.ref, item.batch)
        if found and found[0].is_final:
            await batches.delete_deliveries(self.storage.tables, item.ref, item.batch, rows)

    def _in_hand(self, message: Message, found: Stored[Ledger]) -> InHand:
        write_id = f"{self.right.owner}/{next(self._takes)}"
        return InHand(self.storage.tables, self.clock, write_id, message, found[0], *found)

    async def _message_going_out(self, ref: str) -> Message | None:
        """None also while paused: the item may go, resuming puts it again."""
        found = await messages.find_live(self.storage.tables, ref)
        if found is None or found[0].status is Status.PAUSED:
            return None
        return found[0]

    async def _is_free(self, batch: InHand) -> bool:
        """Nobody is at the batch, or its sender is dead and has been settled."""
        ledger = batch.ledger
        if not ledger.owner:
            return True
        if ledger.owner == self.right.owner:
            return False  # another lane of ours
        memory = self.journals.recall(ledger.owner, ledger.ref, ledger.batch)
        if isinstance(memory, SenderStillAlive):
            return False
        if memory is None and await self._is_alive(ledger.owner):
            return False
        await self._settle(batch, memory)
        return True

    async def _is_alive(self, owner: str) -> bool:
        return await leases.is_alive(
            self.storage.tables, owner, self.clock.now(), self._renewal_tracker
        )

    async def _settle(self, batch: InHand, memory: JournalEvidence | None) -> None:
        """Decide on everything a dead sender had announced."""
        ledger, tables = batch.ledger, self.storage.tables
        ends = await archive.ends_of(tables, ledger)
        now = self.clock.now()
        verdicts = judge_in_hindsight(
            ledger,
            ends,
            memory,
            on_doubt=batch.message.on_doubt,
            rules=self.rules,
            now_s=now.timestamp(),
        )
        new = {at: verdict for at, verdict in verdicts.items() if at not in ends}
        await batch.write_settled(ends_of(new, now))
        headway = any(verdict.state is not State.QUEUED for verdict in verdicts.values())
        settled = judged(ledger, verdicts, now_s=now.timestamp(), has_outcome=headway)
        await batch.record(msgspec.structs.replace(settled, owner=""))

    async def _send_slices(
        self, batch: InHand, compiled: CompiledMessage, lane: Lane, journal: Journal
    ) -> None:
        """Announce, hand over, archive; each write of the ledger also records the slice before."""
        size = self.turns.slice_size(self.slice_size) if self.turns else self.slice_size
        due = self._due(batch)
        if size < self.slice_size:  # a slow limit: no item is in hand for longer than its claim
            due = due[: size * SLICES_IN_HAND_MAX]
        for start in range(0, len(due), size):
            slice_ = await self._slice(batch, due[start : start + size], lane, start == 0)
            if slice_ is None:
                break
            if slice_:
                await self._announce(batch, slice_)
                mails = compiled.mails_for(batch.deliveries[at] for at in slice_)
                outcomes = await lane.send(mails, _Watch(self.right, journal))
                await self._archive(batch, dict(zip(slice_, outcomes, strict=True)))
        await batch.record(msgspec.structs.replace(batch.ledger, owner=""))

    def _due(self, batch: InHand) -> list[int]:
        """Whose turn it is; of a cancelled message everybody's, to be skipped."""
        if batch.message.status is Status.CANCELLED:
            return batch.ledger.positions(State.QUEUED)
        return due_positions(batch.ledger, self.clock.now().timestamp(), self.rules)

    async def _slice(
        self, batch: InHand, due: Sequence[int], lane: Lane, is_first: bool
    ) -> list[int] | None:
        """The next ones to hand over; None if no more may be."""
        try:
            if await self._may_go_on(batch, is_first=is_first):
                return await self._put_off(batch, await self._skip_departed(batch, due), lane)
        except Unreadable:
            if is_first:
                raise  # nothing is announced: the item is set aside. Later, first record.
        return None

    async def _may_go_on(self, batch: InHand, *, is_first: bool) -> bool:
        """Between slices: are we stopping, is the provider in trouble, did people pause it?"""
        if batch.fault or not self.right.holds():
            return False
        if is_first:
            return True
        message = await batch.surely(lambda: self._message_going_out(batch.message.ref))
        if message is not None:
            batch.message = message
        return message is not None

    async def _skip_departed(self, batch: InHand, positions: Sequence[int]) -> list[int]:
        """Left is left, also for who was queued before; a cancelled message skips everybody."""
        reason, leaves = await self._who_is_skipped(batch)
        gone = [at for at in positions if leaves(batch.deliveries[at])]
        if not gone:
            return list(positions)
        now, waits = self.clock.now(), batch.ledger.deferred
        await batch.write_ends(
            {at: DeliveryEnd(State.SKIPPED, after_doubt(reason, waits.get(at)), now) for at in gone}
        )
        batch.ledger = skipped(batch.ledger, gone, now_s=now.timestamp())
        return [at for at in positions if at not in set(gone)]

    async def _put_off(self, batch: InHand, positions: list[int], lane: Lane) -> list[int]:
        """Those whose domain is at its limit stay queued, untried, and come back in time."""
        if self.turns is None or not self.turns.is_limited:
            return positions
        late = await self.turns.put_off(lane, [batch.deliveries[at].address for at in positions])
        return batch.put_off({positions[place]: until for place, until in late.items()}, positions)

    async def _who_is_skipped(self, batch: InHand) -> tuple[str, Callable[[Delivery], bool]]:
        message, tables = batch.message, self.storage.tables
        if message.status is Status.CANCELLED:
            return "the message was cancelled", lambda _: True
        since = message.queuing_at or message.created_at
        known = self._departures.of(message.list_name, message.list_created_at, since)
        found = await batch.surely(lambda: known.refresh(tables, self.clock.now()))
        if found is None or found.created_at != message.list_created_at:
            return "the list was deleted", lambda _: True
        return "left before it was sent", lambda delivery: delivery in known

    async def _announce(self, batch: InHand, slice_: Sequence[int]) -> None:
        now_s = self.clock.now().timestamp()
        ledger = announced(batch.ledger, slice_, owner=self.right.owner, now_s=now_s)
        await batch.record(ledger)

    async def _archive(self, batch: InHand, outcomes: Mapping[int, Outcome]) -> None:
        """Write the ends; the ledger in hand says so with its next write."""
        now = self.clock.now()
        verdicts = {
            at: judge(
                outcome,
                batch.ledger.deferred.get(at),
                on_doubt=batch.message.on_doubt,
                rules=self.rules,
                now_s=now.timestamp(),
            )
            for at, outcome in outcomes.items()
        }
        await batch.write_ends(ends_of(verdicts, now))
        batch.ledger = judged(batch.ledger, verdicts, now_s=now.timestamp())
        batch.fault = any(map(is_fault, outcomes.values()))
        batch.is_tried |= not all(map(is_fault, outcomes.values()))

    async def _finish(self, claim: Claim, batch: InHand) -> Handled:
        """Delete what is final; complete the item, or give it back until something is due."""
        ledger = batch.ledger
        if ledger.is_final:
            await batch.delete_rows()
        if not ledger.is_open:
            return await self._complete(claim, Handled.DONE if batch.is_tried else Handled.IDLE)
        if batch.fault:
            return await self._give_back(claim, FAULT_DELAY_S, Handled.FAULT)
        wait_s = ledger.next_retry_at() - self.clock.now().timestamp()
        handled = Handled.LATER if batch.is_tried else Handled.IDLE
        return await self._give_back(claim, max(0.0, wait_s), handled)

    async def _find_batch(self, claim: Claim, item: RecipientItem) -> BatchItem | Handled:
        """The item of the batch with a recipient's delivery; handled if there is none, or not yet.

        Only items that another program put name a recipient.
        """
        tables = self.storage.tables
        try:
            message = await messages.find(tables, item.ref)
            batch = await batches.find_batch_of(tables, message, item.key) if message else None
        except Unreadable:
            return await self._set_aside(claim)
        if batch is not None:
            return BatchItem(item.date, item.ref, item.key, item.restart, batch)
        may_come = message is not None and not message.fanned_out
        if may_come and claim.taken <= ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._give_back(claim, BUSY_DELAY_S, Handled.BUSY)
        return await self._bury(claim, Reason.NO_DELIVERY)

    async def _without_ledger(self, claim: Claim) -> Handled:
        """An item is put after its ledger, so this is a stray one, or storage that lags."""
        if claim.taken > ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._bury(claim, Reason.NO_BATCH)
        return await self._give_back(claim, BUSY_DELAY_S, Handled.BUSY)

    async def _set_aside(self, claim: Claim) -> Handled:
        """A row of a newer version, or a spoilt one: others go on; the sweep puts it again."""
        if claim.taken > ATTEMPTS_WITHOUT_OUTCOME_MAX:
            return await self._bury(claim, Reason.UNREADABLE)
        return await self._give_back(claim, UNREADABLE_DELAY_S, Handled.UNREADABLE)

    async def _hold_for_people(
        self, claim: Claim, batch: InHand, reason: Reason, words: str = ""
    ) -> Handled:
        """No use to try again. If only our view is stale: Conflict."""
        now_s, words = self.clock.now().timestamp(), clip(words) or HELD_WORDS[reason]
        await batch.record(held_for_people(batch.ledger, words, now_s=now_s))
        return await self._bury(claim, reason)

    async def _bury(self, claim: Claim, reason: Reason) -> Handled:
        await dead_letters.bury(self.storage.queues, claim, reason, self.clock.now())
        return Handled.DEAD

    async def _complete(self, claim: Claim, handled: Handled) -> Handled:
        await self.storage.queues.complete(claim)
        return handled

    async def _give_back(self, claim: Claim, delay_s: float, handled: Handled) -> Handled:
        await self.storage.queues.release(claim, delay_s=min(delay_s, RETRY_DELAY_S_MAX))
        return handled
