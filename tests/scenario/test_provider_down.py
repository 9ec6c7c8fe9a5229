"""The provider is down: nobody loses an attempt, one lane asks now and then, then all goes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.delivery import State
from postroom.domain.message import Books
from postroom.flow import subscribe
from postroom.records.names import DEAD_LETTER_QUEUE, SINGLE_MAIL_QUEUE
from postroom.sender import Sender
from postroom.transport.smtp.transport import SmtpTransport
from tests.acting import acting
from tests.clock import soon
from tests.scenario.town import LIST, Town, once_each, students

Repair = Callable[[], Awaitable[None]]
GREETING = "421 4.3.2 The relay takes no mail now"


class Outage:
    """One way for a provider to be down, and how it ends."""

    def __init__(self, town: Town, kind: str) -> None:
        self.town = town
        self._kind = kind

    async def begin(self) -> SmtpTransport:
        sink = self.town.sink
        match self._kind:
            case "nothing listens":
                await sink.stop()
            case "421 to everybody":
                sink.options = replace(sink.options, greeting=GREETING)
            case "login refused":
                sink.options = replace(sink.options, users={"lists": "new password"})
                return self.town.transport(password="old password")
        return self.town.transport()

    async def end(self) -> None:
        sink = self.town.sink
        if self._kind == "nothing listens":
            await sink.start(sink.port)
        users = {"lists": "old password"} if self._kind == "login refused" else {}
        sink.options = replace(sink.options, greeting="220 sink ESMTP", users=users)


@pytest_asyncio.fixture(params=["nothing listens", "421 to everybody", "login refused"])
async def outage(request: pytest.FixtureRequest, town: Town) -> AsyncIterator[Outage]:
    yield Outage(town, request.param)


@pytest.mark.slow
async def test_no_attempt_is_used_up_and_everything_is_sent_when_it_is_back(
    town: Town, outage: Outage, pairs: None
) -> None:
    names = students(12)
    ref = await town.mailing(*names)
    await town.open_sender(transport=await outage.begin())
    await town.quiet()
    await town.live_through(30 * 3600, every_s=1800)  # longer than any delivery is retried
    assert (await town.read(ref)).books == Books(queued=12)
    assert all(not ledger.deferred for ledger in await town.ledgers(ref))
    await outage.end()
    await town.live_through(120, every_s=15)
    assert town.arrived() == once_each(names)
    assert (await town.read(ref)).books == Books(sent=12)
    assert await town.items(DEAD_LETTER_QUEUE) == 0


async def probes(town: Town, role: Sender, times: int) -> list[float]:
    """The pauses the breaker makes, each waited for."""
    pauses = []
    for _ in range(times):
        pauses.append(role.breaker.pause_s(town.clock.monotonic()))
        assert not await role.step()  # nothing is even claimed while it is open
        await town.pass_time(pauses[-1])
        await town.quiet()
    return pauses


async def test_one_lane_asks_at_growing_intervals(town: Town, outage: Outage, pairs: None) -> None:
    await town.mailing(*students(40))
    role = await town.open_sender(lanes=4, transport=await outage.begin())
    await town.quiet()
    connected = town.sink.connected
    pauses = await probes(town, role, 8)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert town.sink.connected - connected in (0, 8)  # 0: nobody counts where nobody listens
    await outage.end()
    await town.pass_time(60)
    await town.quiet()
    assert role.breaker.faults == 0
    await town.pass_time(10)  # those that were asked for in vain come back
    await town.quiet()
    assert town.arrived() == once_each(students(40))


async def sign_up(town: Town, name: str) -> None:
    address = parse_address(f"{name}@contoso.edu")
    await subscribe.sign_up(acting(town.storage, town.clock.now()), LIST, address, {})


async def test_confirmations_wait_for_the_provider_too(town: Town, outage: Outage) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    await town.open_sender(transport=await outage.begin())
    await town.quiet()
    await town.live_through(5 * 3600, every_s=1800)
    assert await town.items(SINGLE_MAIL_QUEUE) == 1
    assert await town.items(DEAD_LETTER_QUEUE) == 0
    await outage.end()
    await town.live_through(3600, every_s=1800)
    assert town.arrived() == once_each(["ada"])
    assert await town.items(SINGLE_MAIL_QUEUE) == 0


async def test_a_confirmation_that_went_out_closes_the_breaker(town: Town, outage: Outage) -> None:
    await town.found_list()
    await sign_up(town, "ada")
    role = await town.open_sender(transport=await outage.begin())
    await town.quiet()
    assert role.breaker.faults == 1
    await outage.end()
    await town.live_through(120, every_s=60)
    assert town.arrived() == once_each(["ada"])
    assert role.breaker.faults == 0


async def test_a_delivery_that_waited_for_its_mailbox_waits_for_the_provider_unharmed(
    town: Town,
) -> None:
    ref = await town.mailing("temp-fail")
    await town.open_sender()
    await town.quiet()
    town.sink.options = replace(town.sink.options, greeting=GREETING)
    await town.sink.drop_connections()
    await town.live_through(600, every_s=60)
    [ledger] = await town.ledgers(ref)
    assert ledger.deferred[0].attempts == 1
    assert (await town.states(ref))["temp-fail"] is State.QUEUED


async def test_a_recipient_the_relay_always_hangs_up_on_fails_in_the_end(
    town: Town, pairs: None
) -> None:
    """421 in the middle of one mail says little about the provider: the others were taken."""
    names = students(20)
    ref = await town.mailing("busy", *names)
    await town.open_sender(lanes=1, transport=town.transport(window=1))
    await town.quiet()
    await town.live_through(26 * 3600, every_s=1800)
    assert town.arrived() == once_each(names)
    assert (await town.states(ref))["busy"] is State.FAILED
    assert await town.is_archived(ref)


async def test_a_provider_that_dies_in_the_middle_leaves_only_the_wire_in_doubt(
    town: Town,
) -> None:
    names = ["slow", *students(30)]
    ref = await town.mailing(*names)
    role = await town.open_sender(lanes=1, transport=town.transport(window=1))
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await town.sink.stop()
    await town.quiet()
    assert (await town.read(ref)).books == Books(queued=31, doubts=1)
    assert role.breaker.faults == 1
    [ledger] = await town.ledgers(ref)
    assert set(ledger.deferred) == {0}  # an attempt for the one on the wire, for nobody else
    await town.sink.start(town.sink.port)
    town.sink.options = town.answering_at_once()
    await town.live_through(120, every_s=30)
    assert town.arrived() == once_each(names) + once_each(["slow"])
    assert (await town.read(ref)).books == Books(sent=31, doubts=1)
