"""Times as parts of row keys: milliseconds since the epoch in 15 digits, so that they sort."""

from __future__ import annotations

from datetime import UTC, datetime

_LAST = 10**15 - 1


def sortable(at: datetime) -> str:
    return f"{_milliseconds(at):015d}"


def sortable_newest_first(at: datetime) -> str:
    """Return a number that falls with time, because storage only scans upwards."""
    return f"{_LAST - _milliseconds(at):015d}"


def parse_sortable(text: str) -> datetime:
    """Parse what `sortable` returned, to the millisecond."""
    return datetime.fromtimestamp(int(text) / 1000, UTC)


def parse_newest_first(text: str) -> datetime:
    """Parse what `sortable_newest_first` returned, to the millisecond."""
    return datetime.fromtimestamp((_LAST - int(text)) / 1000, UTC)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
