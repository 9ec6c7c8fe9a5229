"""`serve`: all roles on one machine, each a process of its own, replaced when it dies or hangs.

A child that sends no heartbeat (heartbeat.py) for the length of a lease is killed. That frees its
locks, so that the others can settle the work it had in hand. The number of senders follows the
length of the queue between a minimum and a maximum. On SIGTERM every child is asked to stop and
waited for; a second signal, or too long a wait, kills.
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

log = structlog.get_logger("supervisor")
RESTART_S_FIRST = 0.2
RESTART_S_LONGEST = 30.0
HEALTHY_S = 30.0  # a child that lived this long starts with a clean slate
LOOK_S = 1.0
# Batches waiting or in hand that make another sender worth while. The scheduler lets a few dozen
# wait and every sender has its lanes full, so this is what a long mailing grows by.
ITEMS_PER_SENDER = 5
CONFIRMATIONS_PER_ITEM = 100
STARTS_WITHIN_S = 120.0  # until its first sign of life: importing takes long on a busy machine
KILL_AFTER_S = 5.0  # on top of the grace that the children give themselves


def wanted_senders(items: int, running: int, settings: Settings) -> int:
    """Grows with the queue, shrinks only when it is empty: starting a process costs more."""
    wanted = -(-items // ITEMS_PER_SENDER)
    if items and wanted < running:
        wanted = running
    return max(settings.senders_min, min(wanted, settings.senders_max))


async def _items_of(queues: Queues) -> int:
    """Of both queues; a hundred confirmations are about the work of a batch."""
    batches = await queues.length(MAIL_QUEUE)
    return batches + -(-await queues.length(SINGLE_MAIL_QUEUE) // CONFIRMATIONS_PER_ITEM)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@dataclass
class Child:
    """One role, kept running until told to stop."""

    role: str
    environ: dict[str, str] = field(default_factory=dict)
    silent_s_max: float = 30.0
    stopping: bool = False
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    _silent_until: float = math.inf  # then it hangs

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
            await _wait(self._again, pause_s)
            pause_s = min(pause_s * 2, RESTART_S_LONGEST)

    async def _run_once(self) -> int:
        """Its exit code. The socket on its stdin shows each side that the other is alive."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self.process = await self._start_process(theirs)
            except OSError as error:
                log.error("role_not_started", role=self.role, words=str(error))
                return -1
            if self.stopping:  # asked while it was being made
                self._signal(signal.SIGTERM)
            return await self._watch(self.process, ours)

    async def _start_process(self, stdin: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "postroom.cli",
            self.role,
            "--supervised",
            stdin=stdin.fileno(),
            env=self._around() | self.environ,
            start_new_session=True,  # Ctrl-C is for us; we ask the children
        )

    async def _watch(self, process: asyncio.subprocess.Process, line: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        self._silent_until = loop.time() + STARTS_WITHIN_S
        line.setblocking(False)
        loop.add_reader(line, self._hear, line)
        try:
            return await process.wait()
        finally:
            loop.remove_reader(line)
            self._silent_until = math.inf

    def _hear(self, line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            beats = line.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            beats = b""
        if beats:
            self._silent_until = loop.time() + self.silent_s_max
        else:
            loop.remove_reader(line)  # it has closed its end: it is about to exit

    def kill_if_hung(self, stalled_s: float) -> None:
        """`stalled_s` is how long we stood still ourselves, and could not hear anything."""
        self._silent_until += stalled_s
        if asyncio.get_running_loop().time() > self._silent_until:
            log.error("role_hangs", role=self.role, silent_s=self.silent_s_max)
            self.kill()

    def _around(self) -> dict[str, str]:
        """Without the files of settings that are this child's own: a file counts before a value."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.removesuffix("_FILE") not in self.environ
        }

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
        self._leaving: list[Child] = []
        self._stop = asyncio.Event()
        self._wakeup: WakeUpListener | None = None
        self._signals = 0

    def _child(self, role: str, number: int) -> Child:
        """Each shows its metrics at a port of its own."""
        bind = self._settings.metrics_bind
        lease_s = intervals_of(self._settings).lease_s
        if not bind:
            return Child(role, silent_s_max=lease_s)
        host, _, port = bind.rpartition(":")
        environ = {f"{PREFIX}METRICS_BIND": f"{host}:{int(port) + number}"}
        return Child(role, environ, silent_s_max=lease_s)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        async with open_parts(self._settings) as parts:
            self._wakeup = parts.wakeups.listen(SENDER)
            for child in self._fixed:
                child.start()
            watching = asyncio.create_task(self._watch_children())
            beating = heartbeat.start(supervised=False)
            try:
                while not self._stop.is_set():
                    await self._look(parts, self._wakeup)
            finally:
                watching.cancel()
                await self._stop_all()
                if beating:
                    beating.cancel()
                self._wakeup.close()

    async def _watch_children(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            looked_at = loop.time()
            await asyncio.sleep(LOOK_S)
            stalled_s = max(0.0, loop.time() - looked_at - 2 * LOOK_S)
            for child in self._children():
                child.kill_if_hung(stalled_s)

    async def _look(self, parts: Parts, wakeup: WakeUpListener) -> None:
        """Every second while there is work; else when somebody rings for senders."""
        items = 0
        try:
            items = await self._items_unless_stopped(parts)
            if not self._stop.is_set():
                self._follow(items)
        except StorageError as error:
            log.warning("storage_failed", error=type(error).__name__)
        await _wait(self._stop, LOOK_S)
        if not items and not self._stop.is_set():
            await wakeup.wait(max(0.0, parts.intervals.poll_s - LOOK_S))

    async def _items_unless_stopped(self, parts: Parts) -> int:
        """A storage that is silent for a minute must not hold up the stop."""
        asking = asyncio.create_task(_items_of(parts.storage.queues))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else 0
        finally:
            for task in (asking, stopping):
                task.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)

    def _follow(self, items: int) -> None:
        """One sender more or less at a time, so that each has its effect before the next."""
        wanted = wanted_senders(items, len(self._senders), self._settings)
        if wanted > len(self._senders):
            child = self._child("sender", len(self._fixed) + len(self._senders))
            child.start()
            self._senders.append(child)
        elif wanted < len(self._senders):
            child = self._senders.pop()
            child.ask_to_stop()
            self._leaving.append(child)
        self._leaving = [one for one in self._leaving if one.task and not one.task.done()]

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._wakeup:
            self._wakeup.ring()
        if self._signals > 1:
            for child in self._children():
                child.kill()

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
        return [*self._fixed, *self._senders, *self._leaving]
