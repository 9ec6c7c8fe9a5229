"""Moments as parts of row keys: milliseconds since the epoch, in 15 digits, so that they sort."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(at: datetime) -> str:
    return f"{int(at.timestamp() * 1000):015d}"


def moment(text: str) -> datetime:
    """Back from `stamp`; to the millisecond."""
    return datetime.fromtimestamp(int(text) / 1000, UTC)
