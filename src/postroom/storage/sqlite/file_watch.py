"""Checks that the files SQLite has open are still at their paths.

A database file that was deleted or replaced stays open and accepts writes that no process will ever
find. So every commit is checked before it is acknowledged, and reads are checked now and then. The
two files of the write-ahead log are checked now and then as well: if only one of them was deleted,
an orderly stop still saves its content. Files are compared by device and inode: no other file gets
the inode number of an open file. A file that is overwritten in place is not noticed.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import structlog

from postroom.storage.port import StorageGone

log = structlog.get_logger("storage.sqlite")
CHECK_EVERY_S = 1.0  # a check takes as long as a small read

Identity = tuple[int, int] | None  # None: there is no such file


class FileWatch:
    """The database file and the two files of its log, as they were when opened."""

    def __init__(self, path: Path, *, every_s: float = CHECK_EVERY_S) -> None:
        self._path = str(path.absolute())
        self._names = (self._path, f"{self._path}-wal", f"{self._path}-shm")
        self._opened = [(name, _identity(name)) for name in self._names]
        self._every_s = every_s
        self._next_at = 0.0
        self._changing = threading.Lock()
        self.is_gone = False
        self.check()

    def check(self) -> None:
        """StorageGone if a file is not the one that was opened."""
        for name, opened in self._opened:
            if opened is not None and _identity(name) == opened:
                continue
            if self._has_changed(is_gone=True):
                log.error("database_file_gone", file=name)
            remedy = "put it back, start again"
            if name != self._path:
                remedy = "start them again: an orderly stop keeps everything"
            raise StorageGone(
                f"The database file {name} was deleted or replaced while Postroom was running. "
                f"Stop all roles, {remedy}."
            )
        if self.is_gone and self._has_changed(is_gone=False):
            log.warning("database_file_back", file=self._path)

    def check_now_and_then(self) -> None:
        """For reads; while a file is missing, at every read."""
        now = time.monotonic()
        if now >= self._next_at or self.is_gone:
            self.check()
            self._next_at = now + self._every_s

    def check_commit(self) -> None:
        """Check before a commit is acknowledged, usually by a single system call.

        Each system call releases the interpreter lock, and a busy event loop gives it back late.
        """
        if _identity(self._path) != self._opened[0][1]:
            self.check()
        self.check_now_and_then()

    def _has_changed(self, *, is_gone: bool) -> bool:
        """Remember the state; True for one caller per change, so that it is logged once.

        The writer's thread and the readers' often notice at the same moment.
        """
        with self._changing:
            changed = self.is_gone != is_gone
            self.is_gone = is_gone
            return changed

    def has_foreign_log(self) -> bool:
        """Whether the log beside the file belongs to other processes and must not be deleted."""
        return any(_identity(name) not in (None, opened) for name, opened in self._opened[1:])


def _identity(name: str) -> Identity:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino
