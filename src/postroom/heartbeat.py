"""Heartbeats: a role tells whoever watches it that its event loop still turns.

Under `serve` the supervisor holds the other end of the role's standard input, a socket: a role
writes a byte to it every second, and reads its end when the supervisor is gone. Under systemd with
WatchdogSec the same goes to the notification socket. A process that is stopped, deadlocked or in
an endless loop is silent, and is killed and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

BEAT_S = 1.0
BEAT = b"."
SUPERVISOR = 0  # file descriptor


def start(*, supervised: bool) -> asyncio.Task[None] | None:
    """Beat until the process ends; None if nobody listens."""
    watchdog = os.environ.get("NOTIFY_SOCKET", "") if "WATCHDOG_USEC" in os.environ else ""
    watchdog = "" if supervised else watchdog  # that is for the supervisor to answer
    if not supervised and not watchdog:
        return None
    if supervised:
        os.set_blocking(SUPERVISOR, False)
    return asyncio.create_task(_beat(supervised, watchdog))


async def _beat(supervised: bool, watchdog: str) -> None:
    while True:
        if supervised:
            with contextlib.suppress(OSError):  # full: it has not been read; closed: we stop soon
                os.write(SUPERVISOR, BEAT)
        if watchdog:
            _notify(watchdog, b"WATCHDOG=1")
        await asyncio.sleep(BEAT_S)


def _notify(address: str, state: bytes) -> None:
    """As sd_notify(3): an address that begins with @ is in the abstract namespace."""
    path = "\0" + address[1:] if address.startswith("@") else address
    with (
        contextlib.suppress(OSError),  # nobody reads: systemd has other worries
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifications,
    ):
        notifications.setblocking(False)
        notifications.sendto(state, path)
