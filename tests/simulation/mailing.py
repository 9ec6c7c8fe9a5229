"""One mailing in the simulated world, and the accounting: lost, unexpected, twice, in doubt."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.simulation.world import START, Clock, Faults, Storage, Turn, World, instantly

from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.delivery import Recollection, State, StillAlive
from postroom.domain.errors import PostroomError
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, OnDoubt, Status
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.domain.retry import RetryRules
from postroom.flow import fan_out, report, steer, subscribe
from postroom.flow.compose import Draft, compose
from postroom.flow.render import CompiledMessage, Renderer, Site
from postroom.flow.send import Right, Sender, sender_lease
from postroom.mail.mime import MailParts, compile_mail
from postroom.records import archive, batches, leases, lists, messages, subscribers
from postroom.scheduler import Scheduler
from postroom.storage.port import StorageError
from postroom.transport.port import Mail, Watch

LEASE_S = 30.0
LIST = "contoso1"
SENDER = "donotreply@contoso.edu"
SITE = Site("https://post.contoso.edu", "a secret")
COMPILED = compile_mail(MailParts(sender=parse_mailbox(SENDER), subject="News", text="Hello"))
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


_SIZES = {"BATCH_DELIVERIES_MAX": 2, "GROUP_BATCHES": 2, "PAGE_BATCHES": 2, "PAGE_PEOPLE": 4}


class Journals:
    """The ack journals of one machine; a machine that burns down takes them with it."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.kept: dict[str, dict[tuple[str, int], tuple[set[int], dict[int, Outcome]]]] = {}

    def recall(self, owner: str, ref: str, batch: int) -> Recollection | StillAlive | None:
        if owner in self.alive:
            return StillAlive()
        if owner not in self.kept:
            return None
        handed, answered = self.kept[owner].get((ref, batch), (set(), {}))
        return Recollection(frozenset(handed), dict(answered), whole=True)


class Journal:
    def __init__(self, journals: Journals, owner: str) -> None:
        self._pages = journals.kept.setdefault(owner, {})
        self._page: tuple[set[int], dict[int, Outcome]] = (set(), {})
        self._key: tuple[str, int] | None = None

    def begin(self, ref: str, batch: int) -> None:
        self._key = (ref, batch)
        self._page = self._pages[ref, batch] = (set(), {})

    def handing_over(self, positions: Sequence[int]) -> None:
        self._page[0].update(positions)

    def answered(self, position: int, outcome: Outcome) -> None:
        self._page[1][position] = outcome

    def end(self) -> None:
        if self._key:
            self._pages.pop(self._key, None)


class OneMessage(Renderer):
    """The real mails of a message compiled once for all runs."""

    def __init__(self, clock: Clock) -> None:
        self._sim_clock = clock

    async def compiled(self, message: Message) -> CompiledMessage:
        return CompiledMessage(message, COMPILED, parse_address(SENDER), SITE, self._sim_clock)


@dataclass
class Post:
    """The world's mail server: what arrived, and what it refuses."""

    world: World
    arrived: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    checked_at: dict[str, int] = field(default_factory=dict)  # process: I/O of its last look
    left_at: dict[str, int] = field(default_factory=dict)  # address: I/O when it had left
    trouble: float = 0.0

    async def hand_over(self, process: str, address: str) -> Outcome:
        world = self.world
        dice = world.rng.random() if self.trouble else 1.0
        if dice < self.trouble * 0.3:
            return await world.io(lambda: self._deliver(process, address, then=Unknown("broke")))
        if dice < self.trouble * 0.6:
            return await world.io(lambda: self._say(Unknown("broke before it")))
        if dice < self.trouble:
            return await world.io(lambda: self._say(Deferred("451 4.2.0 later", Scope.ADDRESS)))
        if address.startswith("perm-fail"):
            self.refused.add(address)
            return await world.io(lambda: self._say(Rejected("550 5.1.1 unknown")))
        return await world.io(lambda: self._deliver(process, address, then=Sent("250 2.0.0 ok")))

    async def _say(self, outcome: Outcome) -> Outcome:
        return outcome

    async def _deliver(self, process: str, address: str, then: Outcome) -> Outcome:
        self.arrived[address] += 1
        left_at = self.left_at.get(address)
        looked_at = self.checked_at.get(process, 0)
        if left_at is not None and left_at < looked_at:
            raise AssertionError(f"{address} left before the sender looked, and was mailed")
        return then


class Lane:
    def __init__(self, post: Post, process: str) -> None:
        self._post = post
        self._process = process

    async def send(self, mails: Sequence[Mail], watch: Watch) -> list[Outcome]:
        return [await self._send_one(mail, watch) for mail in mails]

    async def _send_one(self, mail: Mail, watch: Watch) -> Outcome:
        if not watch.may_hand_over():
            return Untried("stopping")
        if self._post.trouble and self._post.world.rng.random() < self._post.trouble * 0.2:
            return Deferred("cannot connect", Scope.PROVIDER)
        watch.handing_over([mail.position])
        outcome: Outcome = Unknown("the line failed")
        with contextlib.suppress(StorageError):  # a simulated failure of this I/O is a broken line
            outcome = await self._post.hand_over(self._process, mail.recipient)
        watch.answered(mail.position, outcome)
        return outcome

    async def close(self) -> None:
        return


class _Looks:
    """Notes when a sender last looked who had left (what promise 4 is measured from)."""

    def __init__(self, inner: Any, note: Callable[[], None]) -> None:
        self._inner = inner
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def scan(self, table: str, keys: Any, **options: Any) -> Any:
        if table == "mailinglist" and getattr(keys, "start", "").startswith("left:"):
            self._note()
        return await self._inner.scan(table, keys, **options)


class Mailing:
    """People, a message, a scheduler (or two), two senders, and somebody who meddles."""

    def __init__(
        self,
        seed: int,
        *,
        on_doubt: OnDoubt,
        faults: Faults,
        people: int = 5,
        meddle: bool = False,
        trouble: float = 0.0,
        machines_burn: float = 0.0,
        schedulers: int = 1,
    ) -> None:
        self.world = World(seed, faults)
        self.post = Post(self.world, trouble=trouble)
        self.on_doubt = on_doubt
        self.machines_burn = machines_burn
        self.journals = Journals()
        self.incarnations: Counter[str] = Counter()
        self.owners: dict[str, str] = {}
        self.meddle = meddle
        self.schedulers = schedulers
        self.left: set[str] = set()
        self.cancelled = False
        self.claim_s = self.world.rng.choice([3.0, 60.0])  # short ones lapse under work in hand
        self.only_crashes = not (faults.stall or faults.fail or trouble or machines_burn)
        self.audits = 0
        self.final: Message
        self.first = [f"p{number}@contoso.edu" for number in range(people)]
        if trouble:
            self.first.append("perm-fail@contoso.edu")
        self.known = set(self.first)
        self.ref = instantly(self._set_up())
        self.world.on_crash = self._bury

    async def _set_up(self) -> str:
        disk = self.world.disk
        mailing_list = MailingList(name=LIST, description="News", sender=SENDER, created_at=START)
        await lists.create(disk.tables, mailing_list)
        for address in self.first:
            await subscribe.add(
                disk.tables, LIST, parse_address(address), {}, verified=True, now=START
            )
        draft = Draft(
            list_name=LIST, subject="News", text="Hello", due_at=START, on_doubt=self.on_doubt
        )
        return (await compose(disk, draft, START)).ref

    def run(self, calm_after: int = 400) -> None:
        processes = {
            f"scheduler-{number}": self._scheduler(f"scheduler-{number}")
            for number in range(self.schedulers)
        }
        processes |= {name: self._sender(name) for name in ("sender-1", "sender-2")}
        if self.meddle:
            processes["people"] = self._people
        self.world.run(processes, self._is_settled, calm_after=calm_after)
        self._check()

    # The processes

    def _scheduler(self, name: str) -> Callable[[], list[Coroutine[Any, Any, None]]]:
        def start() -> list[Coroutine[Any, Any, None]]:
            self.incarnations[name] += 1
            scheduler = Scheduler(
                self.world.storage_of(name),
                self.world.clock,
                f"{name}.{self.incarnations[name]}",
                lease_s=LEASE_S,
                report_every_s=0.0,
                sweep_every_s=1e9,  # the path must settle without the broom
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
            storage = self._storage_that_notes(name)
            clock = self.world.clock
            rules = RetryRules(first_s=5, longest_s=20, window_s=100_000, chance=lambda: 0.5)
            right = Right(clock, owner)
            sender = Sender(
                storage, clock, right, self.journals, OneMessage(clock), rules, slice_size=2
            )
            return [
                self._beat(storage, right),
                self._lane(storage, sender, name, owner),
            ]

        return start

    def _storage_that_notes(self, name: str) -> Storage:
        storage = self.world.storage_of(name)

        def note() -> None:
            self.post.checked_at[name] = self.world.ios

        storage.tables = _Looks(storage.tables, note)  # type: ignore[assignment]
        return storage

    async def _beat(self, storage: Storage, right: Right) -> None:
        while True:
            now = self.world.clock.now()
            name = sender_lease(right.owner)
            with contextlib.suppress(StorageError):
                lease = await leases.hold(
                    storage.tables, name, right.owner, now=now, lease_s=LEASE_S
                )
                if lease:
                    right.renewed(now + timedelta(seconds=LEASE_S * 2 / 3))
            await self.world.clock.sleep(LEASE_S / 3)

    async def _lane(self, storage: Storage, sender: Sender, name: str, owner: str) -> None:
        lane, journal = Lane(self.post, name), Journal(self.journals, owner)
        while True:
            if sender.right.holds():
                with contextlib.suppress(StorageError):
                    for claim in await storage.queues.claim(
                        fan_out.MAIL_QUEUE, limit=1, lease_s=self.claim_s
                    ):
                        await sender.handle(claim, lane, journal)
            await Turn()

    def _people(self) -> list[Coroutine[Any, Any, None]]:
        return [self._meddle()]

    async def _meddle(self) -> None:
        """Unsubscribes, sign-ups, pausing, resuming, now and then a cancellation."""
        world, rng = self.world, self.world.rng
        tables = world.storage_of("people").tables
        for _ in range(rng.randrange(2, 7)):
            for _ in range(rng.randrange(60)):
                await Turn()
            act = rng.choice(["leave", "leave", "join", "join", "pause", "cancel"])
            with contextlib.suppress(StorageError, PostroomError):
                if act == "leave":
                    await self._somebody_leaves()
                elif act == "join":
                    await self._somebody_joins()
                elif act == "pause":
                    await steer.pause(tables, self.ref)
                    for _ in range(rng.randrange(100)):
                        await Turn()
                elif rng.random() < 0.2:
                    self.cancelled = True
                    await steer.cancel(tables, self.ref)
        await self._resume_at_last()

    async def _somebody_leaves(self) -> None:
        address = self.world.rng.choice(self.first)
        found = instantly(self._find(address))
        if found:
            self.left.add(address)
            await self.world.io(
                lambda: subscribe.leave(self.world.disk.tables, LIST, found, self.world.clock.now())
            )
            self.post.left_at[address] = self.world.ios

    async def _find(self, address: str) -> str | None:
        key = parse_address(address).storage_key
        found = await subscribers.find(self.world.disk.tables, LIST, key)
        return found[0].guid if found and not found[0].gone else None

    async def _somebody_joins(self) -> None:
        address = f"{self.world.rng.choice('abqz')}{len(self.known)}@contoso.edu"
        self.known.add(address)
        now = self.world.clock.now()
        await self.world.io(
            lambda: subscribe.add(
                self.world.disk.tables, LIST, parse_address(address), {}, verified=True, now=now
            )
        )

    async def _resume_at_last(self) -> None:
        while True:
            found = instantly(messages.find_live(self.world.disk.tables, self.ref))
            if found and found[0].status is Status.PAUSED:
                with contextlib.suppress(StorageError, PostroomError):
                    await steer.resume(self.world.disk.tables, self.ref)
            await Turn()

    def _bury(self, process: str) -> None:
        owner = self.owners.get(process)
        if owner:
            self.journals.alive.discard(owner)
            if self.world.rng.random() < self.machines_burn:
                self.journals.kept.pop(owner, None)

    # The accounting

    def _is_settled(self) -> bool:
        message = self._audit()
        if message.completed_at is None:
            return False
        is_idle = instantly(self.world.disk.queues.length(fan_out.MAIL_QUEUE)) == 0
        archived = instantly(messages.find_live(self.world.disk.tables, self.ref)) is None
        return is_idle and (archived or message.books.held > 0)

    def _audit(self) -> Message:
        """The books balance at every moment, not only at the end."""
        self.audits += 1
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
        if self.on_doubt is OnDoubt.HOLD:
            assert not extra, f"sent twice: {arrived}"
        assert extra <= books.doubts, f"{extra} extra copies, {books.doubts} doubts"
        if self.only_crashes:  # one mail on the wire a sender, and the journal tells the rest
            deaths = self.world.crashes["sender-1"] + self.world.crashes["sender-2"]
            assert books.doubts <= deaths, f"{books.doubts} doubts, {deaths} senders died"

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
            tables = self.world.disk.tables
            message = await messages.read(tables, self.ref)
            fates: dict[str, State] = {}
            for batch in range(message.batches):
                found = await batches.find_ledger(tables, self.ref, batch)
                held = set(found[0].positions(State.HELD)) if found else set()
                rows = await batches.load_deliveries(tables, self.ref, batch) if held else {}
                async for old in archive.load(tables, self.ref, batch):
                    assert old.delivery.address not in fates, "in two batches"
                    if old.delivery.position not in held:
                        fates[old.delivery.address] = old.ended.state
                for at in held:
                    assert rows[at].address not in fates, "in two batches"
                    fates[rows[at].address] = State.HELD
            return fates

        return instantly(collect())
