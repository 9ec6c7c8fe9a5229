"""Whether the files that SQLite has open are still the ones at their paths.

A database that was deleted or replaced stays open, and takes writes that nobody will ever find. So
every commit is checked before it is acknowledged, and reads now and then. The two files of the log
are checked now and then, too: if one of them alone is deleted, an orderly stop still saves what is
in it. Files are compared by device and inode: while a file is open, no other one gets its inode
number. A file that is overwritten in place keeps its inode, and is not noticed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import structlog

from postroom.storage.port import StorageGone

log = structlog.get_logger("storage.sqlite")
LOOK_EVERY_S = 1.0  # a look takes as long as a small read

Identity = tuple[int, int] | None  # None: there is no such file


class FileWatch:
    """The database file and the two beside it, as they were right after they were opened."""

    def __init__(self, path: Path, *, every_s: float = LOOK_EVERY_S) -> None:
        self._path = str(path.absolute())
        self._names = (self._path, f"{self._path}-wal", f"{self._path}-shm")
        self._opened = [(name, _identity(name)) for name in self._names]
        self._every_s = every_s
        self._next_at = 0.0
        self.is_gone = False
        self.check()

    def check(self) -> None:
        """StorageGone, with a sentence for people, if a file is not the one that was opened."""
        for name, opened in self._opened:
            if opened is None or _identity(name) != opened:
                self._tell(is_gone=True, name=name)
                raise StorageGone(self._sentence(name))
        if self.is_gone:
            self._tell(is_gone=False, name=self._path)

    def check_now_and_then(self) -> None:
        """For reads; while a file is gone, every time."""
        now = time.monotonic()
        if now >= self._next_at or self.is_gone:
            self.check()
            self._next_at = now + self._every_s

    def check_commit(self) -> None:
        """Before a commit is acknowledged; by a single call of the system as a rule.

        Each call gives up the interpreter lock, and a busy event loop gives it back late.
        """
        if _identity(self._path) != self._opened[0][1]:
            self.check()
        self.check_now_and_then()

    def has_strangers(self) -> bool:
        """Whether a log of other processes stands beside the file: it is not ours to delete."""
        return any(_identity(name) not in (None, opened) for name, opened in self._opened[1:])

    def _tell(self, *, is_gone: bool, name: str) -> None:
        """Once, not at every call that is refused."""
        if is_gone and not self.is_gone:
            log.error("database_file_gone", file=name)
        elif self.is_gone and not is_gone:
            log.warning("database_file_back", file=name)
        self.is_gone = is_gone

    def _sentence(self, name: str) -> str:
        mend = "put it back, start again"
        if name != self._path:
            mend = "start them again: an orderly stop keeps everything"
        return (
            f"The database file {name} was deleted or replaced while Postroom was running. "
            f"Stop all roles, {mend}."
        )


def _identity(name: str) -> Identity:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino
