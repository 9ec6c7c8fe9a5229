"""What the scenarios of a migration share: a house to move, storages that die, a look around."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from postroom.actions import control_message, send_test_mail
from postroom.clock import Clock
from postroom.domain.address import parse_address
from postroom.domain.audit import ActorKind, AuditAction, AuditActor, AuditKind, new_entry
from postroom.domain.feedback import FeedbackEvent, FeedbackKind
from postroom.domain.mailing_list import MailingList
from postroom.domain.outcome import Outcome
from postroom.domain.retry import RetryRules
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.flow import subscribe
from postroom.flow.compose import Draft, compose
from postroom.flow.render import Renderer, Site
from postroom.flow.send import BatchSender
from postroom.intervals import LOCAL
from postroom.migration import migrate
from postroom.migration.comparison import Comparison
from postroom.migration.migrate import MigrationContext
from postroom.records import (
    audit,
    feedback,
    keys,
    leases,
    lists,
    subscribers,
    suppressions,
    traces,
)
from postroom.records.names import DEAD_LETTER_QUEUE, IMPORT_QUEUE, MAIL_QUEUE, QUEUES, TABLES
from postroom.records.rows import all_rows
from postroom.records.secrets import installation_secret
from postroom.scheduler import Scheduler
from postroom.sending.lease import SendingLease
from postroom.sending.recovery import BatchSettler
from postroom.storage.port import KeysAcross, Storage, Troubles, Value
from postroom.transport.outbox import OutboxTransport
from postroom.transport.port import HandOverWatch, Lane, OutgoingMail
from tests.acting import acting
from tests.no_limits import NoLimits

LIST = "contoso1"
SOURCE, TARGET = "the old one", "the new one"
STEPS_MAX = 1000
NEVER_SWEEPS = replace(LOCAL, sweep_s=1e9, tidy_s=1e9)
OWN = {("service", "lease"), ("service", "migration")}
ODD: dict[str, Value] = {
    "int": 1,
    "float": 1.0,
    "bool": True,
    "text": "1",
    "large": 2**63 - 1,
    "small": -(2**63),
    "tiny": 5e-324,
    "words": "é\u2028\u2029😀 'quoted', {braced}\n\ttab",
    "empty": "",
}


class Everything(NamedTuple):
    """All that a migration must bring over; items of a queue in no order."""

    rows: dict[str, dict[tuple[str, str], list[tuple[str, str, Any]]]]
    blobs: dict[str, bytes]
    items: dict[str, Counter[str]]


class Killed(BaseException):
    """The process dies here."""


class Fate:
    """Counts the calls of a process to all its storages, and kills it at one of them."""

    def __init__(self, at: int = 0, *, is_done: bool = True) -> None:
        self.calls = 0
        self._at = at
        self._is_done = is_done  # the call that it dies at takes effect

    async def call(self, method: Callable[..., Any], *values: Any, **named: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        if self._at and (self.calls > self._at or (self.calls == self._at and not self._is_done)):
            raise Killed  # also whatever a dead one would still do to tidy up
        result = await method(*values, **named)
        if self.calls >= self._at > 0:
            raise Killed
        return result


class _Part:
    def __init__(self, part: object, fate: Fate) -> None:
        self._part = part
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        def call(*values: Any, **named: Any) -> Any:
            return self._fate.call(method, *values, **named)

        return call


class Mortal:
    """A storage as seen by a process that may be killed at any call."""

    def __init__(self, storage: Storage, fate: Fate) -> None:
        self.tables: Any = _Part(storage.tables, fate)
        self.queues: Any = _Part(storage.queues, fate)
        self.blobs: Any = _Part(storage.blobs, fate)
        self.troubles = Troubles()

    async def close(self) -> None:
        """The storage itself lives on."""


class Onlooker:
    """Stops the migration after a number of calls."""

    def __init__(self, looks: int | None = None) -> None:
        self._looks = looks
        self.stages: list[str] = []

    def may_go_on(self) -> bool:
        if self._looks is not None:
            self._looks -= 1
        return self._looks is None or self._looks > 0

    def on_progress(self, stage: str, _done: int) -> None:
        if stage not in self.stages:
            self.stages.append(stage)


def migration_context(
    source: Storage, target: Storage, clock: Clock, observer: Onlooker | None = None
) -> MigrationContext:
    observer = observer or Onlooker()
    return MigrationContext(
        source, target, SOURCE, TARGET, clock, observer.may_go_on, observer.on_progress
    )


async def move(source: Storage, target: Storage, clock: Clock) -> list[Comparison]:
    return await migrate.migrate(migration_context(source, target, clock))


async def move_with(fate: Fate, source: Storage, target: Storage, clock: Clock) -> bool:
    """Whether it came to its end; what it found is equal then."""
    try:
        found = await move(Mortal(source, fate), Mortal(target, fate), clock)
    except Killed:
        return False
    assert not any(part.differences for part in found), found
    return True


async def fill(storage: Storage, clock: Clock, people: int) -> None:
    """A house that has been lived in: people, messages in all states, items, blobs, a lease."""
    tables, now = storage.tables, clock.now()
    await installation_secret(tables)
    await keys.create(tables, "portal", (LIST,), now)
    await lists.create(
        tables, MailingList(name=LIST, description="News", sender="a@contoso.edu", created_at=now)
    )
    await _join(storage, clock, people)
    await _message(storage, clock)
    await _send(storage, clock, max(1, min(people // 4, 20)))
    for act in (control_message.pause, partial(control_message.cancel, now=now), None):
        ref = await _message(storage, clock)
        if act:
            await act(tables, ref)
    draft = await compose(
        acting(storage, now), Draft(list_name=LIST, subject="Not yet", text="Later\n")
    )
    await send_test_mail.ask_for_test(
        acting(storage, now), draft.ref, "nobody@contoso.edu", "nonce"
    )
    await subscribe.sign_up(acting(storage, now), LIST, parse_address("asks@contoso.edu"), {})
    owner = AuditActor(ActorKind.USER, "owner@contoso.edu")
    await audit.begin(tables, new_entry(owner, AuditKind.LIST, LIST, AuditAction.CREATE, now))
    await storage.queues.put(DEAD_LETTER_QUEUE, "not an item", "", "not an item")
    await storage.queues.put(IMPORT_QUEUE, "an import")
    entry = Suppression(
        key="dead@contoso.edu",
        address="dead@contoso.edu",
        scope=SuppressionScope.ALL,
        reason=SuppressionReason.DEAD,
        since=now,
    )
    await suppressions.put(tables, "secret", entry.key, entry, now)
    event = FeedbackEvent(id="1", kind=FeedbackKind.OPENED, at=now, source="sendgrid")
    await feedback.take_in(storage, [event])
    await traces.note_count(tables, "host.1", now, 1)
    await tables.upsert("service", "odd 'partition'", "odd {key}, 'quoted'", ODD)
    await tables.upsert("service", "odd 'partition'", "none", {})
    assert await leases.hold(tables, "scheduler", "dead.1", now=now, lease_s=30)
    await clock.sleep(31)


async def _join(storage: Storage, clock: Clock, people: int) -> None:
    now = clock.now()
    for start in range(0, people, 49):
        newcomers = [
            subscribe.new_subscriber(
                LIST, parse_address(f"student{number}@contoso.edu"), {"year": "1"}, True, now
            )
            for number in range(start, min(start + 49, people))
        ]
        await subscribers.join_together(storage.tables, newcomers, now)


async def _message(storage: Storage, clock: Clock) -> str:
    """One that is fanned out; its ref."""
    now, html = clock.now(), "<p>Dear student</p>"
    draft = Draft(list_name=LIST, subject="News", html=html, text="Dear student\n", due_at=now)
    message = await compose(acting(storage, now), draft)
    await _schedule(storage, clock)
    return message.ref


async def _schedule(storage: Storage, clock: Clock) -> None:
    scheduler = Scheduler(storage, clock, "scheduler.1", intervals=NEVER_SWEEPS)
    for _ in range(STEPS_MAX):
        if not await scheduler.step():
            await scheduler.stop()
            return
    raise AssertionError("the scheduler goes round in circles")


class _NoJournal:
    def begin(self, ref: str, batch: int) -> None: ...
    def handing_over(self, positions: Sequence[int]) -> None: ...
    def returned(self, positions: Sequence[int]) -> None: ...
    def answered(self, outcomes: Mapping[int, Outcome]) -> None: ...
    def recorded(self) -> None: ...
    def end(self) -> None: ...
    def recall(self, owner: str, ref: str, batch: int) -> None: ...


async def _send(storage: Storage, clock: Clock, mails: int) -> None:
    """Into the outbox; who does not fit into a slice stays queued."""
    lease = SendingLease(storage, clock, "sender.1")
    lease.renewed(clock.monotonic(), 30)
    rules = RetryRules()
    settler = BatchSettler(storage, clock, lease.owner, _NoJournal(), rules, "secret")
    renderer = Renderer(storage, Site("https://post.contoso.edu", "a secret"), clock)
    sender = BatchSender(
        storage, clock, lease, settler, renderer, NoLimits(clock), rules, slice_size=mails
    )
    lane = _OneSlice(OutboxTransport(storage, clock).lane(), lease)
    for claim in await storage.queues.claim(MAIL_QUEUE, limit=1, lease_s=60):
        await sender.handle(claim, lane, _NoJournal())


class _OneSlice:
    """A lane after whose first slice the sender is asked to stop."""

    def __init__(self, lane: Lane, lease: SendingLease) -> None:
        self.id = lane.id
        self._lane = lane
        self._lease = lease

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        outcomes = await self._lane.send(mails, watch)
        self._lease.stop()
        return outcomes

    async def close(self) -> None:
        await self._lane.close()


async def everything(storage: Storage, clock: Clock) -> Everything:
    """Items are claimed for a moment, which passes."""
    rows = {
        table: {
            (row.partition, row.key): sorted(
                (name, type(value).__name__, value) for name, value in row.properties.items()
            )
            async for row in all_rows(storage.tables, table, KeysAcross())
            if (table, row.partition) not in OWN
        }
        for table in TABLES
    }
    blobs: dict[str, bytes] = {}
    after: str | None = None
    for _ in range(STEPS_MAX):
        names, after = await storage.blobs.list(after=after)
        for name in names:
            blobs[name] = await storage.blobs.get(name) or b""
        if after is None:
            break
    items = {queue: await _items(storage, queue) for queue in QUEUES}
    await clock.sleep(3601)
    return Everything(rows, blobs, items)


async def _items(storage: Storage, queue: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(STEPS_MAX):
        claims = await storage.queues.claim(queue, limit=32, lease_s=3600)
        if not claims:
            return found
        found.update(claim.body for claim in claims)
    raise AssertionError("the queue has no end")
