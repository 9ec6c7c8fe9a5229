"""All roles on two machines that share one Azurite, and everything that can go wrong there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.chaos import chaos

PEOPLE = 1_000


@pytest.mark.timeout(900)
async def test_kills_and_an_outage_of_storage_lose_nobody_and_mail_nobody_twice(
    tmp_path: Path,
) -> None:
    after = await chaos(tmp_path, people=PEOPLE, kills=5, outages=1, seed=4)
    books, arrived = after.message.books, after.arrived
    assert after.kills.total() == 5
    assert books.total == after.message.audience == PEOPLE
    assert not books.open
    assert set(arrived.values()) == {1}
    assert len(arrived) >= books.sent == PEOPLE - books.held
