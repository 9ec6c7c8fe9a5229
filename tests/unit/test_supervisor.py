"""How many senders the supervisor wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import settings
from postroom.supervisor import wanted_senders

FEW = settings.load(
    {"POSTROOM_SENDERS_MIN": "1", "POSTROOM_SENDERS_MAX": "4"}, Path("/nonexistent.toml")
)


@pytest.mark.parametrize(
    ("items", "running", "wanted"),
    [
        (0, 0, 1),  # never fewer than the minimum
        (1, 1, 1),
        (5, 1, 1),
        (6, 1, 2),
        (16, 2, 4),
        (10_000, 4, 4),  # never more than the maximum
        (5, 3, 3),  # a queue that gets short is no reason to stop one
        (0, 3, 1),  # an empty one is
    ],
)
def test_senders_follow_the_queue(items: int, running: int, wanted: int) -> None:
    assert wanted_senders(items, running, FEW) == wanted


def test_a_minimum_of_none_lets_all_of_them_go() -> None:
    none = settings.load(
        {"POSTROOM_SENDERS_MIN": "0", "POSTROOM_SENDERS_MAX": "2"}, Path("/nonexistent.toml")
    )
    assert wanted_senders(0, 2, none) == 0
    assert wanted_senders(1, 0, none) == 1
