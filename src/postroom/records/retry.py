"""Repeats a change that lost a race for its row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from postroom.storage.port import Conflict

T = TypeVar("T")
TRIES_MAX = 5  # people and roles rarely meet at a row: more tries would hide a bug


async def retry_on_conflict(
    change: Callable[[], Awaitable[T]],
    *,
    tries: int = TRIES_MAX,
    also: type[Exception] = Conflict,
    at_last: Exception | None = None,
) -> T:
    """Repeat `change` while it raises Conflict (or `also`); at last raise `at_last`.

    `change` reads the row itself, so that every try works on what is stored at that time.
    """
    for _try in range(tries):
        try:
            return await change()
        except (Conflict, also):
            continue
    raise at_last or Conflict("The row changed at every try.")
