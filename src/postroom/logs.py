"""Logs on standard error, one line per event: readable on a terminal, JSON for machines.

While a role runs, the same events go to storage as traces (tracing.py).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from postroom.domain.trace_entry import TraceLevel
from postroom.tracing import BUFFER


class _Log:
    """Standard error; a line that cannot be written, as on a full disk, must not end the role."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(line)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure(level: str, trace_level: str = "off") -> None:
    """Write events of `level` and above; of `trace_level` and above, also as traces."""
    if sys.stderr.isatty():
        # Structlog's own tracebacks show the values of variables, and so addresses.
        plain = structlog.dev.plain_traceback
        renderers: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    else:
        json = structlog.processors.JSONRenderer()
        renderers = [structlog.processors.format_exc_info, json]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    BUFFER.level = None if trace_level == "off" else TraceLevel(trace_level)
    lowest = TraceLevel(level)
    if BUFFER.level and BUFFER.level.covers(lowest):
        lowest = BUFFER.level
    structlog.configure(
        processors=[*shared, BUFFER, _without_lower(TraceLevel(level)), *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(lowest.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Log(sys.stderr))),
        cache_logger_on_first_use=False,  # modules create their loggers before the level is known
    )


def _without_lower(level: TraceLevel) -> Processor:
    """Keep events that only traces want out of the log."""
    lower = {each.value for each in TraceLevel if not level.covers(each)}

    def drop(_logger: object, _name: str, event: EventDict) -> EventDict:
        if event["level"] in lower:
            raise structlog.DropEvent
        return event

    return drop
