"""Expiry against revival: a message past its age is brought back whole, or is gone to the last row.

Whoever acts, the other one may act before any call of his; and he may die after any write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import pytest

from postroom.actions import control_message
from postroom.domain.delivery import State
from postroom.domain.errors import NotFound, WrongState
from postroom.domain.message import Books
from postroom.flow import sweep
from postroom.storage.port import Storage, Unavailable
from tests.scenario.storm import Crossed, Storm
from tests.scenario.town import DAY_S, Town, once_each

TAKEN = ["ada", "tom", "uma", "zoe"]
PEOPLE = [*TAKEN, "perm-fail-once"]
KEEP_DAYS = 30
SWEEPS = 3  # as many as the message needs, and one more
SWEEP_S = 61.0

Act = Callable[[Storage, str, datetime], Awaitable[None]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, pairs: None) -> None:
    """Three batches in two groups, of which a sweep deletes two batches."""
    monkeypatch.setattr(sweep, "EXPIRED_BATCHES_A_SWEEP", 2)


async def peopled(town: Town) -> None:
    town.scheduler.keep_archive_days = KEEP_DAYS
    await town.found_list()
    await town.join(*PEOPLE)
    await town.open_sender()


async def past_its_age(town: Town) -> str:
    """A message in the archive, one of it failed, and no sweep has come yet; its ref."""
    town.sink.attempts.clear()
    town.sink.taken.clear()
    ref = await town.compose()
    await town.quiet()
    assert town.arrived() == once_each(TAKEN)
    assert await town.is_archived(ref)
    await town.pass_time((KEEP_DAYS + 1) * DAY_S)
    return ref


async def expire(storage: Storage, ref: str, now: datetime) -> None:
    for _ in range(SWEEPS):
        await sweep.expire_archive(storage, now, keep_days=KEEP_DAYS)


async def revive(storage: Storage, ref: str, now: datetime) -> None:
    await control_message.retry_failed(storage.tables, ref, now)


async def is_told(what: Awaitable[object]) -> bool:
    """Whether the person who retries learns that it cannot be."""
    try:
        await what
    except (WrongState, NotFound):
        return True
    return False


async def sweep_on(town: Town) -> None:
    await town.live_through(SWEEPS * SWEEP_S, every_s=SWEEP_S)


async def is_gone(town: Town, ref: str) -> bool:
    """But for an entry of today by which it would be found: that one goes with its age."""
    today = town.clock.now().strftime("%Y-%m-%d")
    left = await town.everything_about(ref)
    return set(left) <= {f"messagearchive/{today}/message{ref}"}


async def check_it_lives(town: Town, ref: str, at: int) -> None:
    assert town.arrived() == once_each(PEOPLE), at
    assert (await town.read(ref)).books == Books(sent=len(PEOPLE)), at
    assert await town.states(ref) == dict.fromkeys(PEOPLE, State.SENT), at
    assert await town.is_archived(ref), at


async def check_it_is_gone(town: Town, ref: str, at: int) -> None:
    assert await is_gone(town, ref), (at, await town.everything_about(ref))
    assert town.arrived() == once_each(TAKEN), at


async def check_nothing_outlives_it(town: Town, ref: str, at: int) -> None:
    await town.pass_time((KEEP_DAYS + 1) * DAY_S)
    await sweep_on(town)
    assert await town.everything_about(ref) == [], at


async def calls_in_peace(town: Town, act: Act, *, reads: bool) -> int:
    """How many calls the act makes of which one could be crossed."""

    async def nobody() -> None:
        raise AssertionError

    storage = Crossed(town.storage, -1, nobody, reads=reads)
    ref = await past_its_age(town)
    await act(storage, ref, town.clock.now())
    await sweep_on(town)
    await check_nothing_outlives_it(town, ref, -1)
    return storage.calls


@pytest.mark.slow
async def test_a_retry_while_a_message_expires_restores_it_completely_or_is_refused(
    town: Town, small: None
) -> None:
    await peopled(town)
    verdicts: list[bool] = []

    async def retry(ref: str, now: datetime) -> None:
        verdicts.append(await is_told(revive(town.storage, ref, now)))

    for at in range(await calls_in_peace(town, expire, reads=True)):
        ref, now = await past_its_age(town), town.clock.now()
        await expire(Crossed(town.storage, at, partial(retry, ref, now), reads=True), ref, now)
        await sweep_on(town)
        check = check_it_is_gone if verdicts[-1] else check_it_lives
        await check(town, ref, at)
        await check_nothing_outlives_it(town, ref, at)
    assert set(verdicts) == {True, False}  # both happened


async def test_a_retry_under_which_it_expires_is_refused_or_brings_it_back_whole(
    town: Town, small: None
) -> None:
    await peopled(town)
    verdicts: list[bool] = []
    for at in range(await calls_in_peace(town, revive, reads=True)):
        ref, now = await past_its_age(town), town.clock.now()
        crossed = Crossed(town.storage, at, partial(expire, town.storage, ref, now), reads=True)
        verdicts.append(await is_told(revive(crossed, ref, now)))
        await sweep_on(town)
        check = check_it_is_gone if verdicts[-1] else check_it_lives
        await check(town, ref, at)
        await check_nothing_outlives_it(town, ref, at)
    assert set(verdicts) == {True, False}


async def test_a_retry_under_which_a_part_expires_is_refused(town: Town, small: None) -> None:
    await peopled(town)
    ref, now = await past_its_age(town), town.clock.now()
    sweep_once = partial(sweep.expire_archive, town.storage, now, keep_days=KEEP_DAYS)
    crossed = Crossed(town.storage, 1, sweep_once)  # before the row that makes it young
    assert await is_told(revive(crossed, ref, now))
    assert not await is_gone(town, ref)
    assert await is_told(revive(town.storage, ref, now))
    await sweep_on(town)
    await check_it_is_gone(town, ref, 1)


async def die(town: Town, act: Act, at: int) -> str:
    """A message past its age, and somebody who died after his write of this number; its ref."""
    ref = await past_its_age(town)
    storm = Storm(town.storage)
    storm.strike(Unavailable("killed"), at=at, times=1, took_effect=True)
    with pytest.raises(Unavailable):
        await act(storm, ref, town.clock.now())
    return ref


async def lives_in_the_end(town: Town, ref: str, at: int) -> bool:
    """Whole, so that a retry brings it to everybody; else gone. Never half."""
    await sweep_on(town)
    lives = not await is_gone(town, ref)
    if lives and town.arrived() != once_each(PEOPLE):
        assert not await is_told(revive(town.storage, ref, town.clock.now())), at
        await town.quiet()
    check = check_it_lives if lives else check_it_is_gone
    await check(town, ref, at)
    await check_nothing_outlives_it(town, ref, at)
    return lives


@pytest.mark.parametrize("retries_first", [False, True])
async def test_a_sweep_that_dies_after_any_write_is_finished_by_a_later_one(
    town: Town, small: None, retries_first: bool
) -> None:
    await peopled(town)
    for at in range(await calls_in_peace(town, expire, reads=False)):
        ref = await die(town, expire, at)
        if retries_first:
            assert await is_told(revive(town.storage, ref, town.clock.now())), at
        assert not await lives_in_the_end(town, ref, at), at


async def test_a_retry_that_dies_after_any_write_leaves_it_whole_or_to_the_sweep(
    town: Town, small: None
) -> None:
    await peopled(town)
    for at in range(await calls_in_peace(town, revive, reads=False)):
        is_young = at > 0  # from the second write on
        assert await lives_in_the_end(town, await die(town, revive, at), at) is is_young, at


async def test_a_retry_that_dies_after_any_write_can_be_repeated(town: Town, small: None) -> None:
    await peopled(town)
    calls = await calls_in_peace(town, revive, reads=False)
    for at in range(calls):
        ref = await die(town, revive, at)
        is_back = at == calls - 1  # only its last write brings it back
        assert await is_told(revive(town.storage, ref, town.clock.now())) is is_back, at
        assert await lives_in_the_end(town, ref, at), at
