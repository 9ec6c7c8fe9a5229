"""Heartbeats: a role shows its supervisor that its event loop is running.

Under `serve` a role's standard input is a socket to the supervisor: the role writes a line with its
vitals to it every second, and reads end-of-file when the supervisor has died. Under systemd with
WatchdogSec the notification socket is used. A process that is stopped, deadlocked or in an endless
loop is silent, and is killed and restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

import msgspec

from postroom.domain.instance import Vitals

BEAT_S = 1.0
LINE_BYTES_MAX = 4096  # far more than a line of vitals
SUPERVISOR = 0  # file descriptor


def start(*, supervised: bool, vitals: Callable[[], Vitals] = Vitals) -> asyncio.Task[None] | None:
    """Send heartbeats until the process ends; None if nobody listens."""
    watchdog = os.environ.get("NOTIFY_SOCKET", "") if "WATCHDOG_USEC" in os.environ else ""
    if not supervised and not watchdog:  # under `serve` the supervisor notifies systemd
        return None
    if supervised:
        os.set_blocking(SUPERVISOR, False)

    async def beat() -> None:
        while True:
            if supervised:
                with contextlib.suppress(OSError):  # full: it is not read; closed: we stop soon
                    os.write(SUPERVISOR, msgspec.json.encode(vitals()) + b"\n")
            else:
                _notify(watchdog, b"WATCHDOG=1")
            await asyncio.sleep(BEAT_S)

    return asyncio.create_task(beat())


class VitalsReader:
    """Assembles the lines of heartbeats; a partial line still counts as a heartbeat."""

    def __init__(self) -> None:
        self.last = Vitals()
        self._rest = b""

    def feed(self, received: bytes) -> None:
        *lines, self._rest = (self._rest + received)[-2 * LINE_BYTES_MAX :].split(b"\n")
        if lines:
            with contextlib.suppress(msgspec.DecodeError):
                self.last = msgspec.json.decode(lines[-1], type=Vitals)


def _notify(address: str, state: bytes) -> None:
    """As sd_notify(3): an address that begins with @ is in the abstract namespace."""
    path = "\0" + address[1:] if address.startswith("@") else address
    with (
        contextlib.suppress(OSError),  # nobody reads it
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifications,
    ):
        notifications.setblocking(False)
        notifications.sendto(state, path)
