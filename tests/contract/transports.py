"""Every transport with a server on loopback, in one form: what the contract suite runs on.

The next transport is one more line in TRANSPORTS.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from examples.folder_transport import FolderTransport
from postroom.domain.outcome import Outcome, Sent, Unknown, Untried
from postroom.records import outbox
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.transport.acs import AcsConfig, acs_transport
from postroom.transport.outbox import OutboxTransport
from postroom.transport.port import Transport
from postroom.transport.provider.connection import HttpTimeouts
from postroom.transport.sendgrid import SendGridConfig, sendgrid_transport
from postroom.transport.ses import SesConfig, ses_transport
from postroom.transport.smtp.transport import SmtpConfig, SmtpTransport, Timeouts, Tls
from postroom_bench.sink import Sink, SinkOptions
from tests.clock import MovableClock
from tests.letters import Letter
from tests.provider_stubs import acs, sendgrid, ses
from tests.provider_stubs.server import HUGE_BYTES, Misbehaviour, ProviderStub

SHORT_S = 0.5  # for servers that never answer; the others answer at once
PATIENT = HttpTimeouts()
HASTY = HttpTimeouts(connect_s=5.0, silence_s=SHORT_S, call_s=5.0)


@dataclass(frozen=True)
class ContractLetter(Letter):
    """With the delivery token in its Message-ID, as all mails of the flow have it."""

    @property
    def message_id(self) -> str:
        return f"<{self.token}@lists.contoso.edu>"


def contract_letters(*recipients: str) -> list[ContractLetter]:
    return [ContractLetter(10 + index, recipient) for index, recipient in enumerate(recipients)]


class Harness(ABC):
    """One transport under test, and what its server saw."""

    transport: Transport
    has_server = True  # one that can refuse a mail or be lost
    can_be_asked = False  # a lost reply is settled
    takes_utf8 = False
    secrets: tuple[str, ...] = ()

    def __init__(self, clock: MovableClock) -> None:
        self.clock = clock

    @abstractmethod
    def arrived(self) -> Counter[str]:
        """How often each recipient was accepted."""

    async def look(self) -> None:
        """Count what arrived, where that takes a call."""
        return

    def address(self, script: str) -> str:
        return f"{script}@contoso.edu"

    def with_hostile_server(self, how: Misbehaviour) -> Transport:
        """A transport whose server does this instead of answering."""
        raise NotImplementedError

    def to_nowhere(self) -> Transport:
        """A transport to a port where nobody listens."""
        raise NotImplementedError

    async def slow_mail_waits(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def complaints(self) -> list[str]:
        """What our own requests did wrong."""
        return []


class ProviderHarness(Harness):
    def __init__(
        self,
        clock: MovableClock,
        stub: ProviderStub,
        opened: Callable[[str, HttpTimeouts], Transport],
        secrets: tuple[str, ...],
        *,
        can_be_asked: bool = False,
    ) -> None:
        super().__init__(clock)
        self.stub = stub
        self.opened = opened
        self.secrets = secrets
        self.can_be_asked = can_be_asked
        stub.now_s = clock.now().timestamp()
        self.transport = opened(stub.url, PATIENT)

    def arrived(self) -> Counter[str]:
        return self.stub.arrived()

    def with_hostile_server(self, how: Misbehaviour) -> Transport:
        self.stub.misbehaviour = how
        return self.opened(self.stub.url, HASTY)

    def to_nowhere(self) -> Transport:
        return self.opened("http://127.0.0.1:1", HASTY)

    async def slow_mail_waits(self) -> None:
        await self.stub.is_waiting.wait()

    def release(self) -> None:
        self.stub.release()

    def complaints(self) -> list[str]:
        return self.stub.bad_calls


class SmtpHarness(Harness):
    def __init__(self, clock: MovableClock, sink: Sink) -> None:
        super().__init__(clock)
        self.sink = sink
        self.transport = self._to(sink.port)
        self._hostile: asyncio.Server | None = None

    def _to(self, port: int) -> Transport:
        waits = Timeouts(*[5.0] * 6) if port == self.sink.port else Timeouts(*[SHORT_S] * 6)
        return SmtpTransport(SmtpConfig("127.0.0.1", port, Tls.NONE, timeouts=waits))

    def arrived(self) -> Counter[str]:
        return Counter(mail.recipient for mail in self.sink.mails)

    def address(self, script: str) -> str:
        names = {"drop-after-accept": "drop-after-dot", "bad": "perm-fail-bad"}
        return super().address(names.get(script, script))

    def with_hostile_server(self, how: Misbehaviour) -> Transport:
        return self._to(self.hostile_port(how))

    def hostile_port(self, how: Misbehaviour) -> int:
        self.how = how
        assert self._hostile is not None
        return int(self._hostile.sockets[0].getsockname()[1])

    async def open_hostile(self) -> None:
        self._hostile = await asyncio.start_server(self._misbehave, "127.0.0.1", 0)

    async def close_hostile(self) -> None:
        assert self._hostile is not None
        self._hostile.close()

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.how.value is None:
            await reader.read()
        else:
            writer.write(self.how.value)
            writer.write(b"x" * HUGE_BYTES if self.how is Misbehaviour.HUGE else b"")
        writer.close()

    def to_nowhere(self) -> Transport:
        return self._to(1)

    async def slow_mail_waits(self) -> None:
        await self.sink.is_waiting.wait()

    def release(self) -> None:
        self.sink.release()


class OutboxHarness(Harness):
    has_server = False
    takes_utf8 = True

    def __init__(self, clock: MovableClock) -> None:
        super().__init__(clock)
        self.storage = MemoryStorage(clock, STORAGE_NAMES)
        self.transport = OutboxTransport(self.storage, clock)
        self._arrived: Counter[str] = Counter()

    def arrived(self) -> Counter[str]:
        return self._arrived

    async def look(self) -> None:
        mails, _ = await outbox.newest(self.storage.tables, limit=200)
        self._arrived = Counter(mail.recipient for mail in mails)


class FolderHarness(Harness):
    """The transport of examples/, which docs/transports.md shows."""

    has_server = False
    takes_utf8 = True

    def __init__(self, clock: MovableClock, folder: Path) -> None:
        super().__init__(clock)
        self.folder = folder
        self.transport = FolderTransport(folder)
        self.names: dict[str, str] = {}

    def arrived(self) -> Counter[str]:
        return Counter(self.names.get(path.stem, "?") for path in self.folder.glob("*.eml"))


@asynccontextmanager
async def smtp_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    async with Sink(SinkOptions(chunking=True)) as sink:
        harness = SmtpHarness(clock, sink)
        await harness.open_hostile()
        yield harness
        await harness.close_hostile()


@asynccontextmanager
async def outbox_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    yield OutboxHarness(clock)


@asynccontextmanager
async def folder_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    yield FolderHarness(clock, folder)


@asynccontextmanager
async def sendgrid_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    def opened(url: str, timeouts: HttpTimeouts) -> Transport:
        config = SendGridConfig(sendgrid.KEY, base_url=url, batch=50)
        return sendgrid_transport(config, clock, timeouts)

    async with sendgrid.SendGridStub() as stub:
        yield ProviderHarness(clock, stub, opened, (sendgrid.KEY,))


@asynccontextmanager
async def acs_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    def opened(url: str, timeouts: HttpTimeouts) -> Transport:
        return acs_transport(AcsConfig(url, acs.KEY), clock, timeouts)

    async with acs.AcsStub() as stub:
        yield ProviderHarness(clock, stub, opened, (acs.KEY,), can_be_asked=True)


@asynccontextmanager
async def ses_harness(clock: MovableClock, folder: Path) -> AsyncIterator[Harness]:
    def opened(url: str, timeouts: HttpTimeouts) -> Transport:
        config = SesConfig(ses.REGION, ses.KEY_ID, ses.SECRET, base_url=url)
        return ses_transport(config, clock, timeouts)

    async with ses.SesStub() as stub:
        yield ProviderHarness(clock, stub, opened, (ses.SECRET,))


TRANSPORTS = {
    "smtp": smtp_harness,
    "outbox": outbox_harness,
    "sendgrid": sendgrid_harness,
    "acs": acs_harness,
    "ses": ses_harness,
    "example": folder_harness,
}


@dataclass
class ContractWatch:
    """Checks the order of what it is told, and that nothing arrives before its hand-over."""

    harness: Harness
    recipients: dict[int, str]
    leave: int = 1_000_000  # how often it may be asked before it says no
    handed: set[int] = field(default_factory=set)
    answers: dict[int, Outcome] = field(default_factory=dict)

    def may_hand_over(self) -> bool:
        self.leave -= 1
        return self.leave >= 0

    def handing_over(self, positions: Sequence[int]) -> None:
        assert not self.handed & set(positions), "handed over twice without being returned"
        assert not self.answers.keys() & set(positions), "handed over after its answer"
        arrived = self.harness.arrived()
        for at in positions:
            others = sum(self.recipients[at] == self.recipients[each] for each in self.handed)
            assert arrived[self.recipients[at]] <= others, "it arrived before the hand-over"
        self.handed.update(positions)

    def returned(self, positions: Sequence[int]) -> None:
        assert set(positions) <= self.handed, "returned without a hand-over"
        self.handed.difference_update(positions)

    def answered(self, outcomes: Mapping[int, Outcome]) -> None:
        assert outcomes, "answered for nobody"
        for position, outcome in outcomes.items():
            assert position not in self.answers, "answered twice"
            if isinstance(outcome, Sent | Unknown):
                assert position in self.handed, "sent without a hand-over"
            if isinstance(outcome, Untried):
                assert position not in self.handed, "untried after a hand-over"
            self.answers[position] = outcome


async def deliver(
    harness: Harness,
    mails: Sequence[Letter],
    *,
    transport: Transport | None = None,
    leave: int = 1_000_000,
) -> list[Outcome]:
    """Send one slice over a new lane, and check everything that holds for any slice."""
    if isinstance(harness, FolderHarness):
        harness.names = {mail.token: mail.recipient for mail in mails}
    watch = ContractWatch(harness, {mail.position: mail.recipient for mail in mails}, leave)
    lane = (transport or harness.transport).lane()
    outcomes = await lane.send(mails, watch)
    await lane.close()
    await harness.look()
    assert [watch.answers[mail.position] for mail in mails] == outcomes
    sent = Counter(
        mail.recipient
        for mail, outcome in zip(mails, outcomes, strict=True)
        if isinstance(outcome, Sent)
    )
    unclear = {
        mail.recipient
        for mail, outcome in zip(mails, outcomes, strict=True)
        if isinstance(outcome, Unknown)
    }
    arrived = harness.arrived()
    assert {name: count for name, count in arrived.items() if name not in unclear} == sent
    assert harness.complaints() == []
    for secret in harness.secrets:
        assert secret not in repr(outcomes) + repr(transport or harness.transport) + repr(lane)
    return outcomes
