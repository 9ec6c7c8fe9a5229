"""One role in this process: its parts put together, run until asked to stop, closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import structlog

from postroom import heartbeat, metrics, wiring, worker
from postroom.domain.errors import WrongState
from postroom.domain.trouble import Trouble
from postroom.scheduler import Scheduler
from postroom.sender import SenderRole
from postroom.settings import Settings, networks
from postroom.wakeup import SCHEDULER, SENDER, WEB, WakeUpListener
from postroom.wiring import Parts
from postroom.worker import StopRequest

log = structlog.get_logger("roles")
COLLECT_AFTER = 50_000  # objects: rows and mails leave no cycles; looking took a sixth of fan-out
BULK_NICE = 5  # on a busy machine a click goes before a mail: somebody waits for the page
DRAIN_REST_S = 0.05
DRAIN_FAULTS_MAX = 4  # tries of an unreachable provider before `drain` gives up


def run(role: Coroutine[Any, Any, None]) -> None:
    """In an event loop of its own, the fast one where there is one."""
    if sys.platform == "win32":
        asyncio.run(role)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role)


async def run_scheduler(settings: Settings, *, supervised: bool = False) -> None:
    """Schedule messages and, beside that, run imports, whether or not this scheduler leads."""
    _step_back()
    async with _parts("scheduler", settings) as parts:
        wakeup = parts.wakeups.listen(SCHEDULER)
        import_bell = parts.wakeups.listen(SCHEDULER)
        scheduler, stop = wiring.scheduler(parts), _stop(wakeup, supervised)
        stop.then(import_bell.ring)
        importer = wiring.importer(parts, import_bell)

        async def step() -> bool:
            is_busy = await scheduler.step()
            if is_busy:
                parts.wakeups.ring(SENDER)
            return is_busy

        _begin_work()
        try:
            rest_s = functools.partial(scheduler.rest_s, parts.pace.schedule_s)
            await asyncio.gather(
                worker.run(step, rest_s, wakeup, stop, parts.clock),
                worker.run(importer.step, importer.rest_s, import_bell, stop, parts.clock),
            )
        finally:
            await scheduler.stop()
            await importer.close(settings.stop_grace_s)
            import_bell.close()
            wakeup.close()


async def run_sender(settings: Settings, *, supervised: bool = False) -> None:
    _step_back()
    async with (
        _parts("sender", settings) as parts,
        _sending(parts, supervised) as (sender, wakeup, stop),
    ):
        _begin_work()
        await worker.run(sender.step, sender.rest_s, wakeup, stop, parts.clock)


async def run_web(settings: Settings, *, supervised: bool = False) -> None:
    """Open requests are finished when it is asked to stop, within the grace."""
    from postroom.web.server import WebServer

    with wiring.listening(settings) as listener:
        async with _parts("web", settings, storage_s=wiring.PAGE_S) as parts:
            wakeup = parts.wakeups.listen(WEB)
            server = WebServer(
                await wiring.web(parts),
                settings.stop_grace_s,
                settings.stop_notice_s,
                trusted_proxies=networks(settings.trusted_proxies),
            )
            stop = _stop(wakeup, supervised)
            stop.then(server.stop)
            _begin_work()
            try:
                await server.run(listener)
            finally:
                wakeup.close()


async def drain(settings: Settings) -> None:
    """Scheduler and sender in one process until nothing is due."""
    async with wiring.parts(settings) as parts, _sending(parts, False) as (sender, wakeup, stop):
        scheduler, is_due = wiring.scheduler(parts), True
        try:
            while is_due and not stop.is_asked:
                is_due = await _is_anything_due(scheduler, sender, wakeup)
        finally:
            await scheduler.stop()


def _begin_work() -> None:
    """What is there by now stays: the collector of cycles need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)


def _step_back() -> None:
    """Behind the pages, and behind a mail server on the same machine."""
    if sys.platform != "win32":
        os.nice(BULK_NICE)


@contextlib.asynccontextmanager
async def _parts(
    role: str, settings: Settings, *, storage_s: float = wiring.WORK_S
) -> AsyncIterator[Parts]:
    """The parts of a role, with what it counts shown."""
    async with wiring.parts(settings, storage_s=storage_s) as parts:
        storage = parts.storage
        with metrics.shown(
            role,
            settings.metrics_bind,
            calls=lambda: msgspec.structs.asdict(storage.calls),
            commits=lambda: {} if storage.commits is None else {"group": storage.commits},
            troubles=lambda: {
                "refused": storage.troubles.refused,
                "in_doubt": storage.troubles.in_doubt,
            },
            health=parts.health if role == "sender" else None,
        ):
            yield parts


@contextlib.asynccontextmanager
async def _sending(
    parts: Parts, supervised: bool
) -> AsyncIterator[tuple[SenderRole, WakeUpListener, StopRequest]]:
    """A sender opened, told of signals, and closed with its work in hand finished."""
    wakeup = parts.wakeups.listen(SENDER)
    sender, stop = await wiring.sender(parts, wakeup), _stop(wakeup, supervised)
    stop.then(sender.stop_handing_over)
    await sender.open()
    try:
        yield sender, wakeup, stop
    finally:
        await sender.close(parts.settings.stop_grace_s)
        wakeup.close()


def _stop(wakeup: WakeUpListener, supervised: bool) -> StopRequest:
    stop = StopRequest(wakeup)
    worker.stop_on_signals(stop)
    if supervised:
        worker.stop_when_orphaned(stop)
    stop.heartbeat = heartbeat.start(supervised=supervised)
    return stop


async def _is_anything_due(
    scheduler: Scheduler, sender: SenderRole, wakeup: WakeUpListener
) -> bool:
    """Do a step of each; whether something is still going on."""
    is_busy = await scheduler.step()
    is_busy |= await sender.step()
    if is_busy:
        return True
    pause_s = await sender.rest_s() if sender.breaker.faults else DRAIN_REST_S
    if sender.breaker.faults >= DRAIN_FAULTS_MAX:
        raise WrongState(_gave_up(sender.health.trouble))
    if sender.is_idle and sender.has_recovered:
        return await scheduler.step_and_report()
    await wakeup.wait(pause_s)
    return True


def _gave_up(trouble: Trouble | None) -> str:
    if trouble is None:
        return "The mail server takes no emails: see the log, and run “postroom doctor”."
    words = str(trouble.sentence)
    end = "" if words.endswith(".") else "."
    return f"{words}{end} {trouble.advice} Nothing is lost: run it again when it works."
