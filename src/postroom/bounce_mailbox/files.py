"""Mails that are files: reading the beginning of one, and moving it without replacing another."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from postroom.bounce_mailbox.port import FETCHED_BYTES_MAX, MailboxUnavailable, ReturnedMail

PRIVATE_FOLDER = 0o700


def unavailable(folder: Path, error: OSError) -> MailboxUnavailable:
    words = (error.strerror or type(error).__name__).lower()
    return MailboxUnavailable(f"The bounce mailbox {folder} cannot be used: {words}")


def names_in(
    folder: Path,
    *,
    limit: int,
    besides: Collection[str],
    is_mail: Callable[[os.DirEntry[str]], bool],
) -> list[str]:
    """The names of some files, in no order: a folder may have a million of them."""
    with os.scandir(folder) as entries:
        found: Iterator[str] = (
            entry.name for entry in entries if entry.name not in besides and is_mail(entry)
        )
        return list(islice(found, limit))


def is_regular(entry: os.DirEntry[str]) -> bool:
    """No folder, pipe or link, which could lead anywhere."""
    return not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)


def read_beginning(path: Path) -> ReturnedMail | None:
    """None if it is gone or cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            content = opened.read(FETCHED_BYTES_MAX)
            changed_at = os.fstat(file).st_mtime
    except OSError:
        return None
    return ReturnedMail(content, datetime.fromtimestamp(changed_at, UTC))


def move(path: Path, folder: Path, name: str) -> bool:
    """Move a file; False if it stays. A mail of the same name is never replaced."""
    target = folder / name
    if os.path.lexists(target):
        target = folder / f"{secrets.token_hex(8)}-{name}"
    try:
        path.rename(target)
    except FileNotFoundError:
        return True  # somebody else put it away
    except OSError:
        return False
    return True


def delete(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
