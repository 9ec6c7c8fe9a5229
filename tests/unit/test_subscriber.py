"""A subscriber's attributes: what is kept, what is refused, and that a batch of them fits."""

from __future__ import annotations

import pytest

from postroom.domain.delivery import BATCH_DELIVERIES_MAX, Delivery
from postroom.domain.errors import BadInput
from postroom.domain.subscriber import clean_attributes
from postroom.records.deliveries import to_row
from postroom.storage.port import Insert
from postroom.storage.validation import encode_batch


def test_values_are_trimmed_and_empty_ones_left_out() -> None:
    given = {"first_name": " Ada ", "city": "", "note": "  "}
    assert clean_attributes(given) == {"first_name": "Ada"}


@pytest.mark.parametrize("name", ["a", "first_name", "x" * 40, "a1"])
def test_a_name_is_what_a_merge_field_can_say(name: str) -> None:
    assert clean_attributes({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "_a", "a b", "a-b", "x" * 41, "näme", "email", "unsubscribe_url"]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be an attribute"):
        clean_attributes({name: "x"})


def test_a_name_that_is_too_long_is_told_so() -> None:
    """Its letters are right, so nothing else in the sentence would help."""
    with pytest.raises(BadInput, match="at most 40"):
        clean_attributes({"x" * 41: "Ada"})


@pytest.mark.parametrize("value", ["a\nb", "a\r\nBcc: x@y.z", "a\x00b", "a\u2028b"])
def test_a_value_of_more_than_one_line_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match="line break or a control character"):
        clean_attributes({"note": value})


def test_values_have_a_bound_alone_in_number_and_together() -> None:
    assert clean_attributes({"note": "x" * 500})
    with pytest.raises(BadInput, match="longer than 500"):
        clean_attributes({"note": "x" * 501})
    with pytest.raises(BadInput, match="at most 30"):
        clean_attributes({f"a{number}": "x" for number in range(31)})
    with pytest.raises(BadInput, match="in total"):
        clean_attributes({f"a{number}": "x" * 500 for number in range(30)})


@pytest.mark.parametrize("letter", ["x", '"', "\\", "é", "𝄞"])
def test_a_whole_batch_of_people_with_all_they_may_have_fits_into_one_write(letter: str) -> None:
    attributes: dict[str, str] = {}
    for number in range(30):
        try:
            attributes = clean_attributes(attributes | {f"a{number}": letter * 500})
        except BadInput:
            break
    people = [
        Delivery(at, f"{at:03d}{'x' * 477}", f"{'x' * 64}@{'y' * 189}", "0" * 32, attributes)
        for at in range(BATCH_DELIVERIES_MAX)
    ]
    changes = [Insert(f"to:{one.key}", to_row(one)) for one in people]
    assert encode_batch({"message"}, "message", "b00", changes)
