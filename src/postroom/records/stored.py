"""A value as it is stored, with the etag that guards the next write."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Stored(NamedTuple, Generic[T]):
    """A tuple, because fan-out and senders create one per row, and nothing is cheaper."""

    value: T
    etag: str
