"""Web and scheduler are killed while events are posted: each counts once, none is lost."""

from __future__ import annotations

from pathlib import Path

from tests.process.webhook_bar import run

PEOPLE = 1_500
KILLS = 3


async def test_no_event_is_lost_or_counted_twice(tmp_path: Path) -> None:
    figures = await run(tmp_path, PEOPLE, KILLS)
    assert figures["kills"] == KILLS
