"""What the simulated processes work with beside storage: journals, lanes, a server that counts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom import clock
from postroom.domain.address import parse_address, parse_mailbox
from postroom.domain.delivery import JournalEvidence, SenderStillAlive
from postroom.domain.message import Message
from postroom.domain.outcome import Deferred, Outcome, Rejected, Scope, Sent, Unknown, Untried
from postroom.flow.render import CompiledMessage, Renderer, Site
from postroom.mail.mime import MailParts, compile_mail
from postroom.storage.port import StorageError
from postroom.transport.port import HandOverWatch, OutgoingMail
from tests.simulation.world import World

T = TypeVar("T")
SENDER = "donotreply@contoso.edu"
SITE = Site("https://post.contoso.edu", "a secret")
COMPILED = compile_mail(MailParts(sender=parse_mailbox(SENDER), subject="News", text="Hello"))


class Journals:
    """The ack journals of one machine; a machine that burns down takes them with it."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.kept: dict[str, dict[tuple[str, int, int], Page]] = {}

    def recall(self, owner: str, ref: str, batch: int) -> JournalEvidence | SenderStillAlive | None:
        if owner in self.alive:
            return SenderStillAlive()
        if owner not in self.kept:
            return None
        pages = [page for key, page in self.kept[owner].items() if key[:2] == (ref, batch)]
        pages = [page for page in pages if not page.is_recorded]
        if not pages:
            return JournalEvidence()
        handed = frozenset().union(*(page.handed for page in pages))
        answered = {at: end for page in pages for at, end in page.answered.items()}
        return JournalEvidence(handed, answered, whole=True)


@dataclass
class Page:
    handed: set[int] = field(default_factory=set)
    answered: dict[int, Outcome] = field(default_factory=dict)
    is_recorded: bool = False


class Journal:
    """The page of one lane."""

    def __init__(self, journals: Journals, owner: str, lane: int) -> None:
        self._pages = journals.kept.setdefault(owner, {})
        self._lane = lane
        self._page = Page()
        self._key: tuple[str, int, int] | None = None

    def begin(self, ref: str, batch: int) -> None:
        self.end()
        self._key = (ref, batch, self._lane)
        self._page = self._pages[self._key] = Page()

    def handing_over(self, positions: Sequence[int]) -> None:
        self._page.handed.update(positions)

    def returned(self, positions: Sequence[int]) -> None:
        self._page.handed.difference_update(positions)

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        self._page.answered.update(outcomes)

    def recorded(self) -> None:
        self._page.is_recorded = True

    def end(self) -> None:
        if self._key:
            self._pages.pop(self._key, None)


class OneMessage(Renderer):
    """The real mails of a message compiled once for all runs."""

    def __init__(self, clock: clock.Clock) -> None:
        self._sim_clock = clock

    async def compiled(self, message: Message) -> CompiledMessage:
        return CompiledMessage(message, COMPILED, parse_address(SENDER), SITE, self._sim_clock)


@dataclass
class Post:
    """The world's mail server: what arrived, and what it refuses."""

    world: World
    arrived: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    checked_at: dict[int, int] = field(default_factory=dict)  # lane: I/O of its last look
    left_at: dict[str, int] = field(default_factory=dict)  # address: I/O when it had left
    tokens: dict[str, str] = field(default_factory=dict)  # address: delivery token of its mail
    trouble: float = 0.0
    closing: float = 0.0  # how often the server says 421 instead of the reply it owes

    async def hand_over(self, address: str) -> Outcome:
        world = self.world
        dice = world.rng.random() if self.trouble else 1.0
        if dice < self.trouble * 0.3:
            return await world.io(lambda: self._deliver(address, then=Unknown("broke")))
        if dice < self.trouble * 0.6:
            return await world.io(lambda: self._say(Unknown("broke before it")))
        if dice < self.trouble:
            return await world.io(lambda: self._say(Deferred("451 4.2.0 later", Scope.ADDRESS)))
        if address.startswith("perm-fail"):
            self.refused.add(address)
            return await world.io(lambda: self._say(Rejected("550 5.1.1 unknown")))
        return await world.io(lambda: self._deliver(address, then=Sent("250 2.0.0 ok")))

    async def converse(self, address: str, commands: int) -> list[tuple[int, bytes]]:
        """The replies to the commands of one mail; a 421 is the last word of the connection."""
        rng = self.world.rng
        said = rng.randrange(commands) if rng.random() < self.closing else commands
        replies = [(250, b"250 2.0.0 ok")] * said
        if said < commands:
            return await self.world.io(lambda: self._say([*replies, (421, b"421 4.7.0 enough")]))
        return await self.world.io(lambda: self._deliver(address, then=replies))

    async def _say(self, reply: T) -> T:
        return reply

    async def _deliver(self, address: str, then: T) -> T:
        self.arrived[address] += 1
        left_at = self.left_at.get(address)
        looked_at = self.checked_at.get(self.world.lane, 0)
        if left_at is not None and left_at < looked_at:
            raise AssertionError(f"{address} left before the sender looked, and was mailed")
        return then


class Lane:
    id = 0

    def __init__(self, post: Post) -> None:
        self._post = post

    async def send(self, mails: Sequence[OutgoingMail], watch: HandOverWatch) -> list[Outcome]:
        return [await self._send_one(mail, watch) for mail in mails]

    async def _send_one(self, mail: OutgoingMail, watch: HandOverWatch) -> Outcome:
        if not watch.may_hand_over():
            return Untried("stopping")
        if self._post.trouble and self._post.world.rng.random() < self._post.trouble * 0.2:
            return Deferred("cannot connect", Scope.PROVIDER, reached=False)
        watch.handing_over([mail.position])
        self._post.tokens[mail.recipient] = mail.token
        outcome: Outcome = Unknown("the line failed")
        with contextlib.suppress(StorageError):  # a simulated failure of this I/O is a broken line
            outcome = await self._post.hand_over(mail.recipient)
        watch.answered({mail.position: outcome})
        return outcome

    async def close(self) -> None:
        return


class Looks:
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
