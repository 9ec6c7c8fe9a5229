"""Wake-ups: roles on one machine wake each other at once instead of polling for seconds.

A listener is a named pipe, <folder>/<kind>.<number>; ringing writes one byte into every pipe of the
kind. A lost wake-up does no harm, because the role polls anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

SCHEDULER, SENDER, WEB = "scheduler", "sender", "web"
MAILBOX_READER = "mailbox-reader"  # a part of the scheduler that other roles do not wake
BACKUP_KEEPER = "backup-keeper"  # as well
SETTINGS = "settings"  # every process: settings were changed
STORAGE_FULL = "storage-full"  # the web role: another one could not write


class WakeUpListener:
    """Waits until it is rung, or was rung since the last wait."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rung = asyncio.Event()
        self._pipe = _open_pipe(path)
        asyncio.get_running_loop().add_reader(self._pipe, self._on_ring)

    async def wait(self, seconds: float) -> bool:
        """Return whether it was rung; False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def ring(self) -> None:
        """Ring from within the process."""
        self._rung.set()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._path.unlink(missing_ok=True)

    def _on_ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 4096)
        self._rung.set()


def _open_pipe(path: Path) -> int:
    """Create it under a hidden name, because `ring` deletes a pipe that has no reader yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name("." + path.name)
    os.mkfifo(hidden, 0o600)
    # Read and write, so that the pipe never ends when a ringer closes it.
    pipe = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    hidden.rename(path)
    return pipe


@dataclass
class WakeUps:
    folder: Path

    def listen(self, kind: str) -> WakeUpListener:
        return WakeUpListener(self.folder / f"{kind}.{os.getpid()}-{secrets.token_hex(4)}")

    def ring(self, kind: str) -> None:
        """Wake every listener of the kind; delete the pipes of dead processes."""
        try:
            names = os.listdir(self.folder)  # Path.glob is ten times slower
        except FileNotFoundError:
            return  # nobody listens yet
        for name in names:
            if name.startswith(f"{kind}."):
                with contextlib.suppress(OSError):  # full: it is rung already; or closed meanwhile
                    _ring(self.folder / name)


def _ring(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody reads it any more
            path.unlink(missing_ok=True)
        return
    try:
        os.write(pipe, b"!")
    finally:
        os.close(pipe)
