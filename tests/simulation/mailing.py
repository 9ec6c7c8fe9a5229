"""One mailing in the simulated world, and the accounting: lost, unexpected, twice, in doubt."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from postroom.actions import control_message
from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.domain.errors import PostroomError
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, OnDoubt, Status
from postroom.domain.retry import RetryRules
from postroom.flow import fan_out, report, subscribe
from postroom.flow.compose import Draft, compose
from postroom.flow.send import BatchSender
from postroom.intervals import LOCAL
from postroom.records import archive, batches, leases, lists, messages, subscribers
from postroom.records.names import MAIL_QUEUE
from postroom.scheduler import Scheduler
from postroom.sending.lease import SendingLease
from postroom.sending.recovery import BatchSettler
from postroom.storage.port import Claim, StorageError
from tests.acting import acting
from tests.no_limits import NoLimits
from tests.simulation.post import SENDER, SITE, Journal, Journals, Lane, Looks, OneMessage, Post
from tests.simulation.smtp_lane import SmtpLane
from tests.simulation.world import (
    START,
    Clock,
    Disk,
    Faults,
    SetClock,
    Storage,
    Turn,
    World,
    instantly,
)

LEASE_S = 30.0
# After so many I/Os nothing bad happens any more. A short storm hits composing and fan-out, and is
# over before most mails are sent; only in a long one do senders die with mails on the wire.
STORMS_IOS = (400, 1500)
NEVER_S = 1e9  # the path must settle without sweeping
INTERVALS = replace(LOCAL, lease_s=LEASE_S, report_s=0.0, sweep_s=NEVER_S, tidy_s=NEVER_S)
LIST = "contoso1"
LANES = 2
MODULES_WITH_SIZES = (fan_out, batches, report)


@contextlib.contextmanager
def small_sizes() -> Iterator[None]:
    """Batches of two in groups of two, so that a handful of people crosses every boundary."""
    before = [(m, n, getattr(m, n)) for m in MODULES_WITH_SIZES for n in _SIZES if hasattr(m, n)]
    for module, name, _ in before:
        setattr(module, name, _SIZES[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


_SIZES = {"BATCH_DELIVERIES_MAX": 2, "GROUP_BATCHES": 2, "PAGE_BATCHES": 2}


class Mailing:
    """People, a message, a scheduler (or two), two senders, and somebody who meddles."""

    doubt_s = 0.0  # how long deliveries in doubt wait for a report

    def __init__(
        self,
        seed: int,
        *,
        on_doubt: OnDoubt,
        faults: Faults,
        people: int = 5,
        meddle: bool = False,
        trouble: float = 0.0,
        closing: float = 0.0,
        machines_burn: float = 0.0,
        schedulers: int = 1,
        disk: Callable[[Clock], Disk] | None = None,
    ) -> None:
        self.world = World(seed, faults, disk)
        self.post = Post(self.world, trouble=trouble, closing=closing)
        self.on_doubt = on_doubt
        self.machines_burn = machines_burn
        self.journals = Journals()
        self.incarnations: Counter[str] = Counter()
        self.owners: dict[str, str] = {}
        self.meddle = meddle
        self.schedulers = schedulers
        self.left: set[str] = set()
        self.on_the_wire = 0  # when their senders died
        self.slice_size = self.world.rng.choice([1, 2])
        self.items_ahead = 1 if seed % 3 else 32
        self.storm_ios = STORMS_IOS[seed // 8 % 2]  # both in every weather of weather_of
        self.cancelled = False
        self.decisions = 0  # how often somebody had the held sent again
        self.is_over = not meddle
        self.ref = ""
        self.claim_s = self.world.rng.choice([3.0, 60.0])  # short ones lapse under work in hand
        self.only_crashes = not (faults.stall or faults.fail or trouble or machines_burn)
        self._audited: tuple[int, Message] | None = None
        self.final: Message
        self.first = [f"p{number}@contoso.edu" for number in range(people)]
        if trouble:
            self.first += [f"perm-fail{number}@contoso.edu" for number in range(3)]
        self.known = set(self.first)
        instantly(self._set_up())
        self.world.on_crash = self._bury

    async def _set_up(self) -> None:
        disk = self.world.disk
        mailing_list = MailingList(name=LIST, description="News", sender=SENDER, created_at=START)
        await lists.create(disk.tables, mailing_list)
        for address in self.first:
            await subscribe.add(
                acting(disk, START), LIST, parse_address(address), {}, verified=True
            )

    async def _compose(self) -> None:
        """While the scheduler is looking: it must not stumble over a message half made."""
        now = self._now()
        draft = Draft(
            list_name=LIST, subject="News", text="Hello", due_at=now, on_doubt=self.on_doubt
        )
        self.ref = (await compose(acting(self.world.slow_storage(), now), draft)).ref

    def _now(self) -> datetime:
        """By the clock of those who meddle, which may be set at any time, too."""
        self.world.maybe_step("people")
        return self.world.clock_of("people").now()

    def run(self, calm_after: int | None = None) -> None:
        calm_after = calm_after or self.storm_ios
        self.world.run(self._processes(), self._is_settled, calm_after=calm_after)
        self._check()

    def _processes(self) -> dict[str, Callable[[], list[Coroutine[Any, Any, None]]]]:
        processes = {
            f"scheduler-{number}": self._scheduler(f"scheduler-{number}")
            for number in range(self.schedulers)
        }
        processes |= {name: self._sender(name) for name in ("sender-1", "sender-2")}
        return processes | {"people": self._people}

    # The processes

    def _scheduler(self, name: str) -> Callable[[], list[Coroutine[Any, Any, None]]]:
        def start() -> list[Coroutine[Any, Any, None]]:
            self.incarnations[name] += 1
            scheduler = Scheduler(
                self.world.storage(),
                self.world.clock_of(name),
                f"{name}.{self.incarnations[name]}",
                intervals=INTERVALS,
                items_ahead=self.items_ahead,
            )

            async def loop() -> None:
                while True:
                    with contextlib.suppress(StorageError):
                        await scheduler.step()
                    await Turn()

            return [loop()]

        return start

    def _sender(self, name: str) -> Callable[[], list[Coroutine[Any, Any, None]]]:
        def start() -> list[Coroutine[Any, Any, None]]:
            self.incarnations[name] += 1
            owner = f"{name}.{self.incarnations[name]}"
            self.owners[name] = owner
            self.journals.alive.add(owner)
            storage = self._storage_that_notes()
            clock = self.world.clock_of(name)
            rules = RetryRules(5, 20, window_s=100_000, doubt_s=self.doubt_s, chance=lambda: 0.5)
            lease = SendingLease(storage, clock, owner)
            sender = BatchSender(
                storage,
                clock,
                lease,
                BatchSettler(storage, clock, owner, self.journals, rules, SITE.secret),
                OneMessage(clock),
                NoLimits(clock),
                rules,
                self.slice_size,
            )
            return [
                self._beat(storage, lease, clock),
                *(self._lane(storage, sender, number) for number in range(LANES)),
            ]

        return start

    def _storage_that_notes(self) -> Storage:
        storage = self.world.storage()

        def note() -> None:
            self.post.checked_at[self.world.lane] = self.world.ios

        storage.tables = Looks(storage.tables, note)
        return storage

    async def _beat(self, storage: Storage, own: SendingLease, clock: SetClock) -> None:
        while True:
            now_s = clock.monotonic()
            name = leases.sender_lease(own.owner)
            with contextlib.suppress(StorageError):
                lease = await leases.hold(
                    storage.tables, name, own.owner, now=clock.now(), lease_s=LEASE_S
                )
                if lease:
                    own.renewed(now_s, LEASE_S * 2 / 3)
            await self.world.clock.sleep(LEASE_S / 3)

    async def _lane(self, storage: Storage, sender: BatchSender, number: int) -> None:
        journal = Journal(self.journals, sender.lease.owner, number)
        lane = SmtpLane(self.post) if self.post.closing else Lane(self.post)
        while True:
            with contextlib.suppress(StorageError):
                for claim in await self._claims(storage, sender):
                    await sender.handle(claim, lane, journal)
            await Turn()

    async def _claims(self, storage: Storage, sender: BatchSender) -> list[Claim]:
        if not sender.lease.is_held():
            return []
        return await storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=self.claim_s)

    def _people(self) -> list[Coroutine[Any, Any, None]]:
        return [self._live()]

    async def _live(self) -> None:
        await self._compose()
        if self.meddle:
            await self._meddle()

    async def _meddle(self) -> None:
        """Unsubscribes, sign-ups, pausing, retrying, deciding, now and then a cancellation."""
        rng = self.world.rng
        for _ in range(rng.randrange(2, 7)):
            for _ in range(rng.randrange(60)):
                await Turn()
            act = rng.choice(["leave", "join", "pause", "cancel", "retry", "retry", "decide"])
            with contextlib.suppress(StorageError, PostroomError):
                await self._act(act)
        await self._resume_at_last()

    async def _act(self, act: str) -> None:
        tables, rng = self.world.calm_storage().tables, self.world.rng
        if act == "leave":
            await self._somebody_leaves()
        elif act == "join":
            await self._somebody_joins()
        elif act == "pause":
            await control_message.pause(tables, self.ref)
            for _ in range(rng.randrange(100)):
                await Turn()
        elif act == "retry":
            await control_message.retry_failed(tables, self.ref, self._now())
        elif act == "decide":
            self.decisions += 1
            await control_message.decide_held(tables, self.ref, send_again=True, now=self._now())
        elif rng.random() < 0.2:
            self.cancelled = True
            await control_message.cancel(tables, self.ref, self._now())

    async def _somebody_leaves(self) -> None:
        address = self.world.rng.choice(self.first)
        found = instantly(self._find(address))
        if found:
            self.left.add(address)
            tables = self.world.calm_storage().tables
            await subscribe.leave(acting(tables, self._now()), LIST, found)
            self.post.left_at[address] = self.world.ios

    async def _find(self, address: str) -> str | None:
        key = parse_address(address).storage_key
        found = await subscribers.find(self.world.disk.tables, LIST, key)
        return found[0].guid if found and not found[0].inactive_reason else None

    async def _somebody_joins(self) -> None:
        address = f"{self.world.rng.choice('abqz')}{len(self.known)}@contoso.edu"
        self.known.add(address)
        now = self._now()
        await self.world.calm_io(
            lambda: subscribe.add(
                acting(self.world.disk, now), LIST, parse_address(address), {}, verified=True
            )
        )

    async def _resume_at_last(self) -> None:
        while True:
            self.is_over = True
            found = instantly(messages.find_live(self.world.disk.tables, self.ref))
            if found and found[0].status is Status.PAUSED:
                with contextlib.suppress(StorageError, PostroomError):
                    await control_message.resume(self.world.disk.tables, self.ref)
            await Turn()

    def _bury(self, process: str) -> None:
        owner = self.owners.get(process)
        if owner:
            pages = self.journals.kept.get(owner, {}).values()
            self.on_the_wire += sum(len(page.handed - set(page.answered)) for page in pages)
            self.journals.alive.discard(owner)
            if self.world.rng.random() < self.machines_burn:
                self.journals.kept.pop(owner, None)

    # The accounting

    def _is_settled(self) -> bool:
        message = self._audited_message() if self.ref else None
        if message is None or message.completed_at is None or not self.is_over:
            return False
        is_idle = instantly(self.world.disk.queues.length(MAIL_QUEUE)) == 0
        archived = instantly(messages.find_live(self.world.disk.tables, self.ref)) is None
        return is_idle and (archived or message.books.held > 0)

    def _audited_message(self) -> Message:
        """As audited after the last write: processes look around far more often than they write."""
        writes = self.world.writes()
        if writes is None:
            return self._audit()
        if self._audited is None or self._audited[0] != writes:
            self._audited = writes, self._audit()
        return self._audited[1]

    def _audit(self) -> Message:
        """The books balance at every moment, not only at the end."""
        tables = self.world.disk.tables
        found = instantly(messages.find_live(tables, self.ref))
        if found is None:
            return instantly(messages.read(tables, self.ref))
        message = found[0]
        counted = instantly(report.books_of(tables, message))
        assert counted.books.total == message.audience, "the books do not balance"
        return counted

    def _check(self) -> None:
        arrived = self.post.arrived
        message = self.final = instantly(messages.read(self.world.disk.tables, self.ref))
        fates = self._fates()
        books = message.books
        assert books.total == message.audience == len(fates), (books, fates)
        owed = set(self.first) - self.left - self.post.refused
        if not self.cancelled:
            lost = [one for one in owed if not arrived[one] and fates.get(one) != State.HELD]
            assert not lost, f"lost {lost}: {fates}"
        assert set(arrived) <= self.known, "somebody unexpected was mailed"
        self._check_fates(fates)
        extra = sum(count - 1 for count in arrived.values() if count > 1)
        if self.on_doubt is OnDoubt.HOLD:  # one copy, and one more for each decision
            assert max(arrived.values(), default=0) <= 1 + self.decisions, f"sent twice: {arrived}"
        assert extra <= books.doubts, f"{extra} extra copies, {books.doubts} doubts"
        if self.only_crashes:  # the journal tells the rest
            assert books.doubts <= self.on_the_wire, f"{books.doubts} doubts, without a reason"

    def _check_fates(self, fates: dict[str, State]) -> None:
        for address, state in fates.items():
            if state is State.SENT:
                assert self.post.arrived[address], f"{address} is down as sent, and was not"
            if state is State.FAILED:
                assert address in self.post.refused, f"{address} failed without a refusal"
            if state is State.SKIPPED:
                assert address in self.left or self.cancelled, f"{address} was skipped"

    def _fates(self) -> dict[str, State]:
        """Everybody's fate, by archive row or, for the held, by ledger."""

        async def collect() -> dict[str, State]:
            fates: dict[str, State] = {}
            message = await messages.read(self.world.disk.tables, self.ref)
            for batch in range(message.batches):
                for address, state in await self._fates_in(batch):
                    assert address not in fates, "in two batches"
                    fates[address] = state
            return fates

        return instantly(collect())

    async def _fates_in(self, batch: int) -> list[tuple[str, State]]:
        tables = self.world.disk.tables
        found = await batches.find_ledger(tables, self.ref, batch)
        held = set(found[0].positions(State.HELD)) if found else set()
        rows = await batches.load_deliveries(tables, self.ref, batch) if held else {}
        ended = [
            (old.delivery.address, old.ended.state)
            async for old in archive.load(tables, self.ref, batch)
            if old.delivery.position not in held
        ]
        return ended + [(rows[at].address, State.HELD) for at in held]
