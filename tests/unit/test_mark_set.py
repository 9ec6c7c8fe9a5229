"""The marks of suppressed addresses: none is missed, and a million fit into little memory."""

from __future__ import annotations

import random
import tracemalloc
from array import array

import pytest

from postroom.domain.mark_set import SECTIONS, MarkSet
from postroom.domain.suppression import mark_of

HIGHEST = 2**32 - 1


def section_marks(marks: MarkSet, number: int) -> array[int]:
    found = array("I")
    found.frombytes(marks.section(number)[0])
    return found


def test_what_was_added_is_in_the_set_and_nothing_else() -> None:
    some = [0, 1, 2**24 - 1, 2**24, HIGHEST - 1, HIGHEST]
    marks = MarkSet()
    assert not marks
    assert marks.add(some) == 6
    assert all(mark in marks for mark in some)
    assert not any(mark in marks for mark in (2, 2**24 + 1, HIGHEST - 2))
    assert marks.add([*some, 2]) == 1
    assert len(marks) == 7


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_what_a_set_holds_in_whatever_order_it_is_added(seed: int) -> None:
    dice = random.Random(seed)
    expected: set[int] = set()
    marks = MarkSet()
    for _round in range(20):
        some = [dice.randrange(2**32) for _mark in range(1000)] + dice.sample(
            sorted(expected), 9 * bool(expected)
        )
        assert marks.add(some) == len(set(some) - expected)
        expected.update(some)
    assert len(marks) == len(expected)
    assert all(mark in marks for mark in expected)
    sections = [section_marks(marks, number) for number in range(SECTIONS)]
    assert [mark for section in sections for mark in section] == sorted(expected)


def copy_into(marks: MarkSet, other: MarkSet) -> None:
    """Add all sections of another set, as a process does that loads a snapshot."""
    for number in range(SECTIONS):
        marks.add_section(number, section_marks(other, number), other.section(number)[1])


@pytest.mark.parametrize("there", [0, 100, 3000, 40_000])
@pytest.mark.parametrize("saved", [0, 100, 3000, 40_000])
def test_sections_are_added_to_whatever_is_there(saved: int, there: int) -> None:
    """Above 16,384 marks the bitmap grows: those of the two sets have different sizes."""
    dice = random.Random(f"{saved}, {there}")
    keys = [f"student{number}@contoso.edu" for number in range(50_000)]
    snapshot, marks = MarkSet(), MarkSet()
    in_snapshot, known = dice.sample(keys, saved), dice.sample(keys, there)
    snapshot.add(map(mark_of, in_snapshot))
    marks.add(map(mark_of, known))
    copy_into(marks, snapshot)
    expected = {mark_of(key) for key in in_snapshot + known}
    assert len(marks) == len(expected)
    assert set(marks.matching(keys)) == {key for key in keys if mark_of(key) in expected}
    sections = [section_marks(marks, number) for number in range(SECTIONS)]
    assert [mark for section in sections for mark in section] == sorted(expected)


def test_every_key_matches_whose_mark_was_added_before_or_after_the_bitmap_grew() -> None:
    keys = [f"student{number}@contoso.edu" for number in range(30_000)]
    marks = MarkSet()
    for start in range(0, len(keys), 5000):
        marks.add(map(mark_of, keys[start : start + 5000]))
        assert marks.matching(keys[: start + 5000]) == keys[: start + 5000]
    strangers = [f"stranger{number}@contoso.edu" for number in range(1000)]
    known = set(map(mark_of, keys))
    assert marks.matching(strangers) == [key for key in strangers if mark_of(key) in known]


def test_marks_take_few_bytes_each_also_while_they_are_added() -> None:
    """A merge into a second array doubled them for a moment, in every process at the same time."""
    dice = random.Random(1)
    some = array("I", (dice.randrange(2**32) for _mark in range(32_000)))
    tracemalloc.start()
    try:
        marks = MarkSet()
        for start in range(0, len(some), 100):
            marks.add(some[start : start + 100])
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 12 * len(some), f"{peak / len(some):.1f} bytes a mark"
