"""`serve` replaces a role that hangs, and starts again at once after everything was killed."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from postroom.domain.message import OnDoubt
from postroom.wiring import Parts
from postroom_bench.installation import Installation, Process, books, is_completed, until

PEOPLE = 3_000
SILENCE_S = "10"  # after which a child hangs; far more than a busy machine makes one wait
LONG_S = "600"  # a lease that nobody waits for within this test
SLOW_SINK = ("--chunking", "--delay", "20")


async def pid_of(installation: Installation, role: str) -> int:
    await until(lambda: _is_there(installation, role), within_s=120)
    pid = _find_pid(installation, role)
    assert pid
    return pid


async def _is_there(installation: Installation, role: str) -> bool:
    return _find_pid(installation, role) is not None


def _find_pid(installation: Installation, role: str) -> int | None:
    """Every role listens to its bell, which is named after it."""
    wakeups = installation.folder / "data" / "bells"
    names = os.listdir(wakeups) if wakeups.is_dir() else []
    found = [name for name in names if name.startswith(f"{role}.")]
    pids = [int(name.split(".")[1].partition("-")[0]) for name in found]
    roles = [pid for pid in pids if role.encode() in _command_of(pid)]
    return roles[0] if roles else None


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes()  # which the nursery sets
    except OSError:
        return b""


async def sending(installation: Installation, parts: Parts) -> str:
    """A message on its way, under `hold`: nobody may get it twice."""
    await installation.people(parts, PEOPLE)
    ref = await installation.message(parts, OnDoubt.HOLD)
    await until(lambda: _has_begun(installation), within_s=120)
    return ref


async def _has_begun(installation: Installation) -> bool:
    return await installation.arrived_number() > 100


async def settled(installation: Installation, parts: Parts, ref: str) -> None:
    """Everybody is accounted for, nobody was mailed twice."""
    await until(lambda: is_completed(parts, ref), within_s=120)
    message, arrived = await books(parts, ref), await installation.arrived()
    assert message.books.open == 0
    assert message.books.sent + message.books.held == PEOPLE
    assert len(arrived) >= message.books.sent
    assert max(arrived.values()) == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ["sender", "scheduler"])
async def test_a_role_that_hangs_is_replaced_and_its_work_is_settled(
    tmp_path: Path, role: str
) -> None:
    async with Installation(tmp_path, SLOW_SINK) as installation, installation.parts() as parts:
        installation.overrides |= {"POSTROOM_LEASE_S": SILENCE_S, "POSTROOM_ITEMS_AHEAD": "2"}
        serve = await installation.start("serve")
        ref = await sending(installation, parts)
        hung = await pid_of(installation, role)
        os.kill(hung, signal.SIGSTOP)
        await settled(installation, parts, ref)
        await until(lambda: _says(serve, "role_hangs", role), within_s=120)
        assert not _command_of(hung)


async def _says(process: Process, event: str, role: str) -> bool:
    lines = process.lines()
    return any((line.get("event"), line.get("role")) == (event, role) for line in lines)


@pytest.mark.timeout(900)
async def test_after_a_kill_of_everything_nobody_waits_for_a_lease(tmp_path: Path) -> None:
    async with Installation(tmp_path, SLOW_SINK) as installation, installation.parts() as parts:
        installation.overrides |= {"POSTROOM_LEASE_S": LONG_S, "POSTROOM_ITEMS_AHEAD": "2"}
        serve = await installation.start("serve")
        ref = await sending(installation, parts)
        pids = [await pid_of(installation, role) for role in ("web", "scheduler", "sender")]
        await serve.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await installation.start("serve")
        await settled(installation, parts, ref)


@pytest.mark.timeout(900)
async def test_a_scheduler_that_dies_or_hangs_is_replaced_without_waiting_for_its_lease(
    tmp_path: Path,
) -> None:
    """Its lease lasts ten minutes, so whoever leads before that knows that it is dead."""
    async with Installation(tmp_path, SLOW_SINK) as installation, installation.parts() as parts:
        installation.overrides |= {"POSTROOM_LEASE_S": LONG_S, "POSTROOM_ITEMS_AHEAD": "2"}
        serve = await installation.start("serve")
        ref = await sending(installation, parts)
        for kills, numbers in enumerate(([signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL]), 1):
            scheduler = await pid_of(installation, "scheduler")
            for number in numbers:
                os.kill(scheduler, number)
            await until(partial(_has_led, serve, kills + 1), within_s=120)
        await settled(installation, parts, ref)
        events = [event for event, _owner in leading(serve)]
    assert events[:5] == ["scheduler_leads", "role_died"] * 2 + ["scheduler_leads"]


async def _has_led(serve: Process, times: int) -> bool:
    return len({owner for event, owner in leading(serve) if event == "scheduler_leads"}) >= times


def leading(serve: Process) -> list[tuple[str, str]]:
    """Who led, and when a scheduler died, in order."""
    return [
        (line["event"], line.get("owner", ""))
        for line in serve.lines()
        if line.get("event") == "scheduler_leads"
        or (line.get("event"), line.get("role")) == ("role_died", "scheduler")
    ]
