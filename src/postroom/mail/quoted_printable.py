"""Quoted-printable (RFC 2045 6.7) for texts assembled from pieces."""

from __future__ import annotations

import re

LINE_MAX = 76  # RFC 2045 6.7 (5), with the "=" of a soft line break
SOFT_BREAK = b"=\r\n"

_ENCODED = re.compile(rb"[^\t -<>-~]")
_EQUALS = ord("=")
_PIECE_BYTES = 64 * 1024


def whole_line(line: bytes) -> bytes:
    """Encode a line with its line break."""
    encoded = _encoded(line)
    if line[-1:] in (b" ", b"\t"):
        encoded = encoded[:-1] + b"=%02X" % line[-1]  # servers may strip trailing blanks
    return _wrapped(encoded, LINE_MAX) + b"\r\n"


def open_line(line: bytes) -> bytes:
    """Encode part of a line; a soft break ends the encoded line, but not the line of the text."""
    encoded = _encoded(line)
    return _wrapped(encoded, LINE_MAX - 1) + SOFT_BREAK if encoded else b""


def encode_lines(text: str) -> bytes:
    """Encode whole lines, and part of a line at the end."""
    *lines, rest = text.encode().split(b"\r\n")
    return b"".join(map(whole_line, lines)) + open_line(rest)


def _encoded(line: bytes) -> bytes:
    """Encode a long line in pieces, so that other threads can run in between."""
    if len(line) <= _PIECE_BYTES:
        return _ENCODED.sub(_code, line)
    pieces = range(0, len(line), _PIECE_BYTES)
    return b"".join(_ENCODED.sub(_code, line[at : at + _PIECE_BYTES]) for at in pieces)


def _code(found: re.Match[bytes]) -> bytes:
    return b"=%02X" % ord(found[0])


def _wrapped(encoded: bytes, last_line_max: int) -> bytes:
    lines: list[bytes] = []
    start = 0
    while len(encoded) - start > last_line_max:
        cut = start + LINE_MAX - 1
        # Never within the three characters that encode one byte.
        cut -= 1 if encoded[cut - 1] == _EQUALS else 2 if encoded[cut - 2] == _EQUALS else 0
        lines.append(encoded[start:cut])
        start = cut
    return SOFT_BREAK.join([*lines, encoded[start:]])
