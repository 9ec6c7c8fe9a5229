"""Senders are killed while they send through SendGrid, whose replies get lost as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.domain.message import OnDoubt
from tests.process.sendgrid_bar import run

PEOPLE = 1_500
KILLS = 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("on_doubt", OnDoubt)
async def test_kills_lose_nobody_and_hold_mails_nobody_twice(
    on_doubt: OnDoubt, tmp_path: Path
) -> None:
    await run(tmp_path, PEOPLE, KILLS, on_doubt)
