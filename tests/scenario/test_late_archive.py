"""A scheduler that stalls while it puts a message away: what came after it stands."""

from __future__ import annotations

from datetime import datetime

import pytest

from postroom.actions import control_message
from postroom.domain.message import Books, Message
from postroom.flow import archive
from postroom.records import messages
from postroom.records.messages import DueEntry
from postroom.storage.port import Conflict, Tables
from tests.scenario.town import Town


async def test_a_late_copy_into_the_archive_changes_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile another one archived it, people retried the failed, and it was archived again."""
    ref = await town.mailing("ada", "perm-fail-once")
    late: list[tuple[Message, str, DueEntry, datetime]] = []

    async def stall(
        _tables: Tables, message: Message, etag: str, entry: DueEntry, now: datetime
    ) -> None:
        late.append((message, etag, entry, now))
        raise Conflict("stalled: the next look does it")

    with monkeypatch.context() as stalled:
        stalled.setattr(archive, "put_away", stall)
        await town.open_sender()
        for _ in range(40):
            await town.scheduler.step_and_report()
            await town.sender_alone()
            if late:
                break
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=1, failed=1)
    await control_message.retry_failed(town.storage.tables, ref, town.clock.now())
    await town.quiet()
    assert (await town.read(ref)).books == Books(sent=2)
    with pytest.raises(Conflict):
        await archive.put_away(town.storage.tables, *late[0])
    assert (await messages.read(town.storage.tables, ref)).books == Books(sent=2)
