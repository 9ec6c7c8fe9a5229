"""Read the files in an uploaded zip, without trusting anything it says.

Nothing is written to disk, and only files that somebody asks for are decompressed. A zip that looks
made to do harm is refused as a whole: names that point outside it, links, entries that overlap or
unpack to far more than they are. An archive within the archive is never opened.
"""

from __future__ import annotations

import contextlib
import io
import re
import stat
import struct
import zipfile
import zlib

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, clipped

ZIP_BYTES_MAX = 30 * 1024 * 1024
ENTRIES_MAX = 500
ENTRY_BYTES_MAX = 20 * 1024 * 1024  # uncompressed, of one file
TOTAL_BYTES_MAX = 80 * 1024 * 1024  # uncompressed, of all files
RATIO_MAX = 200  # HTML packs to a tenth; only made-up files pack to less than this
RATIO_FREE_BYTES = 256 * 1024  # a small file may be as regular as it likes
NAME_CHARS_MAX = 400
_DIRECTORY_BYTES_MAX = ENTRIES_MAX * 1024  # the list of entries, which is read at once
_END = b"PK\x05\x06"
_END_CHARS = 22
_LARGE_END = b"PK\x06\x07"  # of the format for archives over 4 GB
_COMMENT_CHARS_MAX = 65_535
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 0x1
_UTF_8 = 0x800
_DRIVE = re.compile(r"[A-Za-z]:")
_ARCHIVE = re.compile(r"\.(?:zip|7z|rar|gz|tgz|bz2|xz|tar|jar)\Z", re.IGNORECASE)
_NOT_CONTENT = re.compile(r"(?:^|/)(?:__MACOSX/|\.|Thumbs\.db\Z|desktop\.ini\Z)", re.IGNORECASE)
_UNREADABLE = (  # what zipfile raises for files that it cannot read
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
)
_DAMAGED = _("The file is damaged, or it is not a zip. Create the zip again.")
_TOO_MANY = _(
    "The zip contains more than {limit} files. Include only the page and its pictures.",
    limit=ENTRIES_MAX,
)


class ZipFiles:
    """The files of a zip by their paths, each decompressed when it is read."""

    def __init__(self, content: bytes) -> None:
        """Open it; BadInput with a sentence if it cannot be used."""
        _check_end(content)
        self.archives: list[str] = []  # within the archive, left out
        self._entries: dict[str, zipfile.ZipInfo] = {}
        self._by_folded: dict[str, str] = {}  # their names without regard to capitals
        self._unread_bytes = TOTAL_BYTES_MAX
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except _UNREADABLE:
            raise BadInput(_DAMAGED) from None
        entries = self._archive.infolist()
        if not entries:
            raise BadInput(_("The zip is empty. Pack it again."))
        if len(entries) > ENTRIES_MAX:
            raise BadInput(_TOO_MANY)
        _check_overlaps(entries, self._archive.start_dir)
        if sum(each.file_size for each in entries) > TOTAL_BYTES_MAX:
            limit = TOTAL_BYTES_MAX // 1024**2
            raise BadInput(
                _(
                    "Unpacked, the zip would be larger than {limit} MB. Remove some files from it.",
                    limit=limit,
                )
            )
        for entry in entries:
            self._add(entry)

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def _add(self, entry: zipfile.ZipInfo) -> None:
        name = _checked_name(entry)
        if entry.is_dir() or _NOT_CONTENT.search(name):
            return
        if _ARCHIVE.search(name):
            self.archives.append(name)
            return
        if name in self._entries:
            raise BadInput(
                _("The zip contains “{name}” twice. Create the zip again.", name=_shown(name))
            )
        _check_entry(entry, name)
        self._entries[name] = entry
        self._by_folded.setdefault(name.casefold(), name)

    def find(self, path: str) -> str | None:
        """The name of the file at this path, in capitals or not."""
        if path in self._entries:
            return path
        return self._by_folded.get(path.casefold())

    def read(self, name: str) -> bytes:
        """Decompress a file; BadInput if it is damaged or larger than it says."""
        entry = self._entries[name]
        limit = min(entry.file_size, self._unread_bytes)
        try:
            with self._archive.open(entry) as file:
                content = file.read(limit + 1)
        except _UNREADABLE:
            raise BadInput(_DAMAGED) from None
        if len(content) != entry.file_size:
            raise BadInput(_DAMAGED)
        self._unread_bytes -= len(content)
        return content


def is_zip(content: bytes) -> bool:
    return content.startswith((b"PK\x03\x04", _END))


def _check_end(content: bytes) -> None:
    """Check the end record before anything is read by it: it says how long the list of files is."""
    if len(content) > ZIP_BYTES_MAX:
        raise BadInput(
            _(
                "The zip is larger than {limit} MB. Remove some files from it.",
                limit=ZIP_BYTES_MAX // 1024**2,
            )
        )
    end = content.rfind(_END, max(0, len(content) - _END_CHARS - _COMMENT_CHARS_MAX))
    if end < 0 or len(content) < end + _END_CHARS:
        raise BadInput(_DAMAGED)
    entries, directory_bytes = struct.unpack_from("<HL", content, end + 10)
    is_large = content[max(0, end - 20) : end].startswith(_LARGE_END)
    if is_large or entries > ENTRIES_MAX or directory_bytes > _DIRECTORY_BYTES_MAX:
        raise BadInput(_TOO_MANY)


def _check_overlaps(entries: list[zipfile.ZipInfo], directory_at: int) -> None:
    """Refuse entries that share bytes: that is how a small file unpacks to a very large one."""
    ordered = sorted(entries, key=lambda entry: entry.header_offset)
    ends = [entry.header_offset for entry in ordered[1:]] + [directory_at]
    for entry, end in zip(ordered, ends, strict=True):
        needed = entry.header_offset + _LOCAL_HEADER_BYTES + entry.compress_size
        if needed > end:
            raise BadInput(
                _("Files in the zip overlap, so it was not unpacked. Create the zip again.")
            )


def _checked_name(entry: zipfile.ZipInfo) -> str:
    """The path of a file in the zip, with slashes; refused if it leads out of the zip."""
    name = entry.filename
    if not entry.flag_bits & _UTF_8:  # many programs write UTF-8 without saying so
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode()
    name = name.replace("\\", "/").removeprefix("./")
    parts = name.split("/")
    if name.startswith("/") or _DRIVE.match(name) or ".." in parts:
        raise BadInput(
            _(
                "“{name}” points outside the zip, so nothing was unpacked.",
                name=_shown(name),
            )
        )
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise BadInput(
            _(
                "The zip contains a file with an invalid name: “{name}”. Rename it.",
                name=_shown(name),
            )
        )
    return name


def _check_entry(entry: zipfile.ZipInfo, name: str) -> None:
    if entry.flag_bits & _ENCRYPTED:
        raise BadInput(_("The zip is encrypted. Create it again without a password."))
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise BadInput(
            _("“{name}” is a link to another file. Include the file itself.", name=_shown(name))
        )
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadInput(
            _(
                "“{name}” is compressed with an uncommon method. Create the zip again with "
                "standard compression.",
                name=_shown(name),
            )
        )
    if entry.file_size > ENTRY_BYTES_MAX:
        raise BadInput(
            _(
                "“{name}” is larger than {limit} MB.",
                name=_shown(name),
                limit=ENTRY_BYTES_MAX // 1024**2,
            )
        )
    is_bomb = entry.file_size > RATIO_MAX * max(1, entry.compress_size)
    if is_bomb and entry.file_size > RATIO_FREE_BYTES:
        raise BadInput(
            _(
                "“{name}” unpacks to over {limit} times its size, so nothing was unpacked.",
                name=_shown(name),
                limit=RATIO_MAX,
            )
        )


def _shown(name: str) -> str:
    return clipped("".join(each if each.isprintable() else " " for each in name), 60)
