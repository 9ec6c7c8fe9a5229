"""The overview: what goes out and what is next, however much was written since."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.message import Status
from postroom.records import messages
from postroom.web.admin.overview import MESSAGES_LOOKED_AT
from tests.web.drafts import etag_of, written
from tests.web.signed_in import Worker, at_work


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


async def scheduled(editor: Worker, subject: str) -> str:
    """The ref of a message that is due in a month."""
    path = await written(editor, subject=subject)
    etag = etag_of((await editor.get(f"{path}/schedule")).text)
    when = {"date": "2026-12-15", "time": "09:30", "zone": "UTC"}
    assert (await editor.post(f"{path}/schedule", **when, etag=etag)).status_code == 303
    return path.rpartition("/")[2]


async def write_drafts(editor: Worker, count: int) -> None:
    for _draft in range(count):
        await written(editor, subject="A later draft")


async def test_what_goes_out_next_is_shown_whatever_was_written_since(editor: Worker) -> None:
    await scheduled(editor, "The yearly letter")
    await write_drafts(editor, MESSAGES_LOOKED_AT)
    page = (await editor.get("/admin")).text
    assert "The yearly letter" in page
    assert "Nothing is scheduled" not in page


@pytest.mark.parametrize("status", [Status.QUEUING, Status.PROCESSING, Status.PAUSED])
async def test_what_is_on_its_way_is_shown_whatever_was_written_since(
    editor: Worker, status: Status
) -> None:
    tables = editor.office.storage.tables
    found = await messages.find_live(tables, await scheduled(editor, "The yearly letter"))
    assert found
    going = msgspec.structs.replace(found[0], status=status)
    await messages.replace(tables, going, found[1])
    await write_drafts(editor, MESSAGES_LOOKED_AT)
    assert "The yearly letter" in (await editor.get("/admin")).text


async def test_drafts_are_counted_as_far_as_the_page_says(editor: Worker) -> None:
    await write_drafts(editor, MESSAGES_LOOKED_AT)
    link = '<a href="/admin/messages?status=draft"><b>30</b><span>drafts</span></a>'
    assert link in (await editor.get("/admin")).text
    await write_drafts(editor, 1)
    page = (await editor.get("/admin")).text
    assert "<b>30</b><span>drafts among the newest 30 messages</span>" in page
