"""One role in this process: its parts put together, run until asked to stop, closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog

from postroom import wiring, worker
from postroom.bell import Bell
from postroom.scheduler import Scheduler
from postroom.sender import SenderRole
from postroom.settings import Settings
from postroom.wiring import Parts
from postroom.worker import Stop

log = structlog.get_logger("roles")
SCHEDULER_BELL, SENDER_BELL = "scheduler", "sender"
SCHEDULER_REST_S_MAX = 10.0
DRAIN_REST_S = 0.05


def run(role: Coroutine[Any, Any, None]) -> None:
    """In an event loop of its own, the fast one where there is one."""
    if sys.platform == "win32":
        asyncio.run(role)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role)


async def run_scheduler(settings: Settings) -> None:
    async with wiring.parts(settings) as parts:
        bell = parts.bells.listen(SCHEDULER_BELL)
        scheduler, stop = wiring.scheduler(parts), Stop(bell)

        async def step() -> bool:
            is_busy = await scheduler.step()
            if is_busy:
                parts.bells.ring(SENDER_BELL)
            return is_busy

        try:
            with worker.stop_on_signals(stop):
                await worker.run(step, lambda: scheduler.rest_s(SCHEDULER_REST_S_MAX), bell, stop)
        finally:
            await scheduler.stop()
            bell.close()


async def run_sender(settings: Settings) -> None:
    async with wiring.parts(settings) as parts, _sending(parts) as (sender, bell, stop):
        await worker.run(sender.step, sender.rest_s, bell, stop)


async def drain(settings: Settings) -> None:
    """Scheduler and sender in one process until nothing is due."""
    async with wiring.parts(settings) as parts, _sending(parts) as (sender, bell, stop):
        scheduler, is_due = wiring.scheduler(parts), True
        try:
            while is_due and not stop.is_asked:
                is_due = await _is_anything_due(scheduler, sender, bell)
        finally:
            await scheduler.stop()


@contextlib.asynccontextmanager
async def _sending(parts: Parts) -> AsyncIterator[tuple[SenderRole, Bell, Stop]]:
    """A sender opened, told of signals, and closed with its work in hand finished."""
    bell = parts.bells.listen(SENDER_BELL)
    sender, stop = await wiring.sender(parts, bell), Stop(bell)
    stop.then(sender.stop_handing_over)
    await sender.open()
    try:
        with worker.stop_on_signals(stop):
            yield sender, bell, stop
    finally:
        await sender.close(parts.settings.stop_grace_s)
        bell.close()


async def _is_anything_due(scheduler: Scheduler, sender: SenderRole, bell: Bell) -> bool:
    """Do a step of each; whether something is still going on."""
    is_busy = await scheduler.step()
    is_busy |= await sender.step()
    if is_busy:
        return True
    if sender.is_idle:
        return await scheduler.step_and_report()
    await bell.wait(DRAIN_REST_S)
    return True
