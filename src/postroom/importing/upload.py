"""Uploaded files and reports as blobs, `imports/<id>/file/<n>` and `imports/<id>/report/<n>`.

Before: a browser sends a file.
After: its chunks are blobs, and a job row (jobs.py) has their number; every process can read them.
Dies half-way: the chunks written so far have no row. The sweep deletes them once their id is older
than UPLOAD_MAX; no upload takes that long. A job is deleted row first, so a crash leaves the same.
Commit point: the job row.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import BinaryIO, cast

from postroom.domain.csv_rows import BYTE_ORDER_MARK, REPORT_COLUMNS, csv_text
from postroom.domain.errors import BadInput
from postroom.domain.texts import _
from postroom.importing import jobs
from postroom.importing.csv_source import HEAD_BYTES, Source, check_is_text
from postroom.importing.job import ImportJob
from postroom.storage.port import Blobs, Storage

CHUNK_BYTES = 4 * 1024 * 1024  # few calls for a gigabyte, and little memory
# Loaded before a stretch of the file is read. One stretch reads at most two records of 64 Ki
# characters, and the header is within 32 stretches of 8 Ki: together less than a megabyte.
READ_AHEAD_BYTES = 2 * 1024 * 1024
UPLOAD_MAX = timedelta(days=1)
SWEPT_MAX = 100  # expired imports deleted at a time
_FOLDER = "imports/"


@dataclass
class UploadWriter:
    """Writes a file chunk by chunk as it arrives."""

    blobs: Blobs
    id: str
    chunks: int = 0

    async def write(self, content: bytes) -> None:
        for start in range(0, len(content), CHUNK_BYTES):
            name = _chunk_name(self.id, self.chunks)
            await self.blobs.put(name, content[start : start + CHUNK_BYTES])
            self.chunks += 1


class UploadedFile(io.BufferedIOBase):
    """The chunks of a file as one stream.

    Reading does not wait: `load` must be awaited first, and again at least once per stretch.
    """

    def __init__(self, blobs: Blobs, id_: str, chunks: int) -> None:
        self._blobs = blobs
        self._id = id_
        self._chunks = chunks
        self._loaded_chunks = 0
        self._loaded: deque[memoryview] = deque()
        self._loaded_bytes = 0
        self._position = 0

    async def load(self) -> None:
        """Fetch chunks until READ_AHEAD_BYTES, or the rest of the file, can be read."""
        while self._loaded_bytes < READ_AHEAD_BYTES and self._loaded_chunks < self._chunks:
            chunk = await self._blobs.get(_chunk_name(self._id, self._loaded_chunks))
            if chunk is None:
                raise BadInput(_("The uploaded file no longer exists. Upload it again."))
            self._loaded.append(memoryview(chunk))
            self._loaded_bytes += len(chunk)
            self._loaded_chunks += 1

    @property
    def head(self) -> bytes:
        return bytes(self._loaded[0][:HEAD_BYTES]) if self._loaded else b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True  # as far as `tell` goes

    def tell(self) -> int:
        return self._position

    def read1(self, size: int | None = -1, /) -> bytes:
        if not self._loaded:
            if self._loaded_chunks < self._chunks:
                raise AssertionError("read further than was loaded")
            return b""
        first = self._loaded.popleft()
        end = len(first) if size is None or size < 0 else size
        piece = bytes(first[:end])
        if len(first) > end:
            self._loaded.appendleft(first[end:])
        self._loaded_bytes -= len(piece)
        self._position += len(piece)
        return piece

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read1(size)


async def open_upload(
    blobs: Blobs, id_: str, chunks: int, name: str, size: int
) -> tuple[UploadedFile, Source]:
    """The stream and its lines; BadInput, naming the file, if it is not CSV or was deleted."""
    file = UploadedFile(blobs, id_, chunks)
    await file.load()
    check_is_text(name, file.head)
    return file, Source(cast(BinaryIO, file), file.head, size)


async def write_report(blobs: Blobs, id_: str, part: int, text: str) -> None:
    """Write one part; a part that exists is replaced."""
    await blobs.put(_report_name(id_, part), text.encode())


async def read_report(blobs: Blobs, job: ImportJob) -> AsyncIterator[bytes]:
    """The whole report as CSV, part by part."""
    yield (BYTE_ORDER_MARK + csv_text([REPORT_COLUMNS])).encode()
    for part in range(job.report_parts):
        yield await blobs.get(_report_name(job.id, part)) or b""


async def delete_file(blobs: Blobs, job: ImportJob) -> None:
    for chunk in range(job.chunks):
        await blobs.delete(_chunk_name(job.id, chunk))


async def delete_blobs(blobs: Blobs, id_: str) -> None:
    """Delete everything that belongs to an import, in use or left over."""
    async for name in _names(blobs, f"{_FOLDER}{id_}/"):
        await blobs.delete(name)


async def sweep(storage: Storage, now: datetime) -> None:
    """Delete imports that have expired, and blobs whose import no longer has a row."""
    for id_ in await jobs.expired_ids(storage.tables, now, limit=SWEPT_MAX):
        await jobs.delete(storage.tables, id_)
    orphans: dict[str, bool] = {}
    async for name in _names(storage.blobs, _FOLDER):
        id_ = name.removeprefix(_FOLDER).partition("/")[0]
        if id_ not in orphans:
            is_old = jobs.is_older(id_, now - UPLOAD_MAX)
            orphans[id_] = is_old and not await jobs.exists(storage.tables, id_)
        if orphans[id_]:
            await storage.blobs.delete(name)


async def _names(blobs: Blobs, prefix: str) -> AsyncIterator[str]:
    after: str | None = None
    while True:
        names, after = await blobs.list(prefix, after=after)
        for name in names:
            yield name
        if after is None:
            return


def _chunk_name(id_: str, number: int) -> str:
    return f"{_FOLDER}{id_}/file/{number:05d}"


def _report_name(id_: str, number: int) -> str:
    return f"{_FOLDER}{id_}/report/{number:05d}"
