"""Who may be suppressed, in memory: 6 MB for a million addresses, refreshed within seconds.

A snapshot of 32-bit marks is in blobs; the log of the suppression list has newer entries. A mark
means that an address *may* be suppressed; then its row decides, so no address is skipped because
its mark happens to match. The snapshot is a cache. If it is missing or damaged, the rows are read.

The snapshot has several sections, so that it is never in memory as a whole. Each section records
from which time on the log has newer marks. A process that dies between two sections leaves some
older ones: the log is read from the time of the oldest, and is kept until all sections are newer.

The last blob of a snapshot names the log rows of imports whose marks every section has, so that a
process that starts minutes after a large import need not add a million marks again. It is trusted
only if all sections were written with it: a process that dies before it writes this list, or that
stalls and continues later, leaves sections of another snapshot beside the old list.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.mark_set import SECTIONS, MarkSet
from postroom.domain.suppression import Suppression, mark_of
from postroom.records import suppressions
from postroom.storage.port import Storage

SECTION_NAME = "suppression/marks-{:02}.bin"
IMPORTS_NAME = "suppression/imports.txt"
REFRESH_EVERY_S = 2.0
SKEW = suppressions.LOG_SKEW  # log rows may be this much older than others that were read before
NEAR_SKEW = timedelta(seconds=5)  # but hardly ever more than this, unless a process stalled
LOOK_BACK_EVERY_S = 30.0  # over all of SKEW, which holds a million marks after a large import
SNAPSHOT_AFTER = 1_000  # new entries, which are read quickly enough without one
LOG_KEPT = timedelta(days=2)  # after the snapshot has it, for processes that know an older one
RELOAD_AFTER_S = 24 * 3600.0  # an idle process: part of the log may be gone
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)  # older than any row of the log
_CHECKSUM = struct.Struct("=I")  # of all that follows it
_HEAD = struct.Struct("=8s16sQI")  # magic, snapshot, milliseconds of read_from, bytes of the bitmap
_SNAPSHOT_BYTES = 16
# A machine with the other byte order does not recognize the section, and reads the rows.
_MAGIC = b"postroom" if sys.byteorder == "little" else b"moortsop"
log = structlog.get_logger("suppression")


class _Section(msgspec.Struct, frozen=True):
    """One section of a snapshot, as it was written."""

    snapshot: bytes  # which one: the same for all that was written together
    read_from: datetime  # the log has the marks that are newer
    marks: array[int]
    bitmap: bytes


class SuppressionFilter:
    """Follows the suppression list; shared by everything in a process that mails people."""

    def __init__(
        self, storage: Storage, clock: Clock, secret: str, *, snapshot_after: int = SNAPSHOT_AFTER
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._secret = secret
        self._snapshot_after = snapshot_after
        self._marks = MarkSet()
        self._read_from: datetime | None = None  # None: nothing is read yet
        self._imports_read: set[str] = set()  # log rows with many marks, which are read repeatedly
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
        """A chore of the scheduler: write a snapshot if many marks are only in the log."""
        await self.refresh()
        unsaved, read_from = self._unsaved, self._read_from  # both change while we write
        if unsaved < self._snapshot_after or read_from is None:
            return
        imports = sorted(self._imports_read)  # now, so that all sections have their marks
        snapshot = secrets.token_bytes(_SNAPSHOT_BYTES)
        for number in range(SECTIONS):
            marks, bitmap = self._marks.section(number)
            content = _encoded(snapshot, read_from, marks, bitmap)
            await self._storage.blobs.put(SECTION_NAME.format(number), content)
        listed = "\n".join([snapshot.hex(), *imports])
        await self._storage.blobs.put(IMPORTS_NAME, listed.encode())
        self._unsaved -= unsaved
        await suppressions.forget_log(self._storage.tables, read_from - LOG_KEPT)
        log.info("suppression_snapshot", entries=len(self._marks))

    async def _entries(self, keys: Sequence[str]) -> dict[str, Suppression]:
        await self.refresh()
        if not self._marks:
            return {}
        hits = self._marks.matching(keys)
        return await suppressions.find_many(self._storage.tables, self._secret, hits)

    async def _load(self) -> datetime:
        """Load the snapshot, or else all rows; return the time from which to follow the log.

        Known marks are kept, so that a failure half-way leaves no address out.
        """
        if snapshot_from := await self._load_snapshot():
            return snapshot_from
        tables = self._storage.tables
        # Not from now on: a clock may be set back, but no later row is older than the newest one.
        newest = await suppressions.end_of_log(tables, BEGINNING)
        read_from = min(newest, self._clock.now()) - SKEW
        async for _name, (entry, _etag) in suppressions.everyone(tables):
            self._marks.add([entry.mark or mark_of(entry.key)])
        self._unsaved = len(self._marks)
        return read_from

    async def _load_snapshot(self) -> datetime | None:
        """Load all sections; return the time from which to follow the log, None if one is bad."""
        oldest = datetime.max.replace(tzinfo=UTC)
        snapshots = set[bytes]()
        for number in range(SECTIONS):
            content = await self._storage.blobs.get(SECTION_NAME.format(number))
            if not (section := _decoded(content)):
                return None
            self._marks.add_section(number, section.marks, section.bitmap)
            oldest = min(oldest, section.read_from)
            snapshots.add(section.snapshot)
        if len(snapshots) == 1:
            self._imports_read |= await self._imports_of(snapshots.pop())
        return oldest

    async def _imports_of(self, snapshot: bytes) -> set[str]:
        """The log rows whose marks this snapshot has; none if the list is missing or damaged."""
        listed = (await self._storage.blobs.get(IMPORTS_NAME) or b"").decode(errors="replace")
        first, *imports = listed.split("\n")
        return set(imports) if first == snapshot.hex() else set()

    async def _read_log(self, read_from: datetime, is_looking_back: bool) -> datetime:
        """Add new marks; return the time from which to read next."""
        now = self._clock.now()
        since = read_from if is_looking_back else read_from + SKEW - NEAR_SKEW
        async for logged in suppressions.marks_since(self._storage.tables, since):
            # A clock ahead of ours hides nothing.
            read_from = max(read_from, min(logged.at, now) - SKEW)
            if logged.row_key not in self._imports_read:
                self._unsaved += self._marks.add(logged.marks)
                if logged.is_import:
                    self._imports_read.add(logged.row_key)
        if is_looking_back:
            oldest = suppressions.log_start(since)
            self._imports_read = {key for key in self._imports_read if key >= oldest}
        return read_from


def _encoded(snapshot: bytes, read_from: datetime, marks: bytes, bitmap: bytes) -> bytes:
    milliseconds = int(read_from.timestamp() * 1000)
    content = _HEAD.pack(_MAGIC, snapshot, milliseconds, len(bitmap)) + bitmap + marks
    return _CHECKSUM.pack(zlib.crc32(content)) + content


def _decoded(content: bytes | None) -> _Section | None:
    """A section as it was written; None if it is missing or damaged."""
    bitmap_at = _CHECKSUM.size + _HEAD.size
    if not content or len(content) < bitmap_at:
        return None
    (checksum,) = _CHECKSUM.unpack_from(content)
    if zlib.crc32(memoryview(content)[_CHECKSUM.size :]) != checksum:
        return None
    magic, snapshot, milliseconds, bitmap_bytes = _HEAD.unpack_from(content, _CHECKSUM.size)
    if magic != _MAGIC:
        return None
    marks_at = bitmap_at + bitmap_bytes
    marks = array("I")
    marks.frombytes(memoryview(content)[marks_at:])
    read_from = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return _Section(snapshot, read_from, marks, content[bitmap_at:marks_at])
