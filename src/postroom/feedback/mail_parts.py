"""The parts of an incoming mail, read with bounded work for any input.

Why not the `email` package: it keeps a predicate for every open multipart and recurses for each,
so a hostile mail of a few megabytes stalls or breaks it. Reports need less: headers as text, the
parts in order, the beginning of each text.
"""

from __future__ import annotations

import binascii
import contextlib
import re
from collections.abc import Iterator

import msgspec

from postroom.mail.entities import unescape

MAIL_BYTES_MAX = 10_000_000  # the rest is not read
HEADER_BYTES_MAX = 100_000  # of one part; real ones have a few thousand
HEADER_LINES_MAX = 2_000
PARTS_MAX = 60  # reports have three to six
DEPTH_MAX = 8  # of multiparts in multiparts
TEXT_BYTES_MAX = 60_000  # of one text: servers explain themselves at its beginning
BOUNDARY_CHARS_MAX = 200  # RFC 2046 allows 70

_BLANK_LINE = re.compile(rb"\r?\n[ \t]*\r?\n")
_PARAMETER = re.compile(r';\s*([\w-]{1,40})\s*=\s*(?:"([^"]{0,300})"|([^;\s"]{1,300}))')
# Codecs that are text and linear: Python also has "idna", "punycode" and "unicode_escape".
_CHARSET = re.compile(
    r"utf-?8|us-ascii|ascii|iso-?8859-\d{1,2}|latin-?1|windows-125\d|cp125\d|koi8-[ru]"
    r"|iso-2022-(?:jp|kr)|shift[_-]?jis|cp932|euc-(?:jp|kr)|gb2312|gbk|gb18030|big5|cp949"
    r"|big5-hkscs|tis-620|cp866|utf-?16(?:[lb]e)?"
)
# Names of charsets that mail programs use and Python does not know.
_ALIASES = {
    "x-sjis": "shift_jis",
    "windows-31j": "cp932",
    "cp50220": "iso-2022-jp",
    "x-euc-jp": "euc-jp",
    "ks_c_5601-1987": "cp949",
    "gb_2312-80": "gb2312",
    "x-gbk": "gbk",
    "iso-8859-8-i": "iso-8859-8",
}
_ENCODED_WORD = re.compile(
    r"=\?([\w-]{2,30})(?:\*\w+)?\?([bBqQ])\?([^?\s]{0,500})\?=(?:\s+(?==\?))?"
)
_TAG = re.compile(r"<[^<>]*>")
_HIDDEN = re.compile(r"<(style|script|head)\b", re.IGNORECASE)

Headers = dict[str, list[str]]  # lower-case names


class MailPart(msgspec.Struct, frozen=True):
    """One leaf of the tree of parts."""

    content_type: str
    headers: Headers
    body: bytes
    charset: str = ""

    @property
    def text(self) -> str:
        """The beginning of the body, decoded; HTML without its tags."""
        decoded = decode_bytes(_transfer_decoded(self), self.charset).replace("\r\n", "\n")
        return _without_tags(decoded) if self.content_type == "text/html" else decoded

    @property
    def content(self) -> bytes:
        """The body of a message in a message, which some gateways encode against RFC 2046."""
        encoding = field(self.headers, "content-transfer-encoding").lower()
        is_encoded = encoding in ("base64", "quoted-printable")
        return (_transfer_decoded(self) if is_encoded else self.body).lstrip()


class IncomingMail(msgspec.Struct, frozen=True):
    """A mail as headers and leaves, in order."""

    headers: Headers
    content_type: str
    report_type: str
    parts: list[MailPart]


def read_mail(raw: bytes) -> IncomingMail:
    """Split a mail into its parts; never raises."""
    raw = raw[:MAIL_BYTES_MAX]
    if raw.startswith(b"From "):  # the first line of an mbox
        raw = raw.partition(b"\n")[2]
    headers, body = split_headers(raw)
    content_type, parameters = _content_type(headers)
    return IncomingMail(
        headers=headers,
        content_type=content_type,
        report_type=parameters.get("report-type", "").lower(),
        parts=list(_leaves(headers, body)),
    )


def split_headers(raw: bytes) -> tuple[Headers, bytes]:
    """Split a message into its header fields and its body."""
    if raw[:1] in b"\r\n":  # a part without headers
        return {}, raw.lstrip(b"\r\n")
    end = _BLANK_LINE.search(raw, 0, HEADER_BYTES_MAX)
    head = raw[: end.start()] if end else raw[:HEADER_BYTES_MAX]
    return parse_fields(head.decode("utf-8", "replace")), raw[end.end() :] if end else b""


def parse_fields(text: str) -> Headers:
    """Parse `Name: value` lines with their continuations."""
    fields: Headers = {}
    values: list[str] | None = None
    for line in text.splitlines()[:HEADER_LINES_MAX]:
        if line[:1] in " \t":
            if values:
                values[-1] = (
                    f"{values[-1]}\n{line.strip()}" if len(values[-1]) < 20_000 else values[-1]
                )
            continue
        name, colon, value = line.partition(":")
        values = None
        if colon and name and " " not in name.strip():
            values = fields.setdefault(name.strip().lower(), [])
            values.append(value.strip())
    return fields


def field(headers: Headers, name: str) -> str:
    """Return the first value of a field on one line, or an empty text."""
    values = headers.get(name)
    return " ".join(values[0].split()) if values else ""


def decode_words(value: str) -> str:
    """Decode the encoded words of a header (RFC 2047); malformed ones are left alone."""
    if "=?" not in value:
        return value
    return _ENCODED_WORD.sub(_decoded_word, value[:4_000])


def decode_bytes(raw: bytes, charset: str) -> str:
    """Decode text in the charset it claims, or in the one that fits."""
    name = charset.lower()
    name = _ALIASES.get(name, name)
    if _CHARSET.fullmatch(name) and name not in ("us-ascii", "ascii", "utf-8", "utf8"):
        with contextlib.suppress(LookupError):  # iso-8859-12 and cp1259 do not exist
            return raw.decode(name, "replace")
    if b"\x1b$" in raw:  # Japanese in escape sequences, often sent without a charset
        return raw.decode("iso-2022-jp", "replace")
    text = raw.decode("utf-8", "replace")
    wrong = text.count("�")
    if wrong and wrong * 2 > sum(char > "\x7f" for char in text):
        return raw.decode("latin-1")
    return text


def _leaves(headers: Headers, body: bytes) -> Iterator[MailPart]:
    stack = [(headers, body, 0)]
    count = 0
    while stack and count < PARTS_MAX:
        headers, body, depth = stack.pop()
        count += 1
        content_type, parameters = _content_type(headers)
        boundary = parameters.get("boundary", "")[:BOUNDARY_CHARS_MAX]
        inner = []
        if content_type.startswith("multipart/") and boundary and depth < DEPTH_MAX:
            inner = _split_multipart(body, boundary.encode("utf-8", "replace"))
        if inner:
            stack += [(*split_headers(piece), depth + 1) for piece in reversed(inner)]
        else:
            yield MailPart(content_type, headers, body, parameters.get("charset", ""))


def _split_multipart(body: bytes, boundary: bytes) -> list[bytes]:
    delimiter = b"--" + boundary
    begin = 0 if body.startswith(delimiter) else body.find(b"\n" + delimiter) + 1
    if begin == 0 and not body.startswith(delimiter):
        return []  # the boundary that was announced is not there
    pieces = [body[:begin]] if body[:begin].strip() else []  # a preamble that may be the text
    while len(pieces) < PARTS_MAX:
        line_end = body.find(b"\n", begin)
        if line_end < 0 or body[begin + len(delimiter) :].startswith(b"--"):
            break
        end = body.find(b"\n" + delimiter, line_end)
        pieces.append(body[line_end + 1 : end if end >= 0 else None])
        if end < 0:
            break
        begin = end + 1
    return pieces


def _content_type(headers: Headers) -> tuple[str, dict[str, str]]:
    value = field(headers, "content-type")[:4_000]
    if not value:
        return "text/plain", {}
    kind = value.partition(";")[0].strip().lower()
    found = _PARAMETER.findall(value[len(kind) :] if kind else value)
    return kind or "text/plain", {name.lower(): quoted or bare for name, quoted, bare in found}


def _transfer_decoded(part: MailPart) -> bytes:
    encoding = field(part.headers, "content-transfer-encoding").lower()
    beginning = part.body[:TEXT_BYTES_MAX]
    if encoding == "quoted-printable":
        return binascii.a2b_qp(beginning)
    if encoding == "base64":
        return _from_base64(beginning)
    return beginning


def _from_base64(raw: bytes) -> bytes:
    letters = re.sub(rb"[^A-Za-z0-9+/]", b"", raw)
    if len(letters) % 4 == 1:  # cut off in the middle
        letters = letters[:-1]
    letters += b"=" * (-len(letters) % 4)  # the padding was removed with the other characters
    try:
        return binascii.a2b_base64(letters)
    except binascii.Error:
        return raw


def _decoded_word(match: re.Match[str]) -> str:
    charset, encoding, text = match.groups()
    raw = text.encode("ascii", "replace")
    if encoding in "bB":
        return decode_bytes(_from_base64(raw), charset)
    return decode_bytes(binascii.a2b_qp(raw, header=True), charset)


def _without_tags(text: str) -> str:
    visible: list[str] = []
    rest = text
    while (hidden := _HIDDEN.search(rest)) and len(visible) < 20:
        visible.append(rest[: hidden.start()])
        end = rest.lower().find(f"</{hidden[1].lower()}", hidden.end())
        rest = rest[end:] if end >= 0 else ""
    visible.append(rest)
    return unescape(_TAG.sub("\n", "".join(visible)))
