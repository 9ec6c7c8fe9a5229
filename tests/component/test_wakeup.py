"""Wake-ups: a listener that is rung wakes at once, others in time, and dead ones are deleted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest

from postroom.wakeup import WakeUpListener, WakeUps

LONG_S = 300.0  # far longer than a test waits: only a ring ends it


async def heard(wakeup: WakeUpListener) -> bool:
    """Whether it rings soon."""
    async with asyncio.timeout(60):
        return await wakeup.wait(LONG_S)


def pipes_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_ring_from_another_process_wakes_every_listener_of_its_kind(
    tmp_path: Path,
) -> None:
    wakeups = WakeUps(tmp_path / "wakeups")
    first, second, other = wakeups.listen("sender"), wakeups.listen("sender"), wakeups.listen("web")
    WakeUps(tmp_path / "wakeups").ring("sender")
    assert await heard(first)
    assert await heard(second)
    assert not await other.wait(0)
    for wakeup in (first, second, other):
        wakeup.close()


async def test_a_ring_before_the_wait_is_not_lost_and_counts_once(tmp_path: Path) -> None:
    wakeup = WakeUps(tmp_path).listen("sender")
    wakeup.ring()
    wakeup.ring()
    assert await heard(wakeup)
    assert not await wakeup.wait(0)
    wakeup.close()


async def test_without_a_ring_the_wait_ends_in_time(tmp_path: Path) -> None:
    wakeup = WakeUps(tmp_path).listen("sender")
    assert not await wakeup.wait(0.001)
    wakeup.close()


async def test_a_closed_listener_leaves_no_pipe_and_may_be_rung(tmp_path: Path) -> None:
    wakeups = WakeUps(tmp_path)
    wakeups.listen("sender").close()
    assert pipes_in(tmp_path) == []
    wakeups.ring("sender")


async def test_the_pipe_of_a_dead_process_is_deleted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sender.1-dead")
    wakeups = WakeUps(tmp_path)
    wakeup = wakeups.listen("sender")
    wakeups.ring("sender")
    assert await heard(wakeup)
    assert not (tmp_path / "sender.1-dead").exists()
    wakeup.close()


async def test_ringing_where_nobody_has_ever_listened_is_fine(tmp_path: Path) -> None:
    WakeUps(tmp_path / "none").ring("sender")


async def test_a_full_pipe_does_not_block_the_ringer(tmp_path: Path) -> None:
    wakeups = WakeUps(tmp_path)
    wakeup = wakeups.listen("sender")
    [path] = pipes_in(tmp_path)
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"!" * 4096)
    os.close(pipe)
    wakeups.ring("sender")
    assert await heard(wakeup)
    wakeup.close()


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EAGAIN])
async def test_a_listener_that_closes_while_it_is_rung_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    wakeups = WakeUps(tmp_path)
    wakeup = wakeups.listen("sender")
    closed: list[int] = []
    close = os.close

    def broken(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    def noted(file: int) -> None:
        closed.append(file)
        close(file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", broken)
        patched.setattr(os, "close", noted)
        wakeups.ring("sender")
    assert len(closed) == 1  # not a file left open by it
    wakeup.close()


async def test_a_ringer_short_of_files_does_not_clear_the_living_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakeups = WakeUps(tmp_path)
    wakeup = wakeups.listen("sender")

    def too_many(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", too_many)
        wakeups.ring("sender")
    wakeups.ring("sender")
    assert await heard(wakeup)
    wakeup.close()
