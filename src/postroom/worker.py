"""The loop around a role: step, rest, stop. One iteration can be called alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import structlog

from postroom.clock import Clock, StepWatch
from postroom.storage.port import StorageError
from postroom.wakeup import WakeUpListener

log = structlog.get_logger("worker")
STORAGE_REST_S = 1.0  # after storage failed


class StopRequest:
    """A request to stop: no new work is taken, work in hand is finished."""

    def __init__(self, wakeup: WakeUpListener) -> None:
        self._wakeup = wakeup
        self.is_asked = False
        self.heartbeat: asyncio.Task[None] | None = None  # referenced, or it would be collected
        self._called: list[Callable[[], None]] = []

    def ask(self) -> None:
        self.is_asked = True
        for call in self._called:
            call()
        self._wakeup.ring()

    def then(self, call: Callable[[], None]) -> None:
        self._called.append(call)


def stop_on_signals(stop: StopRequest) -> None:
    """Ask to stop on SIGTERM and SIGINT; a second signal does not cut work in hand off.

    Service managers send more than one, and have SIGKILL if they insist.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)


def stop_when_orphaned(stop: StopRequest) -> None:
    """Stop a supervised role when its supervisor has ended: then its stdin is closed."""

    def look() -> None:
        try:
            gone = not os.read(0, 4096)
        except BlockingIOError:
            return
        except ConnectionError:
            gone = True
        if gone:
            loop.remove_reader(0)
            stop.ask()

    loop = asyncio.get_running_loop()
    loop.add_reader(0, look)


async def run(
    step: Callable[[], Awaitable[bool]],
    rest_s: Callable[[], Awaitable[float]],
    wakeup: WakeUpListener,
    stop: StopRequest,
    clock: Clock,
) -> None:
    """Step while there is work, otherwise rest until the bell rings; until asked to stop."""
    watch = StepWatch(clock)
    failure = ""
    while not stop.is_asked:
        if step_s := watch.stepped_s():
            log.warning("clock_was_set", seconds=round(step_s, 1))
        try:
            is_busy = await step()
            seconds = 0.0 if is_busy else await rest_s()
            failure = ""
        except StorageError as error:
            if failure != str(error):  # once, not every second for as long as it lasts
                failure = str(error)
                log.warning("storage_failed", error=type(error).__name__, words=failure[:200])
            is_busy, seconds = False, STORAGE_REST_S
        if not is_busy and not stop.is_asked:
            await wakeup.wait(seconds)
