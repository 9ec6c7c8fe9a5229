"""The workshop of the scenarios: a town with a list, a mail server, an office that sends.

Everything is the production code over real SMTP on loopback; only the clock is ours, so that a
back-off of hours takes no time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from postroom.domain.address import parse_address
from postroom.domain.breaker import MailHealth
from postroom.domain.delivery import Ledger, State
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.feedback import FeedbackEvent, FeedbackKind
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, OnDoubt
from postroom.domain.retry import RetryRules
from postroom.domain.subscriber import Subscriber
from postroom.domain.suppression import Suppression
from postroom.flow import report, subscribe
from postroom.flow.compose import Draft, compose
from postroom.flow.feedback import FeedbackHandler
from postroom.flow.render import Renderer, Site
from postroom.flow.send import BatchSender, ItemResult
from postroom.records import (
    archive,
    batches,
    feedback,
    leases,
    lists,
    messages,
    subscribers,
    suppressions,
)
from postroom.records.names import MAIL_QUEUE
from postroom.records.rows import all_rows
from postroom.records.suppression_filter import SuppressionFilter
from postroom.scheduler import Scheduler
from postroom.sender import Sender, build_sender
from postroom.sending.journal import FileJournals
from postroom.sending.lease import SendingLease
from postroom.sending.recovery import BatchSettler
from postroom.storage.port import Claim, KeysAcross, Storage
from postroom.transport.observed import ObservedTransport
from postroom.transport.port import Transport
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Tls
from postroom.wakeup import WakeUps
from postroom_bench.sink import Sink, SinkOptions
from tests.acting import acting
from tests.clock import PATIENCE_S, MovableClock, soon
from tests.no_limits import NoLimits

LIST = "contoso1"
FROM = "History Department <donotreply@contoso.edu>"
SITE = Site("https://post.contoso.edu", "the secret of the town")
LEASE_S, CLAIM_S = 30.0, 300.0
DAY_S = 24 * 3600.0
RULES = RetryRules(chance=lambda: 0.5)  # the middle of the jitter: exact times
TURNS_MAX = 400  # steps of everybody; a scenario that needs more goes round in circles


class Fate(NamedTuple):
    """Where one person's delivery stands, and the last words about it."""

    state: State
    words: str


class Clerk:
    """A sender of one lane, one item at a time: what can be stopped in the middle of a slice."""

    def __init__(
        self,
        town: Town,
        owner: str,
        machine: str,
        slice_size: int,
        window: int,
        rules: RetryRules,
    ) -> None:
        self.town = town
        self.lease = SendingLease(town.storage, town.clock, owner)
        self._journals = FileJournals(town.folder / machine, owner)
        self._transport = town.transport(window)
        self._lane = self._transport.lane()
        renderer = Renderer(town.storage, SITE, town.clock)
        self.sender = BatchSender(
            town.storage,
            town.clock,
            self.lease,
            BatchSettler(town.storage, town.clock, owner, self._journals, rules, SITE.secret),
            renderer,
            NoLimits(town.clock),
            rules,
            slice_size,
            SuppressionFilter(town.storage, town.clock, SITE.secret),
        )
        self._journals.open()
        self.journal = self._journals.lane(0)
        self._work: asyncio.Task[ItemResult | None] | None = None

    async def hold_lease(self) -> None:
        now = self.town.clock.now()
        tables, name = self.town.storage.tables, leases.sender_lease(self.lease.owner)
        assert await leases.hold(tables, name, self.lease.owner, now=now, lease_s=LEASE_S)
        self.lease.renewed(self.town.clock.monotonic(), LEASE_S * 2 / 3)

    async def claim(self) -> Claim | None:
        claims = await self.town.storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=CLAIM_S)
        return claims[0] if claims else None

    async def take(self) -> ItemResult | None:
        """Handle the next item; None if there is none."""
        claim = await self.claim()
        return await self.sender.handle(claim, self._lane, self.journal) if claim else None

    def work_in_lane(self, number: int) -> None:
        """Of the same sender: its other lanes keep their pages."""
        self.journal.close()
        self.journal = self._journals.lane(number)

    async def take_until(self, signal: Awaitable[object]) -> None:
        """Take the next item and leave it in hand when the signal comes."""
        self._work = asyncio.create_task(self.take())
        await soon(signal)

    async def finish(self) -> ItemResult | None:
        assert self._work
        async with asyncio.timeout(PATIENCE_S):
            return await self._work

    async def die(self) -> None:
        """As kill -9 leaves it: lock free, page and lease as they were."""
        if self._work:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self.journal.close()
        self._journals.close()
        await self._transport.close()


@dataclass
class Town:
    storage: Storage
    clock: MovableClock
    sink: Sink
    folder: Path
    scheduler: Scheduler = field(init=False)
    suppressions: SuppressionFilter = field(init=False)
    feedback: FeedbackHandler = field(init=False)
    roles: list[Sender] = field(default_factory=list)
    _owners: Iterator[int] = field(default_factory=lambda: count(1))
    _clerks: list[Clerk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.suppressions = SuppressionFilter(self.storage, self.clock, SITE.secret)
        self.scheduler = Scheduler(
            self.storage, self.clock, "scheduler.1", suppressions=self.suppressions
        )
        self.feedback = FeedbackHandler(self.storage, self.clock, SITE.secret)

    # People and messages

    async def found_list(self, name: str = LIST, description: str = "History news") -> None:
        found = MailingList(
            name=name, description=description, sender=FROM, created_at=self.clock.now()
        )
        await lists.create(self.storage.tables, found)

    async def join(
        self, *names: str, attributes: dict[str, str] | None = None, list_name: str = LIST
    ) -> None:
        """Verified subscribers, `name` standing for name@contoso.edu."""
        for name in names:
            await subscribe.add(
                acting(self.storage, self.clock.now()),
                list_name,
                parse_address(address_of(name)),
                attributes or {},
                verified=True,
            )

    async def subscriber(self, name: str) -> Subscriber:
        key = parse_address(address_of(name)).storage_key
        found = await subscribers.find(self.storage.tables, LIST, key)
        assert found
        return found[0]

    async def leave(self, name: str) -> None:
        guid = (await self.subscriber(name)).guid
        await subscribe.leave(acting(self.storage, self.clock.now()), LIST, guid)

    async def compose(
        self, on_doubt: OnDoubt = OnDoubt.RESEND, list_name: str = LIST, due_in_s: float = 0.0
    ) -> str:
        """A message that is due now, or soon; its ref."""
        draft = Draft(
            list_name=list_name,
            subject="New lecture series",
            html="<html><body><p>Dear {{ first_name | default('student') }}</p></body></html>",
            text="Dear {{ first_name | default('student') }}\n",
            due_at=self.clock.now() + timedelta(seconds=due_in_s),
            on_doubt=on_doubt,
        )
        return (await compose(acting(self.storage, self.clock.now()), draft)).ref

    async def mailing(self, *names: str, on_doubt: OnDoubt = OnDoubt.RESEND) -> str:
        """List, people and a message for them, fanned out and queued; its ref."""
        await self.found_list()
        await self.join(*names)
        ref = await self.compose(on_doubt)
        await self.fan_out()
        return ref

    async def fan_out(self) -> None:
        """The scheduler alone, until every item is put."""
        for _ in range(TURNS_MAX):
            if not await self.scheduler.step():
                return
        raise AssertionError("the scheduler goes round in circles")

    # Senders

    def transport(self, window: int = 8, password: str = "") -> SmtpTransport:
        config = SmtpConfig("127.0.0.1", self.sink.port, Tls.NONE, window=window)
        if password:
            config = replace(config, username="lists", password=password)
        return SmtpTransport(config)

    async def open_sender(
        self,
        *,
        machine: str = "here",
        lanes: int = 2,
        slice_size: int = 50,
        transport: Transport | None = None,
        storage: Storage | None = None,
        rules: RetryRules = RULES,
    ) -> Sender:
        """The production sender, with its heartbeat going."""
        owner = f"sender.{next(self._owners)}"
        storage = storage or self.storage
        health = MailHealth(f"127.0.0.1:{self.sink.port}")
        role = build_sender(
            storage,
            self.clock,
            owner,
            ObservedTransport(transport or self.transport(), health.note),
            FileJournals(self.folder / machine, owner),
            Renderer(storage, SITE, self.clock),
            WakeUps(self.folder / "bells").listen("sender"),
            rules=rules,
            lanes=lanes,
            slice_size=slice_size,
            lease_s=LEASE_S,
            claim_s=CLAIM_S,
            health=health,
        )
        await role.open()
        self.roles.append(role)
        return role

    async def clerk(
        self,
        owner: str = "clerk.1",
        *,
        machine: str = "here",
        slice_size: int = 50,
        window: int = 1,
        rules: RetryRules = RULES,
    ) -> Clerk:
        clerk = Clerk(self, owner, machine, slice_size, window, rules)
        await clerk.hold_lease()
        self._clerks.append(clerk)
        return clerk

    async def close(self) -> None:
        for clerk in self._clerks:
            await clerk.die()
        for role in list(self.roles):
            await self.close_sender(role, grace_s=0)

    async def close_sender(self, role: Sender, *, grace_s: float = PATIENCE_S) -> None:
        await role.close(grace_s)
        role.wakeup.close()
        self.roles.remove(role)

    def answering_at_once(self) -> SinkOptions:
        """The sink's options, slow…@ being no longer slow."""
        return replace(self.sink.options, slow_s=0.0)

    # Time

    async def quiet(self) -> None:
        """Scheduler and senders step until nothing is left to do at this moment."""
        quiet_rounds = 0
        for _ in range(TURNS_MAX):
            is_busy = await self.scheduler.step_and_report()
            for role in self.roles:
                is_busy |= await role.step()
            is_idle = all(role.is_idle for role in self.roles)
            quiet_rounds = quiet_rounds + 1 if is_idle and not is_busy else 0
            if quiet_rounds == 2:  # the first may have counted before a lane was done
                return
            if not is_idle and not is_busy:
                await self._lane_is_free()
        raise AssertionError("it goes round in circles")

    async def hear(self) -> None:
        """Deal with all feedback that does not have to wait."""
        for _ in range(TURNS_MAX):
            if not await self.feedback.step():
                return
        raise AssertionError("feedback goes round in circles")

    async def report(self, kind: FeedbackKind, ref: str, name: str, **more: Any) -> FeedbackEvent:
        """A provider reports about the email to a person; stored, not dealt with yet."""
        event = FeedbackEvent(
            id=f"{kind}-{ref}-{name}",
            kind=kind,
            at=self.clock.now(),
            source="sendgrid",
            delivery=await self.token(ref, name),
            address=address_of(name),
            **more,
        )
        await feedback.take_in(self.storage, [event])
        return event

    async def token(self, ref: str, name: str) -> str:
        """The delivery token of a person's email."""
        key = parse_address(address_of(name)).storage_key
        message = await messages.read(self.storage.tables, ref)
        batch = await batches.find_batch_of(self.storage.tables, message, key)
        assert batch is not None
        rows = await batches.load_deliveries(self.storage.tables, ref, batch)
        known = {row.key: at for at, row in rows.items()}
        async for old in archive.load(self.storage.tables, ref, batch):
            known[old.delivery.key] = old.delivery.position
        position = known[key]
        return delivery_tokens(SITE.secret.encode(), ref, batch, [position])[position]

    async def suppression(self, name: str) -> Suppression | None:
        key = parse_address(address_of(name)).storage_key
        found = await suppressions.find(self.storage.tables, SITE.secret, key)
        return found.value if found else None

    async def sender_alone(self) -> None:
        """The senders, until they are idle; the scheduler does nothing meanwhile."""
        for _ in range(TURNS_MAX):
            is_busy = False
            for role in self.roles:
                is_busy |= await role.step()
            if all(role.is_idle for role in self.roles) and not is_busy:
                return
            if not is_busy:
                await self._lane_is_free()
        raise AssertionError("the senders go round in circles")

    async def _lane_is_free(self) -> None:
        waits = [asyncio.create_task(role.wakeup.wait(PATIENCE_S)) for role in self.roles]
        done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waiting:
            wait.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert any(wait.result() for wait in done), "a lane does not get free"

    async def pass_time(self, seconds: float) -> None:
        """The clock moves, and every sender's heartbeat has noticed."""
        await self.clock.asleep(len(self.roles))
        self.clock.move(seconds)
        await self.clock.asleep(len(self.roles))

    async def live_through(self, seconds: float, every_s: float) -> None:
        """Time passes, and all that is due meanwhile is done."""
        for _ in range(round(seconds / every_s)):
            await self.pass_time(every_s)
            await self.quiet()

    # What became of it

    def arrived(self) -> Counter[str]:
        """How many mails each person got, by name."""
        return Counter(mail.recipient.partition("@")[0] for mail in self.sink.mails)

    async def read(self, ref: str) -> Message:
        """The message with its books of this moment; they balance, or this fails."""
        message = await messages.read(self.storage.tables, ref)
        counted = await report.books_of(self.storage.tables, message)
        assert counted.books.total == counted.audience, (counted.books, counted.audience)
        return counted

    async def is_archived(self, ref: str) -> bool:
        return await messages.find_live(self.storage.tables, ref) is None

    async def ledgers(self, ref: str) -> list[Ledger]:
        message = await messages.read(self.storage.tables, ref)
        found: list[Ledger] = []
        for group in batches.groups(message.batches):
            known = await batches.load_group(self.storage.tables, ref, group)
            found += [ledger for ledger, _ in known]
        return found

    async def fates(self, ref: str) -> dict[str, Fate]:
        """By name: the letter in the ledger, and the words of the archive row or the deferral."""
        fates: dict[str, Fate] = {}
        for ledger in await self.ledgers(ref):
            rows = await batches.load_deliveries(self.storage.tables, ref, ledger.batch)
            names = {at: name_of(row.address) for at, row in rows.items()}
            words = {at: wait.words for at, wait in ledger.deferred.items()}
            async for old in archive.load(self.storage.tables, ref, ledger.batch):
                at = old.delivery.position
                names[at] = name_of(old.delivery.address)
                if ledger.states[at] == old.ended.state:
                    words[at] = old.ended.words
            for at, letter in enumerate(ledger.states):
                fates[names[at]] = Fate(State(letter), words.get(at, ""))
        return fates

    async def states(self, ref: str) -> dict[str, State]:
        return {name: fate.state for name, fate in (await self.fates(ref)).items()}

    async def everything_about(self, ref: str) -> list[str]:
        """Every row and blob that names the message."""
        found = [
            f"{table}/{row.partition}/{row.key}"
            for table in ("message", "messagearchive")
            async for row in all_rows(self.storage.tables, table, KeysAcross())
            if ref in row.partition or ref in row.key
        ]
        names, _ = await self.storage.blobs.list(ref)
        return found + names

    async def items(self, queue: str = MAIL_QUEUE) -> int:
        return await self.storage.queues.length(queue)


def address_of(name: str) -> str:
    return f"{name}@contoso.edu"


def name_of(address: str) -> str:
    return address.partition("@")[0]


def students(count: int) -> list[str]:
    return [f"student{number:03d}" for number in range(count)]


def once_each(names: Iterable[str]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 1))
