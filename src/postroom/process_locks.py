"""Which processes of this machine are alive: each holds a lock on a file named after it.

The kernel frees the lock when a process ends, however it ends. So whoever finds the file of a
lease's holder unlocked knows that the holder is dead, and need not wait until its lease runs out.
A file that is not here says nothing: the holder may be on another machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

OLD_S = 24 * 3600.0  # much longer than a lease: until then somebody may ask


class ProcessLocks:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """From here until we end or release it. Files of the long dead are cleared away."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clear_away_old()
        hidden = self._folder / f".{owner}"
        lock = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._folder / owner)  # it appears locked: nobody takes us for dead
        self._held[owner] = lock

    def release(self, owner: str) -> None:
        (self._folder / owner).unlink(missing_ok=True)
        os.close(self._held.pop(owner))

    def is_dead(self, owner: str) -> bool:
        """Known to be dead; False also if nobody can tell."""
        return owner not in self._held and is_unlocked(self._folder / owner) is True

    def _clear_away_old(self) -> None:
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another process may be at it, too
                if path.stat().st_mtime < time.time() - OLD_S and is_unlocked(path):
                    path.unlink()


def is_unlocked(path: Path) -> bool | None:
    """Whether nobody holds the lock; None if it is not ours to judge, or not there."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may ask at the same moment
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
