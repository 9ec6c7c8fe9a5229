"""Attachments as they are in an email: encoded once per message, the same bytes in every email.

An email with attachments is multipart/mixed: the bodies, which differ from recipient to recipient,
and then this, the tail of every email. The tail is one object that all emails of a message share:
nobody may join it with anything for each email. It is pure ASCII, no line begins with a dot (so it
needs no dot-stuffing), and it is in DKIM's relaxed form.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

import msgspec

PARAMETER_CHARS = 60  # of an encoded file name on one line
_SAFE = "!#$&+^`{}~"  # besides letters and digits, in an encoded parameter (RFC 5987 3.2.1)


class EncodedFile(msgspec.Struct, frozen=True):
    """One attachment, and where its base64 is in the tail."""

    name: str
    media_type: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class EncodedAttachments:
    """All attachments of a message, ready to be sent."""

    boundary: bytes  # of the multipart/mixed
    tail: bytes  # from the end of the bodies to the end of the email
    files: tuple[EncodedFile, ...]

    def base64_of(self, file: EncodedFile) -> str:
        """The content without line ends, as HTTP providers want it."""
        return _without_line_ends(self, file)


@lru_cache(maxsize=10)  # the files of one message: each call of a provider has all of them
def _without_line_ends(attachments: EncodedAttachments, file: EncodedFile) -> str:
    return attachments.tail[file.start : file.stop].replace(b"\r\n", b"").decode("ascii")


def encode_attachments(files: Sequence[tuple[str, str, bytes]]) -> EncodedAttachments:
    """Encode files, each with its checked name, media type and content, not empty."""
    # Neither base64 nor quoted-printable, the only encodings beside it, can write "=_".
    digest = hashlib.sha256("\n".join(name for name, _, _ in files).encode()).hexdigest()
    boundary = b"=_mixed_" + digest[:20].encode()
    pieces = [b"\r\n"]
    size = 2
    encoded: list[EncodedFile] = []
    for name, media_type, content in files:
        head = b"--%b\r\n%b\r\n" % (boundary, _headers(name, media_type, content))
        lines = base64.encodebytes(content).replace(b"\n", b"\r\n")
        start = size + len(head)
        size = start + len(lines)
        encoded.append(EncodedFile(name, media_type, start, size))
        pieces += [head, lines]
    pieces.append(b"--%b--\r\n" % boundary)
    return EncodedAttachments(boundary, b"".join(pieces), tuple(encoded))


def _headers(name: str, media_type: str, content: bytes) -> bytes:
    charset = "; charset=utf-8" if media_type.startswith("text/") and _is_utf_8(content) else ""
    lines = [
        f"Content-Type: {media_type}{charset}",
        "Content-Transfer-Encoding: base64",
        ";\r\n".join(["Content-Disposition: attachment", *file_name_parameters(name)]),
    ]
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def file_name_parameters(name: str) -> list[str]:
    """The file name as parameters of a header: quoted, or encoded and continued (RFC 2231)."""
    if name.isascii():
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return [f' filename="{escaped}"']
    pieces = [""]
    for character in name:
        code = quote(character, safe=_SAFE)
        if len(pieces[-1]) + len(code) > PARAMETER_CHARS:
            pieces.append("")
        pieces[-1] += code
    pieces[0] = f"UTF-8''{pieces[0]}"
    if len(pieces) == 1:
        return [f" filename*={pieces[0]}"]
    return [f" filename*{number}*={piece}" for number, piece in enumerate(pieces)]
