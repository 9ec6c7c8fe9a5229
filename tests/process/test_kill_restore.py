"""kill -9 of a restore: the storage refuses to serve, and the same command finishes it."""

from __future__ import annotations

import json
from pathlib import Path

from postroom.clock import WallClock
from postroom.migration import state
from postroom.records.names import STORAGE_NAMES
from postroom.storage.port import KeysWithin
from postroom.storage.sqlite.storage import SqliteStorage
from postroom_bench.installation import LIST, Installation, until

PEOPLE = 20_000
RUN_S_MAX = 120.0


async def test_a_restore_killed_on_the_way_refuses_to_serve_and_is_finished_later(
    tmp_path: Path,
) -> None:
    file = tmp_path / "today.backup"
    async with Installation(tmp_path) as installation:
        async with installation.parts() as parts:
            await installation.people(parts, PEOPLE)
            ref = await installation.message(parts)
        made = await installation.start("backup", str(file))
        assert await made.wait(within_s=RUN_S_MAX) == 0, made.log.read_text()
        new = tmp_path / "new.db"
        installation.overrides["POSTROOM_STORAGE"] = f"sqlite:///{new}"
        storage = await SqliteStorage.open(new, WallClock(), STORAGE_NAMES)
        try:
            killed = await installation.start("restore", str(file))

            async def has_rows() -> bool:
                page = await storage.tables.scan("mailinglist", KeysWithin(LIST), limit=1)
                return bool(page.rows)

            await until(has_rows, within_s=RUN_S_MAX, every_s=0.002)
            await killed.kill()
            assert await state.find(storage.tables), "it was through already"
            refused = await installation.start("scheduler")
            assert await refused.wait(within_s=RUN_S_MAX) == 3
            assert "Run “postroom restore” again" in refused.log.read_text()
        finally:
            await storage.close()
        again = await installation.start("restore", str(file), "--json")
        assert await again.wait(within_s=RUN_S_MAX) == 0, again.log.read_text()
        restored = json.loads(again.printed.read_text())
        assert [(each["ref"], each["people"]) for each in restored["held"]] == [(ref, PEOPLE)]
        assert all(not part["differences"] for part in restored["parts"])
