"""Who counts as one caller of the pages that anybody may use."""

from __future__ import annotations

import pytest

from postroom.web import throttles


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_a_network_is_what_one_customer_has(one: str, other: str, is_same: bool) -> None:
    assert (throttles.network_of(one) == throttles.network_of(other)) is is_same
