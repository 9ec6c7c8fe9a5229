"""Which processes of this machine are alive: each holds a lock on a file named after it.

The kernel frees the lock when a process ends, however it ends. If the file of a lease's holder is
unlocked, the holder is dead, and nobody has to wait until the lease expires. A missing file proves
nothing, because the holder may be on another machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

OLD_S = 24 * 3600.0  # much longer than a lease, during which somebody may check


class ProcessLocks:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """Hold the lock until release or exit; delete the files of processes that died long ago."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another process may be deleting it
                if path.stat().st_mtime < time.time() - OLD_S and is_unlocked(path):
                    path.unlink()
        hidden = self._folder / f".{owner}"
        lock = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._folder / owner)  # it appears locked, so that nobody considers us dead
        self._held[owner] = lock

    def release(self, owner: str) -> None:
        (self._folder / owner).unlink(missing_ok=True)
        os.close(self._held.pop(owner))

    def is_dead(self, owner: str) -> bool:
        """Return whether it is known to be dead; False if unknown."""
        return owner not in self._held and is_unlocked(self._folder / owner) is True


def is_unlocked(path: Path) -> bool | None:
    """Return whether nobody holds the lock; None if the file is missing or unreadable."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may check, too
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
