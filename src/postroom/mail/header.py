"""Encode and fold header lines, and refuse values that could inject a header.

Nothing is silently removed: a value that could begin another line is refused, because the person
who typed it should know (standards F7). Text that looks like an encoded-word is encoded itself, so
that readers see what was typed and no parser decodes it to something else (CVE-2024-6923).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from postroom.domain.address import CONTROL, Mailbox
from postroom.domain.errors import BadInput
from postroom.domain.texts import _

LINE_OCTETS_MAX = 998  # RFC 5322 2.1.1: must
LINE_OCTETS_AIM = 78  # RFC 5322 2.1.1: should
WORD_CHARS_MAX = 75  # an encoded-word (RFC 2047 2)
WORD_LINE_MAX = 76  # a line that holds an encoded-word (RFC 2047 2)
NAME_CHARS_MAX = 50  # leaves room for one encoded character on the first line of any header
VALUE_CHARS_MAX = 2000  # headers are for machines; longer text belongs in the body
LIST_ID_CHARS_MAX = 255  # RFC 2919 3

# Headers that we write ourselves, and headers that only mail servers may add.
_RESERVED = {
    *("from", "to", "cc", "bcc", "date", "message-id", "subject", "mime-version"),
    *("sender", "reply-to", "in-reply-to", "references", "errors-to"),
    *("received", "return-path", "delivered-to", "x-original-to", "authentication-results"),
    *("precedence", "feedback-id", "auto-submitted", "x-auto-response-suppress"),
}
_RESERVED_PREFIXES = ("dkim-", "content-", "list-", "resent-", "arc-", "received-", "domainkey-")

_NAME = re.compile(r"[!-9;-~]+")  # RFC 5322 2.2
_WORD = re.compile(" *[^ ]+")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LIST_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_Q_LITERAL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/")
_WORD_FRAME = len("=?utf-8?q??=")


class BadHeader(BadInput):
    """A header that cannot be used; the message is a sentence for the person who typed it."""


def unstructured(name: str, value: str) -> bytes:
    """Write a header of free text, such as Subject."""
    check_header(name, value)
    if _is_safe_unencoded(value):
        lines = _folded(f"{name}: {value}" if value else f"{name}:")
        if max(map(len, lines)) <= LINE_OCTETS_MAX:
            return _joined(lines)
    return _joined(_in_words(name, value))


def structured(name: str, value: str) -> bytes:
    """Write a header that machines read: plain ASCII, folded only at its spaces.

    Encoded-words are not used here: a mailbox provider would take them for part of the URL.
    """
    check_header(name, value)
    if not value.isascii() or value != value.strip():
        raise BadHeader(
            _("{name} must be plain ASCII without spaces at either end; change it.", name=name)
        )
    lines = _folded(f"{name}: {value}")
    if max(map(len, lines)) > LINE_OCTETS_MAX:
        raise BadHeader(
            _("{name} has a line over {limit} bytes; shorten it.", name=name, limit=LINE_OCTETS_MAX)
        )
    return _joined(lines)


def mailbox(name: str, value: Mailbox) -> bytes:
    """Write a header with one name and address, such as From."""
    if value.address.needs_utf8:
        raise BadHeader(
            _(
                "{name} must be an ASCII address: not every server accepts other characters.",
                name=name,
            )
        )
    if not value.name:
        return structured(name, value.address.typed)
    return _phrase_and_angle(name, value.name, value.address.typed)


def list_id(list_name: str, identifier: str) -> bytes:
    """Write a List-Id (RFC 2919): the list's name for people, its identifier for filters."""
    if len(identifier) > LIST_ID_CHARS_MAX or not _LIST_ID.fullmatch(identifier):
        raise BadHeader(_("A List-Id looks like weekly.lists.example.org; change it."))
    if not list_name:
        return structured("List-Id", f"<{identifier}>")
    return _phrase_and_angle("List-Id", list_name, identifier)


def check_custom_header(name: str, value: str) -> None:
    """Refuse a header that people may not add to their emails."""
    check_header(name, value)
    lowered = name.lower()
    if lowered in _RESERVED or lowered.startswith(_RESERVED_PREFIXES):
        raise BadHeader(
            _("{name} is written by Postroom or by mail servers; choose another name.", name=name)
        )
    if len(value) > VALUE_CHARS_MAX:
        raise BadHeader(
            _("{name} is over {limit} characters; shorten it.", name=name, limit=VALUE_CHARS_MAX)
        )


def check_header(name: str, value: str) -> None:
    """Refuse a bad name, and characters that some software takes for the end of a line."""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BadHeader(
            _(
                "A header name must be up to {limit} ASCII characters, without spaces or colons.",
                limit=NAME_CHARS_MAX,
            )
        )
    found = CONTROL.search(value)
    if found:
        raise BadHeader(
            _(
                "{name} contains a line break or control character (U+{code:04X}) at position "
                "{position}; remove it.",
                name=name,
                code=ord(found[0]),
                position=found.start() + 1,
            )
        )


def _is_safe_unencoded(value: str) -> bool:
    """Whether every parser reads this text correctly without an encoded-word."""
    return value.isascii() and "=?" not in value and value == value.strip(" ")


def _folded(line: str) -> list[str]:
    """Break before spaces, so that unfolding restores the text; never right after the name."""
    if len(line) <= LINE_OCTETS_AIM:
        return [line]
    first, *words = _WORD.findall(line)
    lines = [first + words.pop(0)] if words else [first]
    for word in words:
        if len(lines[-1]) + len(word) <= LINE_OCTETS_AIM:
            lines[-1] += word
        else:
            lines.append(word)
    return lines


def _phrase_and_angle(name: str, phrase: str, inner: str) -> bytes:
    """Write a display name, as atoms, a quoted string or encoded-words, before `<inner>`."""
    check_header(name, phrase)
    lines = _in_words(name, phrase)
    if _is_safe_unencoded(phrase) and "  " not in phrase:
        if not _ATOMS.fullmatch(phrase):
            phrase = '"' + phrase.replace("\\", "\\\\").replace('"', '\\"') + '"'
        line = f"{name}: {phrase}"
        lines = [line] if len(line) <= LINE_OCTETS_AIM else lines
    angle = f" <{inner}>"
    if len(lines[-1]) + len(angle) <= LINE_OCTETS_AIM:
        lines[-1] += angle
    else:
        lines.append(angle)
    return _joined(lines)


def _in_words(name: str, text: str) -> list[str]:
    """One encoded-word per line; the breaks in between are not part of the text (RFC 2047 6.2)."""
    words = _encoded_words(text, WORD_LINE_MAX - len(name) - len(": "))
    return [f"{name}: {words[0]}", *(f" {word}" for word in words[1:])]


def _encoded_words(text: str, first_room: int) -> list[str]:
    """Encode whole characters into encoded-words, in the shorter of the two encodings."""
    quoted = {character: _q(character) for character in set(text)}
    q_cost = {character: len(code) for character, code in quoted.items()}
    b_cost = {character: len(character.encode()) for character in quoted}
    if sum(map(q_cost.__getitem__, text)) * 3 <= sum(map(b_cost.__getitem__, text)) * 4:
        chunks = _chunks(text, q_cost, first_room, lambda room: room - _WORD_FRAME)
        return [f"=?utf-8?q?{''.join(map(quoted.__getitem__, chunk))}?=" for chunk in chunks]
    chunks = _chunks(text, b_cost, first_room, lambda room: (room - _WORD_FRAME) // 4 * 3)
    return [f"=?utf-8?b?{base64.b64encode(chunk.encode()).decode()}?=" for chunk in chunks]


def _chunks(
    text: str, cost: dict[str, int], first_room: int, capacity: Callable[[int], int]
) -> list[str]:
    """Cut `text` into chunks that each fit into one encoded-word."""
    chunks: list[str] = []
    start = 0
    left = capacity(min(first_room, WORD_CHARS_MAX))
    for position, character in enumerate(text):
        if cost[character] > left:
            chunks.append(text[start:position])
            start = position
            left = capacity(WORD_CHARS_MAX)
        left -= cost[character]
    return [*chunks, text[start:]]


def _q(character: str) -> str:
    """Q-encode one character with those allowed everywhere, also in phrases (RFC 2047 5)."""
    if character in _Q_LITERAL:
        return character
    if character == " ":
        return "_"
    return "".join(f"={byte:02X}" for byte in character.encode())


def _joined(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n").encode("ascii")
