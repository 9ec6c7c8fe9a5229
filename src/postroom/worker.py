"""The loop around a role: step, rest, stop. A single step can be called without it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import structlog

from postroom import heartbeat
from postroom.clock import Clock, StepWatch
from postroom.domain.instance import Vitals
from postroom.storage.port import StorageError
from postroom.wakeup import WakeUpListener

log = structlog.get_logger("worker")
STORAGE_REST_S = 1.0  # after storage failed


class StopRequest:
    """Whether the role was asked to stop: it claims no new work and finishes what it has.

    A signal requests it, and so does the end of the supervisor, which closes our standard input.
    The handlers are never removed: service managers send more than one signal, and the second one
    must not cut off work that is being finished. Only SIGKILL does.
    """

    def __init__(self, wakeup: WakeUpListener, *, supervised: bool) -> None:
        self._wakeup = wakeup
        self.supervised = supervised
        self.is_asked = False
        self._callbacks: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.ask)
        if supervised:
            self._loop.add_reader(heartbeat.SUPERVISOR, self._check_supervisor)
        self.vitals: Callable[[], Vitals] = Vitals  # the role sets it
        self._heartbeat = heartbeat.start(  # kept, or it would be collected
            supervised=supervised, vitals=lambda: self.vitals()
        )

    def ask(self) -> None:
        self.is_asked = True
        for call in self._callbacks:
            call()
        self._wakeup.ring()

    def then(self, call: Callable[[], None]) -> None:
        self._callbacks.append(call)

    def _check_supervisor(self) -> None:
        try:
            is_gone = not os.read(heartbeat.SUPERVISOR, 4096)
        except BlockingIOError:
            return
        except ConnectionError:
            is_gone = True
        if is_gone:
            self._loop.remove_reader(heartbeat.SUPERVISOR)
            self.ask()


async def run(
    step: Callable[[], Awaitable[bool]],
    rest_s: Callable[[], Awaitable[float]],
    wakeup: WakeUpListener,
    stop: StopRequest,
    clock: Clock,
) -> None:
    """Step while there is work, else rest until woken up; end when asked to stop."""
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
            if failure != str(error):  # once, not every second while it lasts
                failure = str(error)
                log.warning("storage_failed", error=type(error).__name__, words=failure[:200])
            is_busy = False
            seconds = STORAGE_REST_S
        if not is_busy and not stop.is_asked:
            await wakeup.wait(seconds)
