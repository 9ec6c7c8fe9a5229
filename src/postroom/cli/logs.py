"""Logs on standard error, one line an event: readable on a terminal, JSON for machines."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor


def configure(level: str) -> None:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *_as_text()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,  # modules make their loggers before the level is known
    )


def _as_text() -> list[Processor]:
    if sys.stderr.isatty():
        # Not its own tracebacks: they show the values of variables, and so addresses.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
