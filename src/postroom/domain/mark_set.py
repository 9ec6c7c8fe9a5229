"""The marks of all suppressed addresses in memory: 6 MB for a million of them.

Marks are in sorted parts, so that adding one moves a few kilobytes. Merging new ones into a single
array copies all of them each time. Why not a set: it takes 60 bytes a mark.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Sequence

from postroom.domain.suppression import mark_of

SECTIONS = 16  # each is 384 KB of a million marks
_PARTS = 256
_MARK_BITS = 32
_PART_SHIFT = 24  # the upper 8 bits of a mark choose its part
_BITS_PER_MARK = 16  # of the bitmap, so that one of 16 strangers needs a search in a part
_BITMAP_BITS_MIN = 18  # the bitmap has two to the power of this many bits: 32 KB


class MarkSet:
    """A set of 32-bit marks that only grows."""

    def __init__(self) -> None:
        self._parts = [array("I") for _part in range(_PARTS)]
        self._count = 0
        self._make_bitmap(_BITMAP_BITS_MIN)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, mark: int) -> bool:
        part = self._parts[mark >> _PART_SHIFT]
        at = bisect.bisect_left(part, mark)
        return at < len(part) and part[at] == mark

    def add(self, marks: Iterable[int]) -> int:
        """Add the marks; return how many are new."""
        before = self._count
        parts, find = self._parts, bisect.bisect_left  # local, for a million marks of an import
        for mark in marks:
            part = parts[mark >> _PART_SHIFT]
            at = find(part, mark)
            if at == len(part) or part[at] != mark:
                part.insert(at, mark)
                self._count += 1
                bit = mark >> self._shift
                self._bitmap[bit >> 3] |= 1 << (bit & 7)
        self._grow_bitmap()
        return self._count - before

    def matching(self, keys: Sequence[str]) -> list[str]:
        """The address keys whose mark is in the set."""
        shift, bitmap = self._shift, self._bitmap
        candidates = [  # in one expression, because fan-out asks for a million people
            key for key in keys if bitmap[(bit := mark_of(key) >> shift) >> 3] >> (bit & 7) & 1
        ]
        return [key for key in candidates if mark_of(key) in self]

    def section(self, number: int) -> tuple[bytes, bytes]:
        """One of SECTIONS shares of the marks, ascending, and of the bitmap.

        The marks have the byte order of this machine.
        """
        size = _PARTS // SECTIONS
        marks = b"".join(self._parts[number * size : (number + 1) * size])
        share = len(self._bitmap) // SECTIONS
        return marks, bytes(self._bitmap[number * share : (number + 1) * share])

    def add_section(self, number: int, marks: array[int], bitmap: bytes) -> None:
        """Add a section of another set; its bitmap saves setting a bit for every mark."""
        if len(bitmap) * SECTIONS > len(self._bitmap):
            self._make_bitmap((len(bitmap) * SECTIONS * 8).bit_length() - 1)
        if len(bitmap) * SECTIONS == len(self._bitmap):
            place = slice(number * len(bitmap), (number + 1) * len(bitmap))
            both = int.from_bytes(self._bitmap[place]) | int.from_bytes(bitmap)
            self._bitmap[place] = both.to_bytes(len(bitmap))
        else:  # ours is larger
            self._set_bits(marks)
        start = 0
        while start < len(marks):
            part = marks[start] >> _PART_SHIFT
            stop = bisect.bisect_left(marks, (part + 1) << _PART_SHIFT, start)
            share = marks[start:stop]
            if self._parts[part]:
                self.add(share)
            else:
                self._parts[part] = share
                self._count += len(share)
            start = stop
        self._grow_bitmap()

    def _grow_bitmap(self) -> None:
        """Make a larger bitmap if this one is too full to exclude other addresses."""
        wanted = self._count * _BITS_PER_MARK
        if wanted > len(self._bitmap) * 8:
            self._make_bitmap(wanted.bit_length())

    def _make_bitmap(self, bits: int) -> None:
        self._shift = _MARK_BITS - bits
        self._bitmap = bytearray()  # frees the old one first
        self._bitmap = bytearray(1 << (bits - 3))
        for part in self._parts:
            self._set_bits(part)

    def _set_bits(self, marks: array[int]) -> None:
        shift, bitmap = self._shift, self._bitmap
        for mark in marks:
            bit = mark >> shift
            bitmap[bit >> 3] |= 1 << (bit & 7)
