"""`serve`: all roles on one machine, each in its own process, restarted when it dies or hangs.

A child that sends no heartbeat (heartbeat.py) for the length of a lease is killed. That frees its
locks, so that the others can finish its work. The number of senders follows the length of the queue
between a minimum and a maximum. On SIGTERM every child is asked to stop and waited for; a second
signal, or too long a wait, kills them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from dataclasses import dataclass, field

import structlog

from postroom import heartbeat
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.settings import PREFIX, Settings
from postroom.storage.port import Queues, StorageError
from postroom.wakeup import SENDER, WakeUpListener
from postroom.wiring import Parts, open_parts
from postroom.wiring.engines import intervals_of
from postroom.wiring.roles import traced_role

log = structlog.get_logger("supervisor")
RESTART_S_FIRST = 0.2
RESTART_S_LONGEST = 30.0
HEALTHY_S = 30.0  # after living this long, a child is restarted at once
CHECK_EVERY_S = 1.0
# Batches, waiting or claimed, per sender. The scheduler lets a few dozen wait and every sender
# keeps its lanes full, so a long mailing adds senders at this rate.
ITEMS_PER_SENDER = 5
CONFIRMATIONS_PER_ITEM = 100
STARTS_WITHIN_S = 120.0  # until its first heartbeat: importing takes long on a busy machine
KILL_AFTER_S = 5.0  # added to the grace period that the children use themselves


def wanted_senders(items: int, running: int, settings: Settings) -> int:
    """Grow with the queue, shrink only when it is empty, because starting a process is costly."""
    wanted = -(-items // ITEMS_PER_SENDER)
    if items and wanted < running:
        wanted = running
    return max(settings.senders_min, min(wanted, settings.senders_max))


async def _count_items(queues: Queues) -> int:
    """Count both queues; a hundred confirmations are about as much work as a batch."""
    batches = await queues.length(MAIL_QUEUE)
    return batches + -(-await queues.length(SINGLE_MAIL_QUEUE) // CONFIRMATIONS_PER_ITEM)


@dataclass
class Child:
    """The process of one role, restarted until it is asked to stop."""

    role: str
    environ: dict[str, str] = field(default_factory=dict)
    silent_s_max: float = 30.0
    stopping: bool = False
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    _silent_until: float = math.inf  # after that it is considered hung

    def start(self) -> None:
        self.task = asyncio.create_task(self._keep_running())

    async def _keep_running(self) -> None:
        pause_s = RESTART_S_FIRST
        loop = asyncio.get_running_loop()
        while not self.stopping:
            started = loop.time()
            code = await self._run_once()
            if self.stopping:
                return
            pause_s = RESTART_S_FIRST if loop.time() - started > HEALTHY_S else pause_s
            log.error("role_died", role=self.role, code=code, restart_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), pause_s)
            pause_s = min(pause_s * 2, RESTART_S_LONGEST)

    async def _run_once(self) -> int:
        """Return its exit code. Over the socket on its stdin each side sees the other is alive."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self.process = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", "postroom.cli", self.role, "--supervised"),
                        stdin=theirs.fileno(),
                        env=self._inherited_environ() | self.environ,
                        start_new_session=True,  # Ctrl-C reaches only us; we stop the children
                    )
            except OSError as error:
                log.error("role_not_started", role=self.role, words=str(error))
                return -1
            if self.stopping:  # it was asked to stop while it started
                self._signal(signal.SIGTERM)
            return await self._watch(self.process, ours)

    async def _watch(self, process: asyncio.subprocess.Process, pipe: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        self._silent_until = loop.time() + STARTS_WITHIN_S
        pipe.setblocking(False)

        def read_heartbeats() -> None:
            try:
                beats = pipe.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                beats = b""
            if beats:
                self._silent_until = loop.time() + self.silent_s_max
            else:
                loop.remove_reader(pipe)  # it has closed its end, and is about to exit

        loop.add_reader(pipe, read_heartbeats)
        try:
            return await process.wait()
        finally:
            loop.remove_reader(pipe)
            self._silent_until = math.inf

    def _inherited_environ(self) -> dict[str, str]:
        """Leave out NAME_FILE of the child's own settings, because a file wins over a value."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.removesuffix("_FILE") not in self.environ
        }

    def kill_if_hung(self, stalled_s: float) -> None:
        """`stalled_s` is how long the supervisor itself was blocked, and read no heartbeats."""
        self._silent_until += stalled_s
        if asyncio.get_running_loop().time() > self._silent_until:
            log.error("role_hangs", role=self.role, silent_s=self.silent_s_max)
            self.kill()

    def ask_to_stop(self) -> None:
        self.stopping = True
        self._again.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.process and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fixed = [self._child("web", 0), self._child("scheduler", 1)]
        self._senders: list[Child] = []
        self._stopping: list[Child] = []
        self._stop = asyncio.Event()

    def _child(self, role: str, number: int) -> Child:
        """Each child serves its metrics on its own port."""
        environ: dict[str, str] = {}
        if bind := self._settings.metrics_bind:
            host, _, port = bind.rpartition(":")
            environ[f"{PREFIX}METRICS_BIND"] = f"{host}:{int(port) + number}"
        return Child(role, environ, silent_s_max=intervals_of(self._settings).lease_s)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        async with open_parts(self._settings) as parts, traced_role("supervisor", parts):
            wakeup = parts.wakeups.listen(SENDER)
            for child in self._fixed:
                child.start()
            beating = heartbeat.start(supervised=False)
            try:
                await self._work_until_stopped(parts, wakeup)
            finally:
                await self._stop_all()
                if beating:
                    beating.cancel()
                wakeup.close()

    async def _work_until_stopped(self, parts: Parts, wakeup: WakeUpListener) -> None:
        """Cancel a call to a slow storage, because it must not delay a stop."""
        stopping = asyncio.create_task(self._stop.wait())
        watching = asyncio.create_task(self._watch_children())
        adjusting = asyncio.create_task(self._adjust_senders(parts, wakeup))
        tasks = (stopping, watching, adjusting)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_children(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            checked_at = loop.time()
            await asyncio.sleep(CHECK_EVERY_S)
            stalled_s = max(0.0, loop.time() - checked_at - 2 * CHECK_EVERY_S)
            for child in self._children():
                child.kill_if_hung(stalled_s)

    async def _adjust_senders(self, parts: Parts, wakeup: WakeUpListener) -> None:
        """Look every second while there is work, otherwise when senders are woken."""
        while True:
            items = 0
            try:
                items = await _count_items(parts.storage.queues)
                self._start_or_stop_one(items)
            except StorageError as error:
                log.warning("storage_failed", error=type(error).__name__)
            await asyncio.sleep(CHECK_EVERY_S)
            if not items:
                await wakeup.wait(max(0.0, parts.intervals.poll_s - CHECK_EVERY_S))

    def _start_or_stop_one(self, items: int) -> None:
        """Start or stop one sender at a time, so that each takes effect before the next."""
        wanted = wanted_senders(items, len(self._senders), self._settings)
        if wanted > len(self._senders):
            child = self._child("sender", len(self._fixed) + len(self._senders))
            child.start()
            self._senders.append(child)
        elif wanted < len(self._senders):
            child = self._senders.pop()
            child.ask_to_stop()
            self._stopping.append(child)
        self._stopping = [one for one in self._stopping if one.task and not one.task.done()]

    def _on_signal(self) -> None:
        if self._stop.is_set():  # the second signal
            for child in self._children():
                child.kill()
        self._stop.set()

    async def _stop_all(self) -> None:
        children = self._children()
        for child in children:
            child.ask_to_stop()
        tasks = [child.task for child in children if child.task]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._settings.stop_grace_s + KILL_AFTER_S)
            if late:
                log.error("roles_killed", roles=len(late))
                for child in children:
                    child.kill()
                await asyncio.wait(tasks)

    def _children(self) -> list[Child]:
        return [*self._fixed, *self._senders, *self._stopping]
