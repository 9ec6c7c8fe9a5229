"""What every process does in the background: follow changed settings, and report that it runs.

Nothing relies on either, so failing storage only delays them. While nothing happens they cost
little more than one call a minute to a remote storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import structlog

from postroom import logs
from postroom.actions.change_settings import LIVE, merged
from postroom.clock import Clock
from postroom.domain.instance import RateMeter, RunningInstance, Vitals
from postroom.intervals import Intervals
from postroom.records import instances, setting_changes
from postroom.records.rows import Unreadable
from postroom.settings import Settings
from postroom.storage.port import Storage, StorageError
from postroom.wakeup import SETTINGS, STORAGE_FULL
from postroom.wiring.parts import Parts
from postroom.worker import StopRequest

if TYPE_CHECKING:
    from postroom.web.context import FullDiskNotes

log = structlog.get_logger("settings")
TICK_S = 2.0
HOUR_S = 3600.0
MISSED_MAX = 3  # rows that may be missed before an instance counts as ended


class LiveSettings:
    """The settings at the start, with the changes that people have made since."""

    def __init__(self, started: Settings, storage: Storage, clock: Clock) -> None:
        self.started = started
        self.current = started
        self._storage = storage
        self._clock = clock
        self._etag: str | None = ""  # None: the row cannot be read
        self._read_at_s = -float("inf")

    async def refresh(self, every_s: float = 0.0) -> bool:
        """Read the changes unless that was done recently; return whether settings changed."""
        now_s = self._clock.monotonic()
        if now_s < self._read_at_s + every_s:
            return False
        self._read_at_s = now_s
        try:
            found = await setting_changes.read(self._storage.tables)
        except Unreadable as error:  # a newer version wrote it: what we have still counts
            if self._etag is not None:
                log.warning("settings_unreadable", words=str(error)[:200])
            self._etag = None
            return False
        if found.etag == self._etag:
            return False
        self._etag = found.etag
        before, self.current = self.current, merged(self.started, found.value)
        applied = {
            name: getattr(self.current, name)
            for name in LIVE
            if getattr(before, name) != getattr(self.current, name)
        }
        if {"log_level", "trace_level"} & applied.keys():
            logs.configure(self.current.log_level, self.current.trace_level)
        if applied:
            log.info("settings_applied", **applied)
        return bool(applied)

    def expire(self) -> None:
        """Read the changes at the next refresh, even if that was done a moment ago."""
        self._read_at_s = -float("inf")


async def with_changes(parts: Parts) -> tuple[Parts, LiveSettings]:
    """The parts with the settings as people have changed them."""
    live = LiveSettings(parts.settings, parts.storage, parts.clock)
    await live.refresh()
    return replace(parts, settings=live.current), live


class InstanceReport:
    """The row of this process: built from its vitals, written at intervals."""

    def __init__(self, role: str, clock: Clock, intervals: Intervals) -> None:
        self._clock = clock
        self._every_s = intervals.instance_s
        self._meter = RateMeter()
        self._instance = new_instance(role, os.getpid(), clock.now(), intervals)
        self._due_at_s = -float("inf")

    def current(self, vitals: Vitals) -> RunningInstance:
        self._meter.note(vitals.done, self._clock.monotonic())
        return with_vitals(self._instance, vitals, self._meter.per_s, self._clock)

    async def write_if_due(self, storage: Storage, vitals: Vitals) -> None:
        instance = self.current(vitals)
        if self._clock.monotonic() >= self._due_at_s:
            await instances.write(storage.tables, [instance])
            self._due_at_s = self._clock.monotonic() + self._every_s

    async def forget(self, storage: Storage) -> None:
        with contextlib.suppress(StorageError):  # then it expires
            await instances.forget(storage.tables, [self._instance.id])


def new_instance(role: str, pid: int, since: datetime, intervals: Intervals) -> RunningInstance:
    """A process of this machine and version."""
    return RunningInstance(
        role=role,
        host=host_name(),
        pid=pid,
        version=_version(),
        since=since,
        seen_at=since,
        lasts_s=intervals.instance_s * MISSED_MAX,
    )


@functools.cache
def _version() -> str:
    return version("postroom")


def with_vitals(
    instance: RunningInstance, vitals: Vitals, per_s: float, clock: Clock
) -> RunningInstance:
    return msgspec.structs.replace(
        instance,
        seen_at=clock.now(),
        busy=vitals.busy,
        per_s=round(per_s, 1),
        is_held_back=vitals.is_held_back,
        is_leading=vitals.is_leading,
    )


def host_name() -> str:
    """As in the owners of leases; no key contains a slash."""
    return socket.gethostname()[:60].replace("/", "-")


@contextlib.asynccontextmanager
async def following(
    parts: Parts,
    live: LiveSettings,
    role: str,
    stop: StopRequest,
    apply: Callable[[Settings], None] = lambda settings: None,
) -> AsyncIterator[None]:
    """Within the block, `apply` is called with changed settings, and this process has a row.

    Under `serve` the supervisor writes the rows of all processes.
    """
    report = None if stop.supervised else InstanceReport(role, parts.clock, parts.intervals)

    async def check() -> None:
        seen = stop.vitals()
        intervals = parts.intervals
        if report:
            await report.write_if_due(parts.storage, seen)
        if await live.refresh(intervals.settings_s if seen.busy else intervals.idle_settings_s):
            apply(live.current)

    task = asyncio.create_task(check_periodically(parts, live, check))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if report:
            await report.forget(parts.storage)


async def check_periodically(
    parts: Parts, live: LiveSettings, check: Callable[[], Awaitable[None]]
) -> None:
    """Call it every few seconds, and at once when settings were changed on this machine."""
    wakeup = parts.wakeups.listen(SETTINGS)
    full_at = 0.0
    try:
        while True:
            with contextlib.suppress(StorageError):  # the role itself reports it
                await check()
            if await wakeup.wait(TICK_S):
                live.expire()
            full_at = notify_if_full(parts, full_at)
    finally:
        wakeup.close()


def notify_if_full(parts: Parts, told_at: float) -> float:
    """Notify the web role of a full disk, over a pipe because nothing can be written.

    Returns when this process last found none.
    """
    full_at = parts.storage.troubles.full_at
    if full_at > told_at:
        parts.wakeups.ring(STORAGE_FULL)
    return full_at


@contextlib.asynccontextmanager
async def hearing_of_full_disk(parts: Parts, notes: FullDiskNotes) -> AsyncIterator[None]:
    """Note when other roles of this machine find no space, for the alarm on the overview."""
    wakeup = parts.wakeups.listen(STORAGE_FULL)

    async def listen() -> None:
        while True:
            if await wakeup.wait(HOUR_S):
                notes.heard_at = parts.clock.now().timestamp()

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        wakeup.close()
