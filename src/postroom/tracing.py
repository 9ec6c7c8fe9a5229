"""Writes traces to storage: every event of the log, in batches, without delaying sending.

An event is put into a buffer, and a task writes the buffer every second. While storage does not
answer, the buffer keeps the newest events; dropped ones are counted and reported later.
Dies half-way: the events in the buffer are lost, but they are in the log on standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Any

import structlog
from structlog.typing import EventDict

from postroom.clock import Clock
from postroom.domain.trace_entry import FieldValue, TraceEntry, TraceLevel, is_person_id
from postroom.domain.trace_sentences import trace_sentence
from postroom.domain.trouble import one_line
from postroom.records import traces
from postroom.records.traces import KeyedTrace
from postroom.storage.port import Tables

log = structlog.get_logger("tracing")
BUFFERED_MAX = 2_000  # events, about a megabyte
WRITTEN_TOGETHER = 500
RETRY_S_LONGEST = 60.0
LAST_WRITE_S = 3.0  # when a role stops
HOURS_OF_ROWS = 20  # in an hour, an instance writes at most this fraction of all rows
_LEVELS = {"critical": TraceLevel.ERROR, "exception": TraceLevel.ERROR}
_NOT_FIELDS = frozenset({"event", "level", "timestamp", "exc_info", "ref", "person"})
_UNSAFE = re.compile(r"[^0-9A-Za-z.-]")


@dataclass
class TraceBuffer:
    """Takes events from the log while a role runs. Called from any thread."""

    level: TraceLevel | None = None  # None: nothing is taken
    dropped: int = 0
    events: deque[EventDict] = field(default_factory=deque)
    is_open: bool = False
    taken: int = 0  # since the process started

    def __call__(self, _logger: object, _name: str, event: EventDict) -> EventDict:
        """A processor of structlog: passes the event on unchanged."""
        if not self.is_open or self.level is None:
            return event
        if not self.level.covers(_level(event)):
            return event
        if len(self.events) >= BUFFERED_MAX:
            self.dropped += 1
            with contextlib.suppress(IndexError):
                self.events.popleft()
        failure = {"error": _failure(event)} if _has_failed(event) else {}
        self.events.append({**event, **failure})
        return event


BUFFER = TraceBuffer()  # one for the process, as structlog has one configuration


@dataclass
class TraceWriter:
    """Writes the contents of the buffer; one iteration is `write`."""

    tables: Tables
    clock: Clock
    role: str
    instance: str
    buffer: TraceBuffer
    rows_max: int  # in storage, of all instances
    written: int = 0
    dropped: int = 0
    _waiting: list[KeyedTrace] = field(default_factory=list)
    _hour: int = 0
    _hour_rows: int = 0

    async def write(self) -> bool:
        """Write waiting events; False if storage failed and they have to wait."""
        while self.buffer.events or self._waiting:
            try:
                self._take()
                await self._store()
            except Exception:  # noqa: BLE001 - nothing about traces may end a role, or be logged
                return False
            self.written += len(self._waiting)
            self._waiting = []
        if dropped := self.buffer.dropped:
            self.buffer.dropped = 0
            self.dropped += dropped
            log.warning("traces_dropped", count=dropped)
        return True

    def _take(self) -> None:
        while self.buffer.events and len(self._waiting) < WRITTEN_TOGETHER:
            self.buffer.taken += 1
            entry = self._entry(self.buffer.events.popleft())
            key = traces.trace_key(entry.at, self.buffer.taken, self.instance)
            self._waiting.append(KeyedTrace(key, entry))

    async def _store(self) -> None:
        now = self.clock.now()
        hour = int(now.timestamp() // 3600)
        if hour != self._hour:
            self._hour = hour
            self._hour_rows = 0
        room = max(0, self.rows_max // HOURS_OF_ROWS - self._hour_rows)
        self.buffer.dropped += max(0, len(self._waiting) - room)
        self._waiting = self._waiting[:room]
        if self._waiting:
            rows = self._hour_rows + len(self._waiting)
            await traces.note_count(self.tables, self.instance, now, rows)
            await traces.write(self.tables, self._waiting)
            self._hour_rows = rows

    def _entry(self, event: EventDict) -> TraceEntry:
        name = str(event.get("event", ""))
        fields = {key: _plain(value) for key, value in event.items() if key not in _NOT_FIELDS}
        return TraceEntry(
            at=datetime.fromisoformat(event["timestamp"]),
            level=_level(event),
            role=self.role,
            instance=self.instance,
            event=name,
            words=str(trace_sentence(name, fields)),
            ref=_ref(event.get("ref")),
            person=_person(event.get("person")),
            fields=fields,
        )

    async def run(self, every_s: float) -> None:
        """Write for ever; after a failure, less and less often."""
        pause_s = every_s
        while True:
            await self.clock.sleep(pause_s)
            is_written = await self.write()
            pause_s = every_s if is_written else min(pause_s * 2, RETRY_S_LONGEST)


@contextlib.asynccontextmanager
async def traced(
    tables: Tables, clock: Clock, role: str, *, every_s: float, rows_max: int
) -> AsyncIterator[TraceWriter]:
    """Within the block, the log of this process is also written to storage."""
    writer = TraceWriter(tables, clock, role, instance_name(), BUFFER, rows_max)
    BUFFER.is_open = True
    log.info("role_started", name=role, version=version("postroom"))
    writing = asyncio.create_task(writer.run(every_s))
    try:
        yield writer
        log.info("role_stopped", name=role)
    except asyncio.CancelledError:
        log.info("role_stopped", name=role)
        raise
    except BaseException as error:
        log.error("role_failed", name=role, error=type(error).__name__)
        raise
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITE_S):
                await writer.write()
        BUFFER.is_open = False
        BUFFER.events.clear()


def instance_name() -> str:
    """This process, for people: host and process id."""
    return f"{_UNSAFE.sub('-', socket.gethostname())[:40]}.{os.getpid()}"


def _level(event: EventDict) -> TraceLevel:
    level = str(event.get("level", "info"))
    return _LEVELS.get(level) or TraceLevel(level)


def _has_failed(event: EventDict) -> bool:
    return bool(event.get("exc_info")) and "error" not in event


def _failure(event: EventDict) -> str:
    """The class of an exception: its text may have values of anything, and stays in the log."""
    match event["exc_info"]:
        case BaseException() as error:
            return type(error).__name__
        case (_, error, _):
            return type(error).__name__
    return type(sys.exc_info()[1]).__name__


def _ref(value: object) -> str:
    """The ref, if it is one: it becomes part of a key, so nothing else is accepted."""
    return value if isinstance(value, str) and value.isalnum() and value.isascii() else ""


def _person(value: object) -> str:
    return value if isinstance(value, str) and is_person_id(value) else ""


def _plain(value: Any) -> FieldValue:
    """A value that a row may keep: short, on one line, without addresses."""
    return value if isinstance(value, bool | int | float) else one_line(str(value))
