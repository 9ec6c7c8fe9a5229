"""kill -9 of a sender at full speed, again and again, and SIGTERM as often."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from postroom.domain.message import Message, OnDoubt
from postroom.wiring import Parts
from postroom_bench.installation import Installation, Process, books, until

PEOPLE = 20_000
KILLS = 20
STOPS = 10
IN_DOUBT_A_KILL_MAX = 32  # four lanes, each with eight mails on the wire
AT_SPEED = 250  # mails after a start, before the next blow falls


async def wait_for_speed(installation: Installation, sender: Process) -> None:
    since = await installation.arrived_number()

    async def check() -> bool:
        assert sender.is_running, sender.log.read_text()[-2000:]
        return await installation.arrived_number() >= since + AT_SPEED

    await until(check, within_s=120, every_s=0.01)


async def wait_until_settled(parts: Parts, ref: str, installation: Installation) -> Message:
    """Nothing of a dead sender is undecided any more."""
    journals = installation.folder / "data" / "journals"

    async def check() -> bool:
        return sum(path.name[0] != "." for path in journals.iterdir()) <= 1

    await until(check, within_s=120)
    return await books(parts, ref)


async def wait_until_completed(parts: Parts, ref: str) -> Message:
    async def check() -> bool:
        return (await books(parts, ref)).completed_at is not None

    await until(check, within_s=120)
    return await books(parts, ref)


def assert_books_balance(message: Message) -> None:
    assert message.books.total == message.audience == PEOPLE
    assert not message.books.open


@pytest.mark.timeout(900)
@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_twenty_kills_lose_nobody_and_leave_little_doubt(
    on_doubt: OnDoubt, tmp_path: Path
) -> None:
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        await installation.people(parts, PEOPLE)
        await installation.start("scheduler")
        ref = await installation.message(parts, on_doubt)
        doubts = [0]
        sender = await installation.start("sender")
        for _ in range(KILLS):
            await wait_for_speed(installation, sender)
            await sender.kill()
            sender = await installation.start("sender")
            message = await wait_until_settled(parts, ref, installation)
            doubts.append(message.books.doubts)
        message = await wait_until_completed(parts, ref)
        arrived = await installation.arrived()
    per_kill = [after - before for before, after in pairwise(doubts)]
    print(f"in doubt after each kill: {per_kill}")  # pytest -rP shows it
    assert_books_balance(message)
    assert max(per_kill) <= IN_DOUBT_A_KILL_MAX
    assert sum(per_kill) > 0, "no kill hit a mail on the wire: it was not at full speed"
    twice = sum(count - 1 for count in arrived.values())
    if on_doubt is OnDoubt.HOLD:
        assert twice == 0
        assert len(arrived) + message.books.held >= PEOPLE
        assert message.books.sent == PEOPLE - message.books.held
    else:
        assert len(arrived) == PEOPLE == message.books.sent
        assert twice <= message.books.doubts


@pytest.mark.timeout(900)
async def test_ten_planned_stops_leave_no_doubt_at_all(tmp_path: Path) -> None:
    async with Installation(tmp_path) as installation, installation.parts() as parts:
        await installation.people(parts, PEOPLE)
        await installation.start("scheduler")
        ref = await installation.message(parts)
        for _ in range(STOPS):
            sender = await installation.start("sender")
            await wait_for_speed(installation, sender)
            assert await sender.terminate(within_s=120) == 0, sender.log.read_text()[-2000:]
        await installation.start("sender")
        message = await wait_until_completed(parts, ref)
        arrived = await installation.arrived()
    assert_books_balance(message)
    assert message.books.doubts == 0
    assert len(arrived) == PEOPLE
    assert set(arrived.values()) == {1}
