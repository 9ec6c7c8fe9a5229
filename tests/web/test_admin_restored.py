"""Messages on hold after a restore, and scheduled backups that fail, as pages show them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from postroom.domain.backup import BackupRecord
from postroom.domain.message import RestoreHold, Status
from postroom.records import backups, messages
from tests.web import returned
from tests.web.office import NOW
from tests.web.signed_in import Worker, at_work


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


async def test_a_message_on_hold_says_why_and_what_each_button_does(editor: Worker) -> None:
    hold = {"restore_hold": RestoreHold(NOW, 2345)}
    path = await returned.sent_to(editor, 3, Status.PAUSED, **hold)
    page = (await editor.get(path)).text
    assert "This message is on hold because it was restored from a backup made on" in page
    assert "Up to 2,345 people may have received it since the backup was made" in page
    assert "Some of them may get it a second time" in page
    overview = (await editor.get("/admin")).text
    assert f'id="restored-{path.rpartition("/")[2]}"' in overview
    assert (await editor.post(f"{path}/resume")).status_code == 303
    assert "is on hold" not in (await editor.get(path)).text
    assert "restored-" not in (await editor.get("/admin")).text
    message = await messages.read(editor.office.storage.tables, path.rpartition("/")[2])
    assert message.restore_hold is None


async def test_the_overview_tells_that_backups_fail_and_since_when(editor: Worker) -> None:
    tables = editor.office.storage.tables
    await backups.write(tables, BackupRecord(tried_at=NOW, made_at=NOW))
    assert "backup-failing" not in (await editor.get("/admin")).text
    failing = BackupRecord(tried_at=NOW, made_at=NOW, failure="The disk is full.", failures=2)
    await backups.write(tables, failing)
    page = (await editor.get("/admin")).text
    assert "The last scheduled backup failed." in page
    assert "The disk is full. Last tried" in page
    assert "The last good backup was made on" in page
