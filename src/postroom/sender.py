"""The sender role: lanes that take work items, as many at once as pay.

Stopping (planned): nothing new is taken, what is on the wire is waited for, the rest of a slice
goes back untried, everything is recorded: no doubt is left. Killed: the next sender on the machine
reads our journal; elsewhere the announcements decide once our lease has run out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from postroom.clock import Clock
from postroom.confirmations import ConfirmationLane
from postroom.domain.breaker import Breaker, MailHealth
from postroom.domain.outcome import Sent, is_fault
from postroom.flow.send import FAULT_DELAY_S, Handled, Sender
from postroom.journal import FileJournal, FileJournals
from postroom.records import leases
from postroom.records.leases import Lease
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.rows import Unreadable
from postroom.records.turns import Turns
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, Storage, StorageError
from postroom.transport.port import Lane, Transport
from postroom.wakeup import WakeUpListener

log = structlog.get_logger("sender")
CONFIRM_EVERY_S = 1.0
JOURNALS_EVERY_S = 10.0
POLL_FIRST_S = 1.0
POLL_DOUBLINGS_MAX = 10
IDLE_LEASES = 3  # how much longer a lease is while nothing is in hand


@dataclass(frozen=True)
class _Slot:
    """A lane with its journal page."""

    lane: Lane
    journal: FileJournal


@dataclass
class SenderRole:
    storage: Storage
    clock: Clock
    sender: Sender
    transport: Transport
    journals: FileJournals
    wakeup: WakeUpListener
    lanes: int = 4
    lease_s: float = 30.0
    claim_s: float = 60.0
    poll_s: float = 1.0  # longest pause between two looks into the queues
    breaker: Breaker = field(default_factory=Breaker)
    health: MailHealth = field(default_factory=MailHealth)
    _free: list[_Slot] = field(default_factory=list)
    _busy: set[asyncio.Task[None]] = field(default_factory=set)
    _confirmations: ConfirmationLane = field(init=False)
    _is_confirming: bool = False
    _batches_first: bool = False  # confirmations had the only connection just now
    _bugs: list[BaseException] = field(default_factory=list)
    _beats: asyncio.Task[None] | None = None
    _held: Lease | None = None
    _held_until_s: float = 0.0
    _quiet: int = 0  # looks in a row that found nothing
    _confirm_at: float = 0.0  # when the confirmations are to be looked for again
    _owes_look: bool = False  # they were passed over just now
    _journals_at: float = 0.0
    _trouble_until: float = 0.0

    async def open(self) -> None:
        self.journals.open()
        for number in range(self.lanes):
            self._free.append(_Slot(self.transport.lane(), self.journals.lane(number)))
        self._confirmations = ConfirmationLane(self.sender, self.transport.lane())
        await self._beat(self.lease_s)
        self._beats = asyncio.create_task(self._keep_beating())

    async def step(self) -> bool:
        """Hand new items to free lanes; whether it is worth looking again at once."""
        if self._bugs:
            raise self._bugs[0]
        if self._beats and self._beats.done():
            self._beats.result()  # without it our right to send runs out unseen
        await self._look_after_journals()
        await self._leave_shares_unused()
        await self._tell_health()
        if not self._lanes_left() or not await self._has_turn():
            return False
        takes = [self._take_confirmations, self._take_batches]
        taken = 0
        for take in reversed(takes) if self._batches_first else takes:
            taken += await take()
        self._quiet = 0 if taken else self._quiet + 1
        return bool(taken)

    async def _take_confirmations(self) -> int:
        """How many items. Once a second will do while batches come and go."""
        now_s = self._now_s()
        self._owes_look = now_s < self._confirm_at and not self.is_idle
        self._batches_first = False
        if self._owes_look or self._is_confirming or not self._lanes_left():
            return 0
        claims = await self._confirmations.claim()
        self._confirm_at = now_s + (0 if claims else CONFIRM_EVERY_S)
        if claims:
            self._is_confirming = True
            self._go_on_beside(self._confirm(claims))
            await self._let_go_of_lines(slot.lane for slot in self._free)
        await self._wake(claims)
        return len(claims)

    async def _take_batches(self) -> int:
        room = min(self._lanes_left(), len(self._free), CLAIM_ITEMS_MAX)
        if not room:
            return 0
        claims = await self.storage.queues.claim(MAIL_QUEUE, limit=room, lease_s=self.claim_s)
        for claim in claims:  # at once: an item that no journal knows of hides for long if we die
            self._start(lambda slot, claim=claim: self._send(claim, slot))
        if claims and not self._is_confirming:
            await self._let_go_of_lines([self._confirmations])
        await self._wake(claims)
        return len(claims)

    async def rest_s(self) -> float:
        """Longer and longer while nothing comes; a lane that gets free rings the bell."""
        pause_s = self.breaker.pause_s(self._now_s())
        if not pause_s and self._owes_look:
            pause_s = max(0.0, self._confirm_at - self._now_s())
        if self.turns and self.turns.is_in_use:
            pause_s = pause_s or min(self.poll_s, POLL_FIRST_S)  # others share it, items come back
        return pause_s or min(self.poll_s, POLL_FIRST_S * 2 ** min(self._quiet, POLL_DOUBLINGS_MAX))

    @property
    def is_idle(self) -> bool:
        return len(self._free) == self.lanes and not self._is_confirming

    @property
    def has_recovered(self) -> bool:
        """What was given back for the last fault, or put off by a limit, has come back.

        Not when the breaker closes: the first item that works closes it, others are not back yet.
        """
        put_off_until = self.turns.put_off_until if self.turns else 0.0
        return self._now_s() > max(self._trouble_until, put_off_until)

    def stop_handing_over(self) -> None:
        """Planned stop: what is not on the wire yet stays queued."""
        self.sender.right.stopping = True

    async def close(self, grace_s: float) -> None:
        """Finish what is in hand; what does not end in time stays in the journal."""
        self.stop_handing_over()
        if self._busy:
            _, late = await asyncio.wait(self._busy, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._beats:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
        await self._close_lanes()
        if self.turns:
            await self.turns.shares.give_up()
        with contextlib.suppress(StorageError):  # then it runs out by itself
            if self._held:
                await leases.give_up(self.storage.tables, self._held)

    async def _close_lanes(self) -> None:
        for slot in self._free:
            await slot.lane.close()
            slot.journal.close()
        await self.transport.close()
        self.journals.close()

    # The right to send

    @property
    def _lease(self) -> str:
        return leases.sender_lease(self.sender.right.owner)

    async def _keep_beating(self) -> None:
        while True:
            await self.clock.sleep(self.lease_s / 3)
            if not self.is_idle:
                await self._try_to_beat(self.lease_s)
                await self._renew_shares()
            elif not self._has_long_lease():  # nobody waits for the death of who has nothing
                await self._try_to_beat(self.lease_s * IDLE_LEASES)

    async def _wake(self, claims: Sequence[Claim]) -> None:
        """Back to a short lease: if we die with an item in hand, others need not wait longer."""
        if claims and self._has_long_lease():
            await self._try_to_beat(self.lease_s)

    def _has_long_lease(self) -> bool:
        return self._held is not None and self._held_until_s > self._now_s() + self.lease_s

    async def _try_to_beat(self, lease_s: float) -> None:
        try:
            await self._beat(lease_s)
        except StorageError as error:
            log.warning("lease_not_renewed", error=type(error).__name__)

    async def _beat(self, lease_s: float) -> None:
        """Our own view of the lease ends a little earlier than everybody else's."""
        now_s, owner = self._now_s(), self.sender.right.owner
        self._held = await leases.hold(
            self.storage.tables,
            self._lease,
            owner,
            now=self.clock.now(),
            lease_s=lease_s,
            kept=self._held,
            troubles=self.storage.troubles,
            mail_trouble=self.health.trouble,
        )
        if self._held:
            self._held_until_s = now_s + lease_s
            self.sender.right.renewed(now_s, lease_s - self.lease_s / 3)

    # Limits

    @property
    def turns(self) -> Turns | None:
        return self.sender.turns

    async def _has_turn(self) -> bool:
        """Whether to take items; without a share we only look whether there are any."""
        turns = self.turns
        if turns and turns.shares.is_in_the_dark:
            await turns.ask()  # before anything is taken: a take counts
        if turns is None or not turns.is_limited:
            return True
        if turns.has_share:
            return True
        if await self._is_work_waiting():
            await turns.ask()
        else:
            self._quiet += 1
        return turns.has_share

    async def _is_work_waiting(self) -> bool:
        queues = self.storage.queues
        return bool(
            await queues.peek(MAIL_QUEUE, limit=1) or await queues.peek(SINGLE_MAIL_QUEUE, limit=1)
        )

    async def _leave_shares_unused(self) -> None:
        """What we do not use goes to the others; connections are closed before they are given."""
        if self.turns is None or not self.turns.is_limited:
            return
        is_done = self.is_idle and not self.turns.is_in_use
        if self.turns.has_spare_lines or (is_done and self.turns.lines_max is not None):
            for slot in self._free:
                await slot.lane.close()
            if not self._is_confirming:
                await self._confirmations.close()
        if is_done and self.turns.shares.holds_any:
            await self.turns.shares.give_up()

    async def _let_go_of_lines(self, idle: Iterable[Lane | ConfirmationLane]) -> None:
        """For those that start now, if we have as many connections as we may."""
        if self.turns and not self.turns.has_free_line:
            for lane in idle:
                await lane.close()

    async def _renew_shares(self) -> None:
        if self.turns:
            self.turns.want()
            await self.turns.shares.keep()

    # Lanes

    def _lanes_left(self) -> int:
        """How many more lanes may be used now; that of the confirmations is one of them."""
        if not self.sender.right.holds() or self.breaker.pause_s(self._now_s()):
            return 0
        return max(0, self._lanes_allowed() - self._lanes_in_use())

    def _lanes_in_use(self) -> int:
        return self.lanes - len(self._free) + self._is_confirming

    def _is_short_of_lanes(self) -> bool:
        """Confirmations and batches take turns."""
        return self._lanes_allowed() <= self.lanes

    def _lanes_allowed(self) -> int:
        lanes = self.breaker.lanes(self.lanes + 1)
        lines = self.turns.lines_max if self.turns and self.turns.has_share else None
        return lanes if lines is None else min(lanes, lines)

    def _start(self, work: Any) -> None:
        slot = self._free.pop()
        self._go_on_beside(self._in_lane(work(slot), slot))

    def _go_on_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _in_lane(self, work: Coroutine[Any, Any, None], slot: _Slot) -> None:
        if await self._is_done(work):
            if self.turns:
                self.turns.end(slot.lane, ())  # also where it never came to sending
            self._free.append(slot)
        self.wakeup.ring()

    async def _is_done(self, work: Coroutine[Any, Any, None]) -> bool:
        """False if the process has to end."""
        try:
            await work
        except StorageError as error:  # nothing was announced: the item comes back by itself
            log.warning("item_left", error=type(error).__name__, words=str(error)[:200])
        except Exception as bug:  # noqa: BLE001 - ends the process; the journal page must stay
            self._bugs.append(bug)
            return False
        return True

    async def _send(self, claim: Claim, slot: _Slot) -> None:
        handled = await self.sender.handle(claim, slot.lane, slot.journal)
        match handled:
            case Handled.FAULT:
                self._fault()
            case Handled.DONE | Handled.LATER:
                self.breaker.worked()
            case Handled.UNREADABLE:
                log.error("item_unreadable", item=claim.body.split(",")[1:2], taken=claim.taken)
            case _:
                log.debug("item_" + handled.value)

    async def _confirm(self, claims: list[Claim]) -> None:
        """One slice after the other, for as long as there are any."""
        if await self._is_done(self._mail_confirmations(claims)):
            self._confirmations.rest()
            self._is_confirming = False
            self._batches_first = self._is_short_of_lanes()
        self.wakeup.ring()

    async def _mail_confirmations(self, claims: list[Claim]) -> None:
        while claims:
            outcomes = await self._confirmations.mail(claims)
            if any(map(is_fault, outcomes)):
                self._fault()
            elif any(isinstance(outcome, Sent) for outcome in outcomes):
                self.breaker.worked()
            may_go_on = self.sender.right.holds() and not self._is_short_of_lanes()
            may_go_on = may_go_on and await self._has_turn()
            claims = await self._confirmations.claim() if may_go_on else []

    def _fault(self) -> None:
        now_s = self._now_s()
        trouble = self.health.failed(self.breaker, self.clock.now(), now_s, FAULT_DELAY_S)
        pause_s = self.breaker.pause_s(now_s)
        self._trouble_until = now_s + pause_s + FAULT_DELAY_S
        log.warning("provider_in_trouble", pause_s=round(pause_s, 1), **trouble.log_fields())

    async def _tell_health(self) -> None:
        """Write what is wrong with the mail server, for people; at most once for each try."""
        if not self.breaker.faults and (was := self.health.worked()):
            log.info("provider_recovered", **was.log_fields())
        if self._held and self._held.mail_trouble != self.health.trouble:
            longer = IDLE_LEASES if self._has_long_lease() else 1
            await self._try_to_beat(self.lease_s * longer)

    # Journals of the dead

    async def _look_after_journals(self) -> None:
        """Batches of senders that died on this machine are settled at once."""
        now_s = self._now_s()
        if now_s < self._journals_at:
            return
        self._journals_at = now_s + JOURNALS_EVERY_S
        self.journals.clear_unborn()
        for owner in self.journals.dead_owners():
            await self._settle_journal(owner)

    async def _settle_journal(self, owner: str) -> None:
        pages = list(self.journals.pages(owner))
        settled = [await self._settle_page(owner, *page) for page in pages]
        if all(settled):
            self.journals.forget(owner)
            log.info("sender_died", owner=owner, batches_in_hand=len(pages))

    async def _settle_page(self, owner: str, ref: str, batch: int) -> bool:
        try:
            await self.sender.settle_for(owner, ref, batch)
        except Unreadable as error:  # of a newer version, which will settle it
            log.error("journal_kept", owner=owner, ref=ref, error=str(error)[:200])
            return False
        return True

    def _now_s(self) -> float:
        """Seconds that no setting of the clock changes."""
        return self.clock.monotonic()
