"""A slow relay: a stop waits for what is on the wire, a lapsed claim sends nobody twice."""

from __future__ import annotations

import asyncio

from postroom.domain.delivery import State
from postroom.domain.message import Books
from postroom.records import leases
from postroom.sender import Sender
from tests.clock import PATIENCE_S, soon
from tests.scenario.town import CLAIM_S, LEASE_S, Town, once_each, students

NAMES = ["slow", *students(30)]  # in the order in which they are mailed


async def start(town: Town) -> tuple[str, Sender]:
    """A sender that waits for the relay's answer to its first mail."""
    ref = await town.mailing(*NAMES)
    role = await town.open_sender(lanes=1, transport=town.transport(window=1))
    await role.step()
    await soon(town.sink.is_waiting.wait())
    return ref, role


async def test_a_planned_stop_waits_for_the_answer_and_leaves_no_doubt(town: Town) -> None:
    ref, role = await start(town)
    role.stop_handing_over()
    closing = asyncio.create_task(town.close_sender(role))
    await town.pass_time(5)
    assert not closing.done()
    town.sink.release()
    await soon(closing)
    assert town.arrived() == once_each(["slow"])
    states = await town.states(ref)
    assert states.pop("slow") is State.SENT
    assert set(states.values()) == {State.QUEUED}
    [ledger] = await town.ledgers(ref)
    assert ledger.deferred == {}  # untried: nobody lost an attempt
    assert (await town.read(ref)).books == Books(queued=30, sent=1)


async def test_the_next_sender_continues_at_once_where_a_planned_stop_ended(town: Town) -> None:
    ref, role = await start(town)
    role.stop_handing_over()
    town.sink.release()
    await town.close_sender(role)
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=31)
    assert not list((town.folder / "here").glob("sender.1*"))


async def test_the_lease_is_renewed_while_a_stop_waits(town: Town) -> None:
    _, role = await start(town)
    owner = role.lease.owner
    role.stop_handing_over()
    closing = asyncio.create_task(town.close_sender(role))
    for _ in range(5):
        await town.pass_time(LEASE_S / 2)
        now = town.clock.now()
        assert await leases.holder(town.storage.tables, leases.sender_lease(owner), now=now)
    town.sink.release()
    await soon(closing)
    now = town.clock.now()
    assert await leases.holder(town.storage.tables, leases.sender_lease(owner), now=now) is None


async def test_a_stop_that_takes_too_long_leaves_the_rest_to_the_journal(town: Town) -> None:
    ref, role = await start(town)
    await town.close_sender(role, grace_s=0)
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.quiet()
    assert town.arrived() == once_each(NAMES) + once_each(["slow"])
    assert (await town.read(ref)).books == Books(sent=31, doubts=1)


async def test_an_item_whose_claim_lapsed_in_hand_is_not_sent_twice(town: Town) -> None:
    ref, _ = await start(town)
    others = [await town.open_sender(), await town.open_sender(machine="elsewhere")]
    await town.pass_time(CLAIM_S + 1)
    for other in others:
        assert await other.step()  # the item is there again: both look at it, one after the other
        assert await other.wakeup.wait(PATIENCE_S)
        assert other.is_idle
        await town.pass_time(5)
    assert town.arrived() == once_each(["slow"])
    town.sink.release()
    await town.quiet()
    await town.pass_time(CLAIM_S)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=31)
    assert await town.items() == 0


async def test_a_lane_of_the_same_sender_keeps_off_a_batch_in_hand(town: Town) -> None:
    ref = await town.mailing(*NAMES)
    role = await town.open_sender(lanes=2, transport=town.transport(window=1))
    await role.step()
    await soon(town.sink.is_waiting.wait())
    await town.pass_time(CLAIM_S + 1)
    assert await role.step()
    assert await role.wakeup.wait(PATIENCE_S)
    assert town.arrived() == once_each(["slow"])
    town.sink.release()
    await town.quiet()
    await town.pass_time(CLAIM_S)
    await town.quiet()
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=31)
