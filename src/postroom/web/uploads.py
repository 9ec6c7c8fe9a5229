"""Uploads: the file in a multipart body is written in pieces, and never in memory as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from postroom.domain.errors import BadInput
from postroom.domain.texts import _

PARTS_MAX = 20  # with the file: our forms have fewer, and each costs time
FIELD_BYTES_MAX = 4096  # of each field beside the file
MULTIPART = b"multipart/form-data"


@dataclass
class Upload:
    """One file and the fields beside it."""

    fields: dict[str, str] = field(default_factory=dict)
    files: int = 0  # in the file's field; only the first is written
    file_name: str = ""
    size: int = 0


async def receive_file(
    request: Request, name: str, piece_bytes: int, write: Callable[[bytes], Awaitable[None]]
) -> Upload:
    """Pass the file of this field to `write`, about `piece_bytes` at a time.

    BadInput if the body is not a form. Without a file in it, `file_name` is empty and nothing is
    written.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != MULTIPART or not options.get(b"boundary"):
        raise BadInput(_("The form contains no file. Open the page again and choose one."))
    reader = _MultipartReader(options[b"boundary"], name)
    try:
        async for chunk in request.stream():
            reader.parser.write(chunk)
            if len(reader.waiting) >= piece_bytes:
                await write(reader.flushed())
        reader.parser.finalize()
    except FormParserError:
        raise BadInput(_("The form was damaged on its way here. Submit it again.")) from None
    await write(reader.flushed())
    return reader.upload


class _MultipartReader:
    """Parses a body: fields into a dictionary, the file into a buffer to be flushed."""

    def __init__(self, boundary: bytes, file_field: str) -> None:
        self.upload = Upload()
        self.waiting = bytearray()  # of the file, to be written
        self._file_field = file_field
        self._header = ["", ""]
        self._name: str | None = None  # of the current field; None within the file
        self._value = bytearray()
        self._parts = 0
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._head(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._head(1, data[start:end]),
                "on_header_end": self._end_header,
                "on_part_data": self._data,
                "on_part_end": self._end,
            },
        )

    def flushed(self) -> bytes:
        flushed = bytes(self.waiting)
        self.waiting = bytearray()
        return flushed

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise FormParserError("too many parts")
        self._name = ""
        self._value = bytearray()

    def _head(self, at: int, piece: bytes) -> None:
        self._header[at] += piece.decode("utf-8", "replace")

    def _end_header(self) -> None:
        title, text = self._header
        self._header = ["", ""]
        if title.lower() != "content-disposition":
            return
        _, options = parse_options_header(text.encode())
        values = {key: value.decode("utf-8", "replace") for key, value in options.items()}
        self._name = values.get(b"name", "")
        if b"filename" in values and self._name == self._file_field:
            self._name = None
            self.upload.files += 1
            self.upload.file_name = self.upload.file_name or values[b"filename"]

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name is None and self.upload.files > 1:
            return
        if self._name is None:
            self.waiting += data[start:end]
            self.upload.size += end - start
        elif len(self._value) + end - start > FIELD_BYTES_MAX:
            raise FormParserError("a field is too long")
        else:
            self._value += data[start:end]

    def _end(self) -> None:
        if self._name:
            self.upload.fields[self._name] = self._value.decode("utf-8", "replace")
