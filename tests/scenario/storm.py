"""A storm over storage: chosen writes of one process fail, before they took effect or after.

Or somebody else crosses its way: acts just before a chosen one of its calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from postroom.storage.port import Batch, Blobs, Queues, Storage, StorageError, Tables

READS = frozenset({"get", "scan", "scan_as", "length", "peek", "list"})


class Storm:
    """Storage as one process sees it. Leases are left alone: they have weather of their own."""

    def __init__(self, inner: Storage) -> None:
        self.tables: Tables = _Exposed(self, inner.tables)  # type: ignore[assignment]
        self.queues: Queues = _Exposed(self, inner.queues)  # type: ignore[assignment]
        self.blobs: Blobs = _Exposed(self, inner.blobs)  # type: ignore[assignment]
        self.troubles = inner.troubles
        self.writes: list[str] = []
        self._error: StorageError | None = None
        self._first = self._last = 0
        self._took_effect = False
        self.is_total = False  # nothing answers at all, reads included

    def strike(
        self, error: StorageError, *, at: int, times: int, took_effect: bool = False
    ) -> None:
        """The write with this number and those after it fail."""
        self._error, self._took_effect = error, took_effect
        self._first, self._last = at, at + times - 1

    async def call(self, name: str, table: object, act: Callable[[], Awaitable[Any]]) -> Any:
        if table == "service":
            return await act()
        if self.is_total:
            assert self._error
            raise self._error
        if name in READS:
            return await act()
        number = len(self.writes)
        self.writes.append(name)
        is_struck = self._error is not None and self._first <= number <= self._last
        if is_struck and not self._took_effect:
            raise self._error or AssertionError
        result = await act()
        if is_struck:
            raise self._error or AssertionError
        return result

    async def close(self) -> None:
        """The storage under it is closed by whoever opened it."""


class Crossed(Storm):
    """Storage as one process sees it; somebody else acts just before one of its writes.

    With `reads`, before one of its calls of any kind.
    """

    def __init__(
        self, inner: Storage, at: int, act: Callable[[], Awaitable[object]], *, reads: bool = False
    ) -> None:
        super().__init__(inner)
        self.calls = 0  # that somebody could have crossed
        self._at, self._somebody_acts, self._reads = at, act, reads

    async def call(self, name: str, table: object, act: Callable[[], Awaitable[Any]]) -> Any:
        if table != "service" and (self._reads or name not in READS):
            at, self.calls = self.calls, self.calls + 1
            if at == self._at:
                await self._somebody_acts()
        return await super().call(name, table, act)


class _Exposed:
    def __init__(self, storm: Storm, inner: Any) -> None:
        self._storm = storm
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name == "batches":
            return self._batches
        method = getattr(self._inner, name)

        def call(*args: Any, **options: Any) -> Awaitable[Any]:
            table = args[0] if args else None
            return self._storm.call(name, table, lambda: method(*args, **options))

        return call

    async def _batches(self, batches: Sequence[Batch]) -> list[list[str]]:
        """One write each, as on an engine without transactions across partitions."""
        return [await self.batch(*batch) for batch in batches]
