"""`serve`: all roles on one machine, each in its own process, restarted when it dies or hangs.

A child that sends no heartbeat (heartbeat.py) for the length of a lease is killed. That frees its
locks, so that the others can finish its work. The number of senders follows the queues between a
minimum and a maximum (scaling.py). The supervisor also writes the rows that show people which
processes run. On SIGTERM every child is asked to stop and waited for; a second signal, or too long
a wait, kills them.
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
from datetime import UTC, datetime
from itertools import count

import msgspec
import structlog

from postroom import heartbeat
from postroom.domain.instance import RateMeter, RunningInstance, Vitals
from postroom.domain.scaling import SenderLimits
from postroom.heartbeat import VitalsReader
from postroom.nursery import Nursery, RoleProcess, environ_with
from postroom.records import instances
from postroom.scaling import SenderScaling
from postroom.settings import PREFIX, Settings
from postroom.storage.port import StorageError
from postroom.wakeup import SENDER, WakeUpListener
from postroom.wiring import Parts, open_parts
from postroom.wiring.engines import intervals_of
from postroom.wiring.following import (
    LiveSettings,
    check_periodically,
    new_instance,
    with_changes,
    with_vitals,
)
from postroom.wiring.observing import traced_role

log = structlog.get_logger("supervisor")
RESTART_S_FIRST = 0.2
RESTART_S_LONGEST = 30.0
HEALTHY_S = 5.0  # after living this long, a child is restarted at once
CHECK_EVERY_S = 1.0
CHECK_S_MAX = 3.0  # between two checks of the queues while there is work, if each is billed
STARTS_WITHIN_S = 120.0  # until its first heartbeat: importing takes long on a busy machine
KILL_AFTER_S = 5.0  # added to the grace period that the children use themselves
FAREWELL_S = 2.0  # to delete the rows of our processes


@dataclass
class Child:
    """The process of one role, restarted until it is asked to stop."""

    role: str
    number: int = 0  # no other child has it
    environ: dict[str, str] = field(default_factory=dict)
    silent_s_max: float = 30.0
    stopping: bool = False
    nursery: Nursery | None = None
    process: RoleProcess | None = None
    task: asyncio.Task[None] | None = None
    since: datetime | None = None  # when its process was started
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    _silent_until: float = math.inf  # after that it is considered hung
    _reader: VitalsReader = field(default_factory=VitalsReader)
    _meter: RateMeter = field(default_factory=RateMeter)

    @property
    def vitals(self) -> Vitals:
        return self._reader.last

    @property
    def per_s(self) -> float:
        """Emails or requests a second, as its heartbeats show."""
        return self._meter.per_s

    def start(self) -> None:
        self.task = asyncio.create_task(self._keep_running())

    async def _keep_running(self) -> None:
        pause_s = 0.0
        loop = asyncio.get_running_loop()
        while not self.stopping:
            started = loop.time()
            code = await self._run_once()
            if self.stopping:
                return
            pause_s = restart_pause_s(loop.time() - started, pause_s)
            log.error("role_died", role=self.role, code=code, restart_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), pause_s)

    async def _run_once(self) -> int:
        """Run it and return its exit code. The socket on its stdin shows each side the other."""
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self.process = await self._start_process(theirs.fileno())
            except OSError as error:
                log.error("role_not_started", role=self.role, words=str(error))
                return -1
            self.since = datetime.now(UTC)
            self._reader = VitalsReader()
            self._meter = RateMeter()
            if self.stopping:  # it was asked to stop while it started
                self._signal(signal.SIGTERM)
            return await self._watch(self.process, ours)

    async def _start_process(self, stdin: int) -> RoleProcess:
        if self.nursery and self.nursery.is_alive:
            return await self.nursery.start(self.role, self.environ, stdin)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postroom.cli", self.role, "--supervised"),
            stdin=stdin,
            env=environ_with(self.environ),
            start_new_session=True,  # Ctrl-C reaches only us; we stop the children
        )

    async def _watch(self, process: RoleProcess, pipe: socket.socket) -> int:
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
                self._reader.feed(beats)
                self._meter.note(self._reader.last.done, loop.time())
            else:
                loop.remove_reader(pipe)  # it has closed its end, and is about to exit

        loop.add_reader(pipe, read_heartbeats)
        try:
            return await process.wait()
        finally:
            loop.remove_reader(pipe)
            self._silent_until = math.inf

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


def restart_pause_s(lived_s: float, last_s: float) -> float:
    """None for a child that was healthy; otherwise twice as long as the last one."""
    if lived_s > HEALTHY_S:
        return 0
    return min(max(RESTART_S_FIRST, last_s * 2), RESTART_S_LONGEST)


class Supervisor:
    def __init__(self, settings: Settings, nursery: Nursery | None = None) -> None:
        self._settings = settings
        self._nursery = nursery
        self._since = datetime.now(UTC)
        self._rows: set[str] = set()  # ids of the instances whose rows we have written
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
        lease_s = intervals_of(self._settings).lease_s
        return Child(role, number, environ, silent_s_max=lease_s, nursery=self._nursery)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        async with open_parts(self._settings) as opened, traced_role("supervisor", opened):
            parts, live = await with_changes(opened)
            wakeup = parts.wakeups.listen(SENDER)
            for child in self._fixed:
                child.start()
            beating = heartbeat.start(supervised=False)
            try:
                await self._work_until_stopped(parts, live, wakeup)
            finally:
                await self._stop_all()
                if self._nursery:
                    self._nursery.close()
                await self._forget_instances(parts)
                if beating:
                    beating.cancel()
                wakeup.close()

    async def _work_until_stopped(
        self, parts: Parts, live: LiveSettings, wakeup: WakeUpListener
    ) -> None:
        """Cancel a call to a slow storage, because it must not delay a stop."""
        scaling = SenderScaling(parts.storage.queues, parts.clock)
        tasks = [
            asyncio.create_task(each)
            for each in (
                self._stop.wait(),
                self._watch_children(),
                self._adjust_senders(parts, live, scaling, wakeup),
                self._follow_settings(parts, live, wakeup),
                self._report_instances(parts, live, scaling),
            )
        ]
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

    async def _adjust_senders(
        self, parts: Parts, live: LiveSettings, scaling: SenderScaling, wakeup: WakeUpListener
    ) -> None:
        """Check every second or so while there is work, otherwise when senders are woken."""
        poll_s = parts.intervals.poll_s
        check_s = max(CHECK_EVERY_S, min(poll_s, CHECK_S_MAX))
        while True:
            try:
                await self._adjust_once(live.current, scaling)
            except StorageError as error:
                log.warning("storage_failed", error=type(error).__name__)
            await asyncio.sleep(check_s)
            if scaling.is_calm:
                await wakeup.wait(max(0.0, poll_s - check_s))

    async def _adjust_once(self, settings: Settings, scaling: SenderScaling) -> None:
        limits = SenderLimits(settings.senders_min, settings.senders_max)
        vitals = [child.vitals for child in self._senders]
        mails_per_s = sum(child.per_s for child in self._senders)
        wanted = await scaling.wanted(vitals, mails_per_s, limits)
        while len(self._senders) < wanted:
            taken = {child.number for child in self._children()}
            number = next(each for each in count(len(self._fixed)) if each not in taken)
            child = self._child("sender", number)
            child.start()
            self._senders.append(child)
        while len(self._senders) > wanted:
            idlest = min(reversed(self._senders), key=lambda child: child.vitals.busy)
            self._senders.remove(idlest)
            idlest.ask_to_stop()
            self._stopping.append(idlest)
        self._stopping = [one for one in self._stopping if one.task and not one.task.done()]

    async def _follow_settings(
        self, parts: Parts, live: LiveSettings, wakeup: WakeUpListener
    ) -> None:
        """Read changed settings regularly, and at once if they were changed here."""

        async def check() -> None:
            is_idle = not any(child.vitals.busy for child in self._senders)
            intervals = parts.intervals
            if await live.refresh(intervals.idle_settings_s if is_idle else intervals.settings_s):
                wakeup.ring()

        await check_periodically(parts, live, check)

    async def _report_instances(
        self, parts: Parts, live: LiveSettings, scaling: SenderScaling
    ) -> None:
        """Write the rows of all our processes regularly, and whenever one starts or ends."""
        loop = asyncio.get_running_loop()
        known: object = None
        due_at = 0.0
        while True:
            found = self._instances(parts, live, scaling)
            now_known = ([(each.id, each.limits) for each in found], scaling.changes)
            with contextlib.suppress(StorageError):  # _adjust_senders logs it
                if now_known != known or loop.time() >= due_at:
                    await instances.write(parts.storage.tables, found)
                    ended = self._rows - {each.id for each in found}
                    self._rows = {each.id for each in found}
                    await instances.forget(parts.storage.tables, ended)
                    known = now_known
                    due_at = loop.time() + parts.intervals.instance_s
            await asyncio.sleep(CHECK_EVERY_S)

    async def _forget_instances(self, parts: Parts) -> None:
        """Delete our rows; if storage does not answer, they expire."""
        with contextlib.suppress(StorageError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await instances.forget(parts.storage.tables, self._rows)

    def _instances(
        self, parts: Parts, live: LiveSettings, scaling: SenderScaling
    ) -> list[RunningInstance]:
        limits = SenderLimits(live.current.senders_min, live.current.senders_max)
        ours = new_instance("supervisor", os.getpid(), self._since, parts.intervals)
        ours = msgspec.structs.replace(
            ours, seen_at=parts.clock.now(), limits=limits, changes=scaling.changes
        )
        running = [
            with_vitals(
                new_instance(child.role, child.process.pid, child.since, parts.intervals),
                child.vitals,
                child.per_s,
                parts.clock,
            )
            for child in self._children()
            if child.process and child.since and child.process.returncode is None
        ]
        return [ours, *running]

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
