"""A few calls at the same time, as many as a limit allows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class TaskPool:
    """At most `limit` concurrent calls; the first failure ends all.

    Leaving the block waits for all calls, or cancels them after a failure.
    """

    limit: int
    _busy: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.finish()
        finally:
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)

    async def start(self, call: Coroutine[Any, Any, None]) -> None:
        """Start a call; return once there is room for another."""
        self._busy.add(asyncio.create_task(call))
        if len(self._busy) >= self.limit:
            await self._wait(asyncio.FIRST_COMPLETED)

    async def finish(self) -> None:
        if self._busy:
            await self._wait(asyncio.ALL_COMPLETED)

    async def _wait(self, until: str) -> None:
        done, self._busy = await asyncio.wait(self._busy, return_when=until)
        failures = [failure for task in done if (failure := task.exception())]
        if failures:  # the others usually have the same cause
            raise failures[0]
