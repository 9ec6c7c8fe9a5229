"""A role tells systemd that it lives; one under the supervisor leaves that to the supervisor."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from postroom import heartbeat


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    return listener


async def test_it_beats_for_the_watchdog(systemd: socket.socket) -> None:
    beating = heartbeat.start(supervised=False)
    assert beating
    with systemd:
        said = await asyncio.get_running_loop().sock_recv(systemd, 100)
    beating.cancel()
    assert said == b"WATCHDOG=1"


async def test_a_watchdog_that_does_not_listen_holds_up_nobody(systemd: socket.socket) -> None:
    with systemd:
        for _ in range(2_000):  # more than a socket holds
            heartbeat._notify(systemd.getsockname(), b"WATCHDOG=1")


async def test_without_anybody_who_listens_there_is_no_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert heartbeat.start(supervised=False) is None
