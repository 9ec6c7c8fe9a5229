"""Logs on standard error, one line per event: readable on a terminal, JSON for machines."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import Processor


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


def configure(level: str) -> None:
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
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Log(sys.stderr))),
        cache_logger_on_first_use=False,  # modules create their loggers before the level is known
    )
