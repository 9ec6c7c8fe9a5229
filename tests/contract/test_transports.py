"""The contract of every transport: one outcome per mail, told once, and nothing in silence."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.outcome import Deferred, Rejected, Scope, Sent, Unknown, Untried
from postroom.domain.rate_limit import TRANSPORT, RateLimit
from postroom.pacing.pacer import Pacer
from postroom.pacing.transport import PacedTransport
from postroom.records import rate_limits
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.transport.capabilities import DoubtSettling
from postroom.transport.port import Permit
from postroom.wiring import transports as entries
from tests.clock import MovableClock, soon
from tests.contract.transports import (
    TRANSPORTS,
    ContractWatch,
    Harness,
    contract_letters,
    deliver,
)
from tests.provider_stubs.server import Misbehaviour

with_a_server = pytest.mark.parametrize(
    "harness", sorted(TRANSPORTS.keys() - {"outbox", "example"}), indirect=True
)
STUDENTS = [f"student{number}@contoso.edu" for number in range(120)]


@pytest_asyncio.fixture(params=TRANSPORTS)
async def harness(
    request: pytest.FixtureRequest, clock: MovableClock, tmp_path: Path
) -> AsyncIterator[Harness]:
    async with TRANSPORTS[request.param](clock, tmp_path) as harness:
        yield harness
        await harness.transport.close()
        await harness.transport.close()  # closing twice is no mistake


async def test_every_mail_of_a_slice_is_sent_once_and_answered_in_order(harness: Harness) -> None:
    outcomes = await deliver(harness, contract_letters(*STUDENTS))
    assert [type(outcome) for outcome in outcomes] == [Sent] * len(STUDENTS)
    assert harness.arrived() == Counter(STUDENTS)


async def test_an_empty_slice_has_no_outcomes(harness: Harness) -> None:
    assert await deliver(harness, []) == []


async def test_nothing_leaves_without_permission(harness: Harness) -> None:
    outcomes = await deliver(harness, contract_letters(*STUDENTS[:9]), leave=0)
    assert {type(outcome) for outcome in outcomes} == {Untried}
    assert not harness.arrived()


@pytest.mark.parametrize("leave", [1, 2, 3, 5])
async def test_what_is_left_when_the_permission_ends_is_untried(
    harness: Harness, leave: int
) -> None:
    outcomes = await deliver(harness, contract_letters(*STUDENTS), leave=leave)
    assert {type(outcome) for outcome in outcomes} <= {Sent, Untried}
    assert Untried in {type(outcome) for outcome in outcomes}


async def test_the_same_address_twice_gets_both_mails(harness: Harness) -> None:
    mails = contract_letters("ada@contoso.edu", "bob@contoso.edu", "ada@contoso.edu")
    outcomes = await deliver(harness, mails)
    assert [type(outcome) for outcome in outcomes] == [Sent] * 3
    assert harness.arrived() == Counter({"ada@contoso.edu": 2, "bob@contoso.edu": 1})


async def test_a_local_part_that_is_not_ascii_is_sent_or_refused_with_a_reason(
    harness: Harness,
) -> None:
    [mail] = contract_letters("jürgen@contoso.edu")
    [outcome] = await deliver(harness, [mail])
    if harness.takes_utf8:
        assert isinstance(outcome, Sent)
    else:
        assert isinstance(outcome, Rejected)
        assert not outcome.address_fault
        assert "ASCII" in outcome.words


async def test_a_lane_works_again_after_it_was_closed(harness: Harness) -> None:
    lane = harness.transport.lane()
    for mail in contract_letters("ada@contoso.edu", "bob@contoso.edu"):
        [outcome] = await lane.send([mail], Permit())
        assert isinstance(outcome, Sent)
        await lane.close()
        await lane.close()


@pytest.mark.parametrize("harness", sorted(TRANSPORTS.keys() - {"example"}), indirect=True)
async def test_the_capabilities_are_true(harness: Harness, request: pytest.FixtureRequest) -> None:
    can = entries.TRANSPORTS[request.node.callspec.params["harness"]].capabilities
    assert can.utf8_local_part >= harness.takes_utf8
    assert (can.doubt is DoubtSettling.STATUS_CALL) == harness.can_be_asked
    lane = harness.transport.lane()
    for _ in range(2):
        harness.clock.move(1.0)
        await lane.send(contract_letters("ada@contoso.edu"), Permit())
    await lane.close()
    await harness.look()
    assert harness.arrived().total() == (1 if can.idempotent_repeat else 2)


async def test_a_limit_is_kept(harness: Harness) -> None:
    storage = MemoryStorage(harness.clock, STORAGE_NAMES)
    await rate_limits.set_limit(storage.tables, RateLimit(TRANSPORT, 10.0))
    pacer = Pacer(storage.tables, harness.clock, "sender.1", lanes=1, lease_s=30.0)
    await pacer.keep_alive(must_know=True)
    paced = PacedTransport(harness.transport, pacer, harness.clock)
    began = harness.clock.monotonic()
    outcomes = await deliver(harness, contract_letters(*STUDENTS[:50]), transport=paced)
    assert [type(outcome) for outcome in outcomes] == [Sent] * 50
    assert harness.clock.monotonic() - began >= 3.5  # the first ten go at once


@with_a_server
async def test_a_temporary_refusal_is_deferred(harness: Harness) -> None:
    [outcome] = await deliver(harness, contract_letters(harness.address("temp-fail")))
    assert isinstance(outcome, Deferred)
    assert outcome.words
    assert not harness.arrived()


@with_a_server
async def test_a_bad_recipient_is_named_and_all_others_are_sent(harness: Harness) -> None:
    refused, bad = harness.address("perm-fail"), harness.address("bad")
    people = [*STUDENTS[:30], refused, *STUDENTS[30:60], bad, *STUDENTS[60:90]]
    outcomes = dict(zip(people, await deliver(harness, contract_letters(*people)), strict=True))
    found = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, Sent)}
    assert found.keys() == {refused, bad}
    assert all(isinstance(outcome, Rejected) and outcome.words for outcome in found.values())
    named = found[bad]
    assert isinstance(named, Rejected)
    assert named.address_fault
    assert harness.arrived() == Counter(STUDENTS[:90])


@with_a_server
async def test_a_lost_reply_is_in_doubt_unless_it_can_be_asked_for(harness: Harness) -> None:
    lost = harness.address("drop-after-accept")
    [outcome] = await deliver(harness, contract_letters(lost))
    assert isinstance(outcome, Sent if harness.can_be_asked else Unknown)
    assert harness.arrived() == Counter([lost])


@with_a_server
async def test_a_lost_reply_leaves_nobody_else_in_silence(harness: Harness) -> None:
    people = [*STUDENTS[:5], harness.address("drop-after-accept"), *STUDENTS[5:10]]
    outcomes = await deliver(harness, contract_letters(*people))
    assert {type(outcome) for outcome in outcomes} <= {Sent, Unknown}
    assert harness.arrived() <= Counter(people)  # nobody twice


@with_a_server
async def test_a_slow_server_is_waited_for(harness: Harness) -> None:
    mails = contract_letters("slow@contoso.edu")
    sending = asyncio.create_task(deliver(harness, mails))
    await soon(harness.slow_mail_waits())
    assert not sending.done()
    harness.release()
    [outcome] = await sending
    assert isinstance(outcome, Sent)


@with_a_server
async def test_a_sender_that_dies_in_a_call_leaves_its_mails_handed_over(harness: Harness) -> None:
    mails = contract_letters("slow@contoso.edu", "ada@contoso.edu")
    watch = ContractWatch(harness, {mail.position: mail.recipient for mail in mails})
    sending = asyncio.create_task(harness.transport.lane().send(mails, watch))
    await soon(harness.slow_mail_waits())
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    slow = mails[0].position
    assert slow in watch.handed
    assert slow not in watch.answers


@with_a_server
@pytest.mark.parametrize("how", list(Misbehaviour))
async def test_nothing_that_a_server_says_is_an_exception(
    harness: Harness, how: Misbehaviour
) -> None:
    transport = harness.with_hostile_server(how)
    outcomes = await deliver(harness, contract_letters(*STUDENTS[:3]), transport=transport)
    await transport.close()
    assert {type(outcome) for outcome in outcomes} <= {Deferred, Unknown}
    assert not harness.arrived()


@with_a_server
async def test_a_server_that_is_away_costs_nobody_an_attempt(harness: Harness) -> None:
    transport = harness.to_nowhere()
    outcomes = await deliver(harness, contract_letters(*STUDENTS[:3]), transport=transport)
    await transport.close()
    for outcome in outcomes:
        assert isinstance(outcome, Deferred)
        assert (outcome.scope, outcome.reached) == (Scope.PROVIDER, False)
        assert outcome.fault
