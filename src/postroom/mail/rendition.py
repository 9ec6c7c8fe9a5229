"""The renditions of an email's bodies: byte strings with slots, filled for each recipient.

Each of a million emails is filled here, so the work is done where it is done once: literals are
encoded when the message is compiled, a value is escaped and encoded once for all its slots, and
values that many people share (names, towns) are remembered. The byte strings are not joined here,
because a connection writes several emails at once, and joins them all in one copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from postroom.mail import quoted_printable
from postroom.mail.escape_context import EscapeContext
from postroom.mail.header import LINE_OCTETS_MAX
from postroom.mail.merge import Field, escape
from postroom.mail.quoted_printable import LINE_MAX as QP_LINE_MAX
from postroom.mail.quoted_printable import SOFT_BREAK

EMAIL, UNSUBSCRIBE_URL = "email", "unsubscribe_url"
OWN_FIELDS = frozenset({EMAIL, UNSUBSCRIBE_URL})  # everybody has them, and nobody shares them
VALUES_KNOWN_MAX = 4096  # remembered for a field, each short: less than 1 MB
VALUE_KNOWN_CHARS_MAX = 40

# Which values need no escaping, and where: nearly all of them, recognized in one step. None of
# these patterns has "=", which quoted-printable and boundaries use.
_TEXTS = frozenset({EscapeContext.TEXT, EscapeContext.HTML})
_PLAIN: list[tuple[str, frozenset[EscapeContext]]] = [
    (r"https?://[A-Za-z0-9.:;@/_?+~-]{1,990}", _TEXTS | {EscapeContext.URL}),
    (r"[A-Za-z0-9_.~-]{0,75}", _TEXTS | {EscapeContext.URL_PART, EscapeContext.MAILTO}),
    (r"[A-Za-z0-9_.~@-]{0,75}", _TEXTS | {EscapeContext.MAILTO}),
    (r"[A-Za-z0-9 .,:;@/_()!?*+~-]{0,75}", _TEXTS),
]


def _plain_in(contexts: frozenset[EscapeContext]) -> re.Pattern[str]:
    """What needs no escaping in any of these contexts."""
    patterns = [pattern for pattern, where in _PLAIN if contexts <= where]
    return re.compile("|".join(patterns) or r"(?!)")


class SplicedMail(msgspec.Struct, frozen=True, gc=False):
    """A whole email as byte strings, to be joined when it is written."""

    parts: list[bytes]
    size: int  # with the tail
    is_ascii: bool
    tail: bytes = b""  # attachments, ASCII: one object in all emails of a message, never copied

    @classmethod
    def of(cls, source: bytes, tail: bytes = b"") -> SplicedMail:
        return cls([source], len(source) + len(tail), source.isascii(), tail)

    @property
    def source(self) -> bytes:
        return b"".join(self.parts) + self.tail


class _FilledValue(msgspec.Struct, frozen=True, gc=False):
    """A value in all its slots."""

    slots: list[tuple[int, bytes]]
    size: int  # of all slots
    is_ascii: bool
    must_look: bool  # with this value, the email may have a line that 8bit does not allow


class _FieldSlots:
    """Where one field is, in each context in which it is."""

    def __init__(self, field: Field, encode: _Encode) -> None:
        self._fallback = field.fallback
        self._encode = encode
        self._places: dict[EscapeContext, list[int]] = {}
        self._slots: list[int] = []
        self._plain = _plain_in(frozenset())
        self.known: dict[str | None, _FilledValue] = {}

    def add(self, context: EscapeContext, slot: int) -> None:
        self._places.setdefault(context, []).append(slot)
        self._slots.append(slot)
        self._plain = _plain_in(frozenset(self._places))

    def fill_shared(self, value: str | None) -> _FilledValue:
        """Fill in a value that others may have, too, and remember it."""
        filled = self.fill(value)
        if value is None or len(value) <= VALUE_KNOWN_CHARS_MAX:
            if len(self.known) == VALUES_KNOWN_MAX:
                self.known.clear()
            self.known[value] = filled
        return filled

    def fill(self, value: str | None) -> _FilledValue:
        if not value or value.isspace():
            value = self._fallback
        if self._plain.fullmatch(value):
            encoded, must_look = self._encode(value, True)
            slots = [(slot, encoded) for slot in self._slots]
            return _FilledValue(slots, len(encoded) * len(slots), True, must_look)
        return self._fill_escaped(value)

    def _fill_escaped(self, value: str) -> _FilledValue:
        slots: list[tuple[int, bytes]] = []
        is_ascii = True
        must_look = False
        for context, places in self._places.items():
            encoded, may_break = self._encode(escape(value, context), False)
            slots += [(slot, encoded) for slot in places]
            is_ascii = is_ascii and encoded.isascii()
            must_look = must_look or may_break
        return _FilledValue(slots, sum(len(each) for _, each in slots), is_ascii, must_look)


# From an escaped value, and whether it is plain, to its bytes, and whether the email with it must
# be looked at.
_Encode = Callable[[str, bool], tuple[bytes, bool]]


class Rendition:
    """Byte strings with slots for values, and for the headers of the recipient at the beginning."""

    def __init__(self, layout: Iterable[bytes | Field], encode: _Encode, tail: bytes = b"") -> None:
        pieces: list[bytes] = [b"", b""]  # the first is for the recipient's headers
        fields: dict[tuple[str, str], _FieldSlots] = {}
        for part in layout:
            if isinstance(part, bytes):
                pieces[-1] += part
                continue
            known = fields.setdefault((part.name, part.fallback), _FieldSlots(part, encode))
            known.add(part.context, len(pieces))
            pieces += [b"", b""]
        self._pieces = pieces
        self._fields = [(name, name in OWN_FIELDS, each) for (name, _), each in fields.items()]
        self._tail = tail
        self._size = sum(map(len, pieces)) + len(tail)
        self._is_ascii = all(map(bytes.isascii, pieces))
        self._must_look = False

    @property
    def literals(self) -> list[bytes]:
        """What is between the values."""
        return self._pieces[1::2]

    def fill(
        self, head: bytes, values: Mapping[str, str], own: Mapping[str, str]
    ) -> SplicedMail | None:
        """Write the email. `own` has the fields of this recipient alone, which win."""
        pieces = self._pieces.copy()
        pieces[0] = head
        size = self._size + len(head)
        is_ascii = self._is_ascii and head.isascii()
        must_look = self._must_look
        for name, is_own, field in self._fields:
            if is_own:
                filled = field.fill(own[name])
            else:
                value = values.get(name)
                filled = field.known.get(value) or field.fill_shared(value)
            for slot, encoded in filled.slots:
                pieces[slot] = encoded
            size += filled.size
            is_ascii = is_ascii and filled.is_ascii
            must_look = must_look or filled.must_look
        if must_look and not self._is_sound(b"".join(pieces)):
            return None
        return SplicedMail(pieces, size, is_ascii, self._tail)

    def _is_sound(self, source: bytes) -> bool:
        return True


class QuotedPrintable(Rendition):
    """The rendition for every server: ASCII, with a soft line break after each value."""

    def __init__(self, layout: Iterable[bytes | Field], tail: bytes = b"") -> None:
        super().__init__(layout, _encode_quoted_printable, tail)


def _encode_quoted_printable(value: str, is_plain: bool) -> tuple[bytes, bool]:
    if is_plain and len(value) < QP_LINE_MAX:
        return value.encode("ascii") + SOFT_BREAK if value else b"", False
    return quoted_printable.encode_lines(value), False


class EightBit(Rendition):
    """The rendition for servers with 8BITMIME: plain UTF-8, a third shorter in many scripts.

    There is none of an email whose values make a line too long or look like a boundary. Without
    "=" a value has no boundary in it; so an email is searched only if a value has one, or if the
    template itself has most of a boundary next to a field. Only what a condition or a loop wrote
    has line ends, and then each of its lines is shorter than the whole.
    """

    def __init__(
        self, layout: Iterable[bytes | Field], delimiter: bytes, delimiters: int, room: int
    ) -> None:
        """`room`: octets that every value may have without making a line too long."""

        def encode(value: str, is_plain: bool) -> tuple[bytes, bool]:
            encoded = value.encode()
            return encoded, len(encoded) > room or (not is_plain and "=" in value)

        super().__init__(layout, encode)
        self._delimiter = delimiter
        self._delimiters = delimiters
        self._must_look = any(_may_complete(literal, delimiter) for literal in self.literals)

    def _is_sound(self, source: bytes) -> bool:
        if max(map(len, source.split(b"\r\n"))) > LINE_OCTETS_MAX:
            return False
        return source.count(self._delimiter) == self._delimiters


def _may_complete(literal: bytes, delimiter: bytes) -> bool:
    """Whether the delimiter may appear once values without "=" are next to this literal."""
    equals = delimiter.index(b"=")
    at = literal.find(b"=")
    while at >= 0:
        before = literal[max(0, at - equals) : at]
        after = literal[at : at + len(delimiter) - equals]
        is_part = len(before) + len(after) < len(delimiter)
        if is_part and delimiter[:equals].endswith(before) and delimiter[equals:].startswith(after):
            return True
        at = literal.find(b"=", at + 1)
    return False
