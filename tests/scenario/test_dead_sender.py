"""A dead sender: its announcements are settled by its journal, or once its lease has run out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from postroom.domain.delivery import State
from postroom.domain.message import Books, OnDoubt
from postroom.flow.send import BUSY_DELAY_S, ItemResult
from postroom.records.names import DEAD_LETTER_QUEUE
from postroom.storage.port import Claim, Queues, Unavailable
from tests.clock import soon
from tests.scenario.town import CLAIM_S, RULES, Town, once_each

NAMES = ["ada", "bob", "slow", "tom", "zoe"]  # in the order in which they are mailed


async def killed_in_the_middle(town: Town, on_doubt: OnDoubt, machine: str = "here") -> str:
    """Ada and Bob are answered, slow is on the wire, Tom and Zoe are announced only."""
    ref = await town.mailing(*NAMES, on_doubt=on_doubt)
    clerk = await town.clerk(machine=machine)
    await clerk.take_until(town.sink.is_waiting.wait())
    assert set((await town.states(ref)).values()) == {State.SENDING}
    await clerk.die()
    return ref


async def test_a_journal_on_this_machine_tells_exactly_who_is_in_doubt(town: Town) -> None:
    ref = await killed_in_the_middle(town, OnDoubt.HOLD)
    await town.open_sender()
    await town.quiet()  # at once: nobody waits for the lease of the dead
    assert town.arrived() == once_each(NAMES)
    states = await town.states(ref)
    assert states.pop("slow") is State.HELD
    assert set(states.values()) == {State.SENT}
    assert (await town.read(ref)).books == Books(sent=4, held=1, doubts=1)


async def test_with_resend_only_the_one_on_the_wire_may_get_a_second_copy(town: Town) -> None:
    ref = await killed_in_the_middle(town, OnDoubt.RESEND)
    await town.open_sender()
    town.sink.options = town.answering_at_once()
    await town.quiet()
    assert town.arrived() == once_each(NAMES) + once_each(["slow"])
    assert (await town.read(ref)).books == Books(sent=5, doubts=1)
    ids = {mail.message_id for mail in town.sink.mails}
    assert len(ids) == len(NAMES)


async def test_the_words_of_the_answers_come_from_the_journal(town: Town) -> None:
    ref = await killed_in_the_middle(town, OnDoubt.HOLD)
    await town.open_sender()
    await town.quiet()
    assert (await town.fates(ref))["ada"] == (State.SENT, "250 2.0.0 Ok: queued")


async def test_the_journal_of_the_dead_is_forgotten_once_all_is_settled(town: Town) -> None:
    await killed_in_the_middle(town, OnDoubt.HOLD)
    role = await town.open_sender()
    await town.quiet()
    await town.pass_time(11)
    await role.step()
    left = {path.name for path in (town.folder / "here").iterdir()}
    assert left == {role.lease.owner}


async def test_a_sender_of_another_machine_is_left_alone_while_its_lease_runs(town: Town) -> None:
    ref = await town.mailing(*NAMES)
    clerk = await town.clerk(machine="elsewhere")
    other = await town.clerk("clerk.2")
    await clerk.take_until(town.sink.is_waiting.wait())
    town.clock.move(CLAIM_S)  # the item is there again
    await clerk.hold_lease()
    await other.hold_lease()
    assert await other.take() is ItemResult.BUSY
    assert set((await town.states(ref)).values()) == {State.SENDING}
    town.sink.release()
    assert await clerk.finish() is ItemResult.LOST  # of the item, not of what was sent
    town.clock.move(BUSY_DELAY_S)
    assert await other.take() is ItemResult.IDLE
    assert town.arrived() == once_each(NAMES)
    assert (await town.read(ref)).books == Books(sent=5)


@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_when_the_lease_is_over_the_announced_are_settled_by_policy(
    town: Town, on_doubt: OnDoubt
) -> None:
    ref = await killed_in_the_middle(town, on_doubt, machine="elsewhere")
    await town.open_sender()
    town.sink.options = town.answering_at_once()
    await town.live_through(330, every_s=30)
    message = await town.read(ref)
    if on_doubt is OnDoubt.HOLD:
        assert town.arrived() == once_each(["ada", "bob", "slow"])
        assert message.books == Books(held=5, doubts=5)
    else:
        assert set(town.arrived()) == set(NAMES)
        assert max(town.arrived().values()) == 2
        assert message.books == Books(sent=5, doubts=5)


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
async def test_what_one_lane_was_answered_says_nothing_of_what_another_sent_after_it(
    town: Town, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Between them storage does not tell whether the item was given back."""
    ref = await town.mailing("slow", on_doubt=OnDoubt.HOLD)
    clerk = await town.clerk()
    with monkeypatch.context() as for_now:
        for_now.setattr(town.sink, "script", lambda _recipient: b"temp-fail")
        for_now.setattr(town.storage.queues, "release", unanswered(town.storage.queues, is_done))
        with pytest.raises(Unavailable):
            await clerk.take()
    clerk.work_in_lane(1)
    town.clock.move(max(CLAIM_S, RULES.longest_s))
    await clerk.hold_lease()
    await clerk.take_until(town.sink.is_waiting.wait())
    await clerk.die()
    town.sink.options = town.answering_at_once()
    await town.open_sender()
    await town.live_through(2 * CLAIM_S, every_s=CLAIM_S)
    assert (await town.states(ref))["slow"] is State.HELD
    assert town.arrived() == once_each(["slow"])


def unanswered(queues: Queues, is_done: bool) -> Callable[..., Awaitable[None]]:
    release = queues.release

    async def lost(claim: Claim, *, delay_s: float = 0.0) -> None:
        if is_done:
            await release(claim, delay_s=delay_s)
        raise Unavailable("no answer")

    return lost


async def test_what_was_recorded_before_the_death_is_not_in_doubt(town: Town) -> None:
    ref = await town.mailing(*NAMES, on_doubt=OnDoubt.HOLD)
    clerk = await town.clerk(machine="elsewhere", slice_size=2)
    await clerk.take_until(town.sink.is_waiting.wait())
    await clerk.die()
    await town.open_sender()
    await town.live_through(330, every_s=30)
    states = await town.states(ref)
    assert [name for name in NAMES if states[name] is State.HELD] == ["slow", "tom"]
    assert [name for name in NAMES if states[name] is State.SENT] == ["ada", "bob", "zoe"]
    assert town.arrived() == once_each(["ada", "bob", "slow", "zoe"])


async def test_a_sender_killed_again_and_again_while_it_makes_headway_holds_nobody(
    town: Town,
) -> None:
    """Five takes are fruitless only if nothing came of them."""
    names = [f"slow{number:02d}" for number in range(16)]
    ref = await town.mailing(*names)
    for life in range(7):
        clerk = await town.clerk(f"clerk.{life}")
        await clerk.take_until(town.sink.is_waiting.wait())
        town.sink.release()  # one is answered, and the next one is on the wire
        await soon(town.sink.is_waiting.wait())
        await clerk.die()
        town.sink.is_waiting.clear()
        town.clock.move(CLAIM_S)
    assert State.HELD not in (await town.states(ref)).values()
    assert await town.items(DEAD_LETTER_QUEUE) == 0
