"""The sender role: claims work items and gives them to its lanes.

Planned stop: no more items are claimed, replies for mails on the wire are awaited, the rest of a
slice goes back untried, and everything is recorded, so nothing is in doubt. Killed: the next sender
on the machine reads our journal; on other machines the announcements decide once our lease expires.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field

import structlog

from postroom import spans
from postroom.actions.send_test_mail import mail_test
from postroom.clock import Clock
from postroom.domain.breaker import Breaker, MailHealth
from postroom.domain.instance import Vitals
from postroom.domain.outcome import Sent, is_fault
from postroom.domain.retry import RetryRules
from postroom.flow.confirm import Confirmer
from postroom.flow.render import Renderer
from postroom.flow.send import FAULT_DELAY_S, BatchSender, ItemResult
from postroom.pacing.pacer import Pacer
from postroom.pacing.transport import PacedTransport
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.records.suppression_filter import SuppressionFilter
from postroom.sending.journal import FileJournal, FileJournals
from postroom.sending.lane_pool import LanePool
from postroom.sending.lease import SendingLease
from postroom.sending.recovery import BatchSettler, JournalRecovery
from postroom.sending.single_mails import SingleMailLane
from postroom.storage.port import CLAIM_ITEMS_MAX, Claim, Storage
from postroom.transport.port import Lane, Transport
from postroom.wakeup import WakeUpListener

log = structlog.get_logger("sender")
SINGLE_MAILS_EVERY_S = 1.0
POLL_FIRST_S = 1.0
POLL_DOUBLINGS_MAX = 10
HELD_BACK_S = 10.0  # after a limit or a full disk let nothing go


@dataclass
class Sender:
    """One iteration is `step`; worker.py has the loop around it."""

    storage: Storage
    clock: Clock
    lease: SendingLease
    pacer: Pacer
    recovery: JournalRecovery
    batch_sender: BatchSender
    single_mails: SingleMailLane
    lanes: LanePool
    wakeup: WakeUpListener
    health: MailHealth
    rules: RetryRules  # shared by the parts that retry
    claim_s: float
    poll_s: float  # longest pause between two polls of the queues
    breaker: Breaker = field(default_factory=Breaker)
    _renewing: asyncio.Task[None] | None = None
    _is_mailing_singles: bool = False
    _batches_first: bool = False  # single mails had the only connection just now
    _singles_at_s: float = 0.0  # when to poll for single mails again
    _singles_passed_over: bool = False  # it was too early to poll for them just now
    _empty_polls: int = 0  # in a row
    _trouble_until_s: float = 0.0

    async def open(self) -> None:
        self.lanes.open()
        await self.lease.take()
        self._renewing = asyncio.create_task(self._keep_renewing())

    async def step(self) -> bool:
        """Give waiting items to free lanes; return whether to poll again at once."""
        self.lanes.raise_bug()
        if self._renewing and self._renewing.done():
            self._renewing.result()  # raises: nothing is sent without renewals
        await self.recovery.settle_dead_senders()
        await self._give_back_unused_quotas()
        if not self.breaker.faults and (trouble := self.health.worked()):
            log.info("provider_recovered", **trouble.log_fields())
        await self.lease.publish_health()
        if not self._lanes_left() or not await self._has_quota():
            return False
        claims = [self._claim_single_mails, self._claim_batches]
        if self._batches_first:
            claims.reverse()
        found = [await claim() for claim in claims]
        self._empty_polls = 0 if any(found) else self._empty_polls + 1
        return any(found)

    async def rest_s(self) -> float:
        """How long to pause: longer and longer while nothing arrives. A free lane wakes us up."""
        now_s = self.clock.monotonic()
        pause_s = self.breaker.pause_s(now_s)
        if not pause_s and self._singles_passed_over:
            pause_s = max(0.0, self._singles_at_s - now_s)
        if self.pacer.is_in_use:  # other senders share the limits, and deferred items come back
            pause_s = pause_s or min(self.poll_s, POLL_FIRST_S)
        longest_s = POLL_FIRST_S * 2 ** min(self._empty_polls, POLL_DOUBLINGS_MAX)
        return pause_s or min(self.poll_s, longest_s)

    @property
    def is_idle(self) -> bool:
        return self.lanes.free == self.lanes.size and not self._is_mailing_singles

    def vitals(self) -> Vitals:
        """What this sender reports with its heartbeats."""
        now_s = self.clock.monotonic()
        full_s = self.clock.now().timestamp() - self.storage.troubles.full_at
        is_limited = now_s < self.pacer.held_back_at + HELD_BACK_S
        return Vitals(
            done=sum(self.health.mails.values()),
            busy=self.lanes.size - self.lanes.free + self._is_mailing_singles,
            is_held_back=bool(self.breaker.faults) or is_limited or full_s < HELD_BACK_S,
        )

    @property
    def has_recovered(self) -> bool:
        """Whether items given back for a fault, or deferred by a limit, are due again.

        A closed breaker does not show it: the first item that works closes it.
        """
        return self.clock.monotonic() > max(self._trouble_until_s, self.pacer.deferred_until)

    def stop_handing_over(self) -> None:
        """Begin a planned stop: mails that are not on the wire yet stay queued."""
        self.lease.stop()

    async def close(self, grace_s: float) -> None:
        """Finish work in progress; anything that does not end in time stays in the journal."""
        self.stop_handing_over()
        await self.lanes.finish(grace_s)
        if self._renewing:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self.lanes.close()
        await self.pacer.release()
        await self.lease.release()

    async def _keep_renewing(self) -> None:
        while True:
            await self.clock.sleep(self.lease.lease_s / 3)
            await self.lease.renew(is_idle=self.is_idle)
            if not self.is_idle:
                await self.pacer.keep_alive()

    async def _give_back_unused_quotas(self) -> None:
        """Close connections, and give other senders the quota we do not use."""
        if self.pacer.has_excess_connections:
            await self.lanes.close_idle()
            if not self._is_mailing_singles:
                await self.single_mails.close()
        if self.is_idle and not self.pacer.is_in_use:
            await self.pacer.release()

    def _note_fault(self) -> None:
        now_s = self.clock.monotonic()
        trouble = self.health.failed(self.breaker, self.clock.now(), now_s, FAULT_DELAY_S)
        pause_s = self.breaker.pause_s(now_s)
        self._trouble_until_s = now_s + pause_s + FAULT_DELAY_S
        log.warning("provider_in_trouble", pause_s=round(pause_s, 1), **trouble.log_fields())

    async def _has_quota(self) -> bool:
        """Whether the limits let us send; asks for a quota if there is work."""
        if self.pacer.limits_unknown:
            await self.pacer.keep_alive(must_know=True)  # before items are claimed: a claim counts
        if self.pacer.lanes_max == 0:
            peek = self.storage.queues.peek
            if await peek(MAIL_QUEUE, limit=1) or await peek(SINGLE_MAIL_QUEUE, limit=1):
                await self.pacer.keep_alive(must_know=True)
            else:
                self._empty_polls += 1
        return self.pacer.lanes_max != 0

    def _lanes_allowed(self) -> int:
        lanes = self.breaker.lanes(self.lanes.size + 1)
        return min(lanes, self.pacer.lanes_max or lanes)

    def _lanes_left(self) -> int:
        """How many more lanes may be used now; the one for single mails is one of them."""
        if not self.lease.is_held() or self.breaker.pause_s(self.clock.monotonic()):
            return 0
        in_use = self.lanes.size - self.lanes.free + self._is_mailing_singles
        return max(0, self._lanes_allowed() - in_use)

    def _is_short_of_lanes(self) -> bool:
        """Whether single mails and batches have to alternate."""
        return self._lanes_allowed() <= self.lanes.size

    async def _claim_single_mails(self) -> bool:
        """Claim single mails, at most once a second while batches come and go."""
        now_s = self.clock.monotonic()
        self._singles_passed_over = now_s < self._singles_at_s and not self.is_idle
        self._batches_first = False
        if self._singles_passed_over or self._is_mailing_singles or not self._lanes_left():
            return False
        claims = await self.single_mails.claim()
        self._singles_at_s = now_s + (0 if claims else SINGLE_MAILS_EVERY_S)
        if claims:
            self._is_mailing_singles = True
            self.lanes.run(self._mail_singles(claims), self._end_singles)
            await self.lease.shorten()
        return bool(claims)

    async def _claim_batches(self) -> bool:
        room = min(self._lanes_left(), self.lanes.free, CLAIM_ITEMS_MAX)
        if not room:
            return False
        claims = await self.storage.queues.claim(MAIL_QUEUE, limit=room, lease_s=self.claim_s)
        for claim in claims:  # at once: an item that is in no journal stays hidden long if we die
            self.lanes.start(functools.partial(self._send, claim))
        if claims:
            await self.lease.shorten()
        return bool(claims)

    async def _send(self, claim: Claim, lane: Lane, journal: FileJournal) -> None:
        with spans.span("send batch") as added:
            handled = await self.batch_sender.handle(claim, lane, journal)
            added["postroom.handled"] = handled.value
        match handled:
            case ItemResult.FAULT:
                self._note_fault()
            case ItemResult.DONE | ItemResult.LATER:
                self.breaker.worked()
            case ItemResult.UNREADABLE:
                log.error("item_unreadable", item=claim.body.split(",")[1:2], taken=claim.taken)
            case _:
                log.debug("item_" + handled.value)

    async def _mail_singles(self, claims: list[Claim]) -> None:
        """One slice after the other, as long as there are any."""
        while claims:
            outcomes = await self.single_mails.mail(claims)
            if any(map(is_fault, outcomes)):
                self._note_fault()
            elif any(isinstance(outcome, Sent) for outcome in outcomes):
                self.breaker.worked()
            may_go_on = self.lease.is_held() and not self._is_short_of_lanes()
            may_go_on = may_go_on and await self._has_quota()
            claims = await self.single_mails.claim() if may_go_on else []

    def _end_singles(self) -> None:
        self._is_mailing_singles = False
        self._batches_first = self._is_short_of_lanes()


def build_sender(
    storage: Storage,
    clock: Clock,
    owner: str,
    transport: Transport,
    journals: FileJournals,
    renderer: Renderer,
    wakeup: WakeUpListener,
    *,
    rules: RetryRules,
    lanes: int,
    slice_size: int,
    lease_s: float,
    claim_s: float,
    health: MailHealth,
    poll_s: float = 1.0,
) -> Sender:
    """A sender with all its parts."""
    lease = SendingLease(storage, clock, owner, lease_s=lease_s, health=health)
    pacer = Pacer(storage.tables, clock, owner, lanes=lanes, lease_s=lease_s)
    paced = PacedTransport(transport, pacer, clock)
    secret = renderer.site.secret
    settler = BatchSettler(storage, clock, owner, journals, rules, secret)
    suppressions = SuppressionFilter(storage, clock, secret)
    confirmer = Confirmer(storage, clock, renderer, rules, suppressions)
    mail_one_test = functools.partial(
        mail_test, storage, renderer, clock, suppressions=suppressions
    )
    return Sender(
        storage,
        clock,
        lease,
        pacer,
        JournalRecovery(settler, journals, clock),
        BatchSender(
            storage, clock, lease, settler, renderer, pacer, rules, slice_size, suppressions
        ),
        SingleMailLane(storage, clock, lease, pacer, paced.lane(), confirmer.mail, mail_one_test),
        LanePool(paced, journals, wakeup, lanes=lanes),
        wakeup,
        health,
        rules=rules,
        claim_s=claim_s,
        poll_s=poll_s,
    )
