"""Who may be suppressed, in memory: 8 MB for a million addresses, refreshed within seconds.

A snapshot of 32-bit marks is a blob; the log of the suppression list has what came since. A mark
says that an address *may* be suppressed, and then its row decides: no address is skipped by a
coincidence of marks. The snapshot is a cache. If it is missing or damaged, the rows are read.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from postroom.clock import Clock
from postroom.domain.suppression import Suppression, mark_of
from postroom.records import suppressions
from postroom.storage.port import Storage

SNAPSHOT = "suppression/marks.bin"
REFRESH_EVERY_S = 2.0
SKEW = timedelta(minutes=10)  # log rows may be this much older than others that were read before
NEAR_SKEW = timedelta(seconds=5)  # but hardly ever more than this, unless a process stalled
LOOK_BACK_EVERY_S = 30.0  # over all of SKEW, which holds a million marks after a large import
RECENT_MAX = 20_000  # marks in a set, at 60 bytes each; more are merged into the array
SNAPSHOT_AFTER = 1_000  # new entries, which are read quickly enough without one
LOG_KEPT = timedelta(days=2)  # after the snapshot has it, for processes that know an older one
RELOAD_AFTER_S = 24 * 3600.0  # an idle process: part of the log may be gone
_BITS_PER_MARK = 32  # of the bitmap, so that one of 32 strangers needs a search in the array
_BITS_MIN = 18  # 32 KB: room for recent marks, too
_HEAD = struct.Struct("<8sQ")
_MAGIC = b"postroom"
log = structlog.get_logger("suppression")


class SuppressionFilter:
    """Follows the suppression list; shared by everything in a process that mails people."""

    def __init__(self, storage: Storage, clock: Clock, secret: str) -> None:
        self._storage = storage
        self._clock = clock
        self._secret = secret
        self._marks = array("I")
        self._bitmap = bytearray(1)
        self._bits = 0
        self._recent: set[int] = set()
        self._read_from: datetime | None = None  # None: nothing is read yet
        self._imports_read: set[str] = set()  # log rows with many marks, read again and again
        self._refresh_at_s = 0.0
        self._look_back_at_s = 0.0
        self._refreshing = asyncio.Lock()  # all lanes ask at once: one reads for all
        self._unsaved = 0  # marks that no snapshot has, as far as we know

    async def refresh(self) -> None:
        """Read what is new, at most every REFRESH_EVERY_S."""
        if self._is_stale():
            async with self._refreshing:
                if self._is_stale():
                    await self._read_new()

    def _is_stale(self) -> bool:
        return self._read_from is None or self._clock.monotonic() >= self._refresh_at_s

    async def _read_new(self) -> None:
        now_s = self._clock.monotonic()
        if self._read_from is None or now_s > self._refresh_at_s + RELOAD_AFTER_S:
            self._read_from = await self._load()
            self._look_back_at_s = now_s
        is_looking_back = now_s >= self._look_back_at_s
        self._read_from = await self._read_log(self._read_from, is_looking_back)
        if is_looking_back:
            self._look_back_at_s = now_s + LOOK_BACK_EVERY_S
        self._refresh_at_s = now_s + REFRESH_EVERY_S

    async def suppressed(self, keys: Sequence[str], list_name: str) -> dict[str, Suppression]:
        """The entries that stop messages to this list, by address key."""
        return {
            key: entry
            for key, entry in (await self._entries(keys)).items()
            if entry.covers(list_name)
        }

    async def suppressed_entirely(self, keys: Sequence[str]) -> dict[str, Suppression]:
        """The entries that stop confirmations and test emails as well."""
        found = await self._entries(keys)
        return {key: entry for key, entry in found.items() if entry.covers_single_mails}

    async def save_snapshot(self) -> None:
        """A chore of the scheduler: write a snapshot if there is much to read without it."""
        await self.refresh()
        if self._unsaved < SNAPSHOT_AFTER or self._read_from is None:
            return
        self._merge_recent()
        await self._storage.blobs.put(SNAPSHOT, _encoded(self._marks, self._read_from))
        self._unsaved = 0
        await suppressions.forget_log(self._storage.tables, self._read_from - LOG_KEPT)
        log.info("suppression_snapshot", entries=len(self._marks))

    async def _entries(self, keys: Sequence[str]) -> dict[str, Suppression]:
        await self.refresh()
        if not self._marks and not self._recent:
            return {}
        bits, bitmap = self._bits, self._bitmap
        candidates = [  # in one expression, because fan-out asks for a million people
            key for key in keys if bitmap[(bit := mark_of(key) & bits) >> 3] >> (bit & 7) & 1
        ]
        hits = [key for key in candidates if self._has(mark_of(key))]
        return await suppressions.find_many(self._storage.tables, self._secret, hits)

    def _has(self, mark: int) -> bool:
        at = bisect.bisect_left(self._marks, mark)
        return (at < len(self._marks) and self._marks[at] == mark) or mark in self._recent

    async def _load(self) -> datetime:
        """Load the snapshot, or else all rows; return from when to follow the log."""
        self._recent = set()
        self._imports_read = set()
        if snapshot := _decoded(await self._storage.blobs.get(SNAPSHOT)):
            self._set_marks(snapshot[0])
            return snapshot[1]
        read_from = self._clock.now() - SKEW
        marks = array("I")
        async for _name, (entry, _etag) in suppressions.everyone(self._storage.tables):
            marks.append(entry.mark or mark_of(entry.key))
        self._set_marks(_sorted(marks))
        self._unsaved = len(marks)
        return read_from

    async def _read_log(self, read_from: datetime, is_looking_back: bool) -> datetime:
        """Add what is new; return from when to read the next time."""
        now = self._clock.now()
        since = read_from if is_looking_back else read_from + SKEW - NEAR_SKEW
        imports_read = set() if is_looking_back else self._imports_read
        async for logged in suppressions.marks_since(self._storage.tables, since):
            # A clock ahead of ours hides nothing.
            read_from = max(read_from, min(logged.at, now) - SKEW)
            if logged.row_key not in self._imports_read:
                self._add(logged.marks)
            if logged.is_import:
                imports_read.add(logged.row_key)
        self._imports_read = imports_read
        return read_from

    def _add(self, marks: Sequence[int]) -> None:
        for mark in marks:
            if not self._has(mark):
                self._recent.add(mark)
                self._set_bit(mark)
                self._unsaved += 1
        if len(self._recent) > RECENT_MAX:
            self._merge_recent()

    def _merge_recent(self) -> None:
        self._set_marks(_sorted(itertools.chain(self._marks, self._recent)))
        self._recent = set()

    def _set_marks(self, marks: array[int]) -> None:
        self._marks = marks
        self._bits = (1 << max(_BITS_MIN, (len(marks) * _BITS_PER_MARK).bit_length())) - 1
        self._bitmap = bytearray((self._bits >> 3) + 1)
        for mark in marks:
            self._set_bit(mark)

    def _set_bit(self, mark: int) -> None:
        bit = mark & self._bits
        self._bitmap[bit >> 3] |= 1 << (bit & 7)


def _sorted(marks: Iterable[int]) -> array[int]:
    """Sorted by parts: a million integers in one list would take 40 MB for a moment."""
    parts = [array("I") for _part in range(256)]
    for mark in marks:
        parts[mark >> 24].append(mark)
    merged = array("I")
    for part in parts:
        merged.extend(sorted(part))
    return merged


def _encoded(marks: array[int], read_from: datetime) -> bytes:
    """Little-endian on every machine."""
    if sys.byteorder == "big":
        marks = array("I", marks)
        marks.byteswap()
    return _HEAD.pack(_MAGIC, int(read_from.timestamp() * 1000)) + marks.tobytes()


def _decoded(content: bytes | None) -> tuple[array[int], datetime] | None:
    """None if it is no snapshot of ours."""
    if not content or len(content) < _HEAD.size or len(content) % 4:
        return None
    magic, milliseconds = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        return None
    marks = array("I")
    marks.frombytes(memoryview(content)[_HEAD.size :])
    if sys.byteorder == "big":
        marks.byteswap()
    return marks, datetime.fromtimestamp(milliseconds / 1000, UTC)
