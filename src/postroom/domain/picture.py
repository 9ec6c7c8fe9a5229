"""A picture of the media library: what is known about it, and where its files are served.

The files of a picture never change, so browsers and mail programs may cache them forever. Their
names cannot be guessed, because everybody who knows one may see the file without signing in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, is_one_line

PICTURES_MAX = 5000  # in one installation
NAME_CHARS_MAX = 120
ALT_CHARS_MAX = 300  # as in blocks
UPLOAD_BYTES_MAX = 20 * 1024 * 1024  # of one file, as a camera saves it
UPLOADS_MAX = 20  # files of one form
USED_MAX = 500  # pictures in one message or template
WIDTHS = (600, 1200)  # of the files: as wide as emails are, and twice that for sharp screens
FOLDER = "/m/"  # short, because it is in every email
_ID = re.compile(r"[0-9]{15}[0-9a-f]{24}")  # when it was added, and 96 random bits
_FILE = re.compile(rf"({_ID.pattern})-([0-9]{{1,4}})\.(jpg|png|gif)")
_PATH = re.compile(FOLDER + _FILE.pattern)


class PictureKind(StrEnum):
    """The formats that every email program shows; the value is the file extension."""

    JPEG = "jpg"
    PNG = "png"
    GIF = "gif"


CONTENT_TYPES = {
    PictureKind.JPEG: "image/jpeg",
    PictureKind.PNG: "image/png",
    PictureKind.GIF: "image/gif",
}


class PictureFile(msgspec.Struct, frozen=True):
    """One width of a picture."""

    width: int
    height: int
    size: int  # in bytes


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture as it is stored: one file, or a small and a large one."""

    id: str
    name: str
    alt: str = ""
    kind: PictureKind
    files: list[PictureFile]  # the smallest first
    is_animated: bool = False
    digest: str  # SHA-256 of what was uploaded
    created_at: datetime
    by: str = ""  # who uploaded it

    @property
    def path(self) -> str:
        """Of the largest file, which messages use: shown at half its width, it is sharp."""
        return self.path_of(self.files[-1])

    @property
    def small_path(self) -> str:
        return self.path_of(self.files[0])

    @property
    def width(self) -> int:
        return self.files[-1].width

    @property
    def height(self) -> int:
        return self.files[-1].height

    @property
    def size(self) -> int:
        """In bytes, of the file that messages use."""
        return self.files[-1].size

    @property
    def shown_width(self) -> int:
        """The width for a block: 0, the whole column, if the picture is wide enough for it."""
        return 0 if self.width >= WIDTHS[0] else self.width

    def path_of(self, file: PictureFile) -> str:
        return f"{FOLDER}{file_name(self.id, file.width, self.kind)}"


def file_name(picture_id: str, width: int, kind: PictureKind) -> str:
    return f"{picture_id}-{width}.{kind}"


def kind_of_file(name: str) -> PictureKind | None:
    """The format of a file with a name as above; None for any other name."""
    found = _FILE.fullmatch(name)
    return PictureKind(found[3]) if found else None


def is_picture_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def id_in_path(address: str) -> str:
    """The picture whose file this address leads to; empty if it is not one of the library."""
    found = _PATH.search(address)
    return found[1] if found else ""


def ids_in(texts: Iterable[str | None]) -> set[str]:
    """The pictures whose files these bodies show or link to."""
    return {found[1] for text in texts if text for found in _PATH.finditer(text)}


def check_alt(text: str) -> str:
    """One line; it may be empty, which a check reports before a message is sent."""
    text = " ".join(text.split())
    if len(text) > ALT_CHARS_MAX or not is_one_line(text):
        raise BadInput(
            _("The alt text must be one line of at most {limit} characters.", limit=ALT_CHARS_MAX)
        )
    return text


def check_name(text: str) -> str:
    name = clean_name(text, "")
    if not name:
        raise BadInput(
            _("The name is empty. Enter a name by which you will find the picture later.")
        )
    return name


def clean_name(name: str, otherwise: str = "picture") -> str:
    """The name of a file without folders, control characters and invisible characters."""
    name = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    name = "".join(sign if sign.isprintable() else " " for sign in name)
    name = "".join(sign for sign in name if unicodedata.category(sign) not in ("Cf", "Cs", "Co"))
    return " ".join(name.split())[:NAME_CHARS_MAX].strip(" .") or otherwise
