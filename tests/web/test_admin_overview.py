"""The overview: what goes out and what is next, however much was written since."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.dead_letter import Reason
from postroom.domain.message import Status
from postroom.records import dead_letters, messages, webhooks
from postroom.records.names import MAIL_QUEUE
from postroom.records.webhooks import WebhookCounts
from postroom.web.admin.audience import FRESH_FOR, AudienceCache
from postroom.web.admin.overview import MESSAGES_SEARCHED
from tests.web.drafts import etag_of, written
from tests.web.office import NOW
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


async def test_the_audience_comes_before_the_machine(editor: Worker) -> None:
    assert "<b>0</b><span>confirmed subscriptions</span>" in (await editor.get("/admin")).text
    await editor.office.join(verified=True)
    page = (await editor.get("/admin")).text
    assert "<b>1</b><span>confirmed subscription</span>" in page
    assert "joined in the last 30 days" in page
    assert page.index("confirmed subscription") < page.index("Recently sent")
    assert page.index("Recently sent") < page.index("senders running")


async def test_the_audience_is_counted_again_only_after_a_while(tmp_path: Path) -> None:
    async with at_work(tmp_path) as worker:
        tables = worker.office.storage.tables
        cache = AudienceCache()
        assert (await cache.read(tables, NOW)).confirmed == 0
        await worker.office.join(verified=True)
        assert (await cache.read(tables, NOW + FRESH_FOR / 2)).confirmed == 0
        assert (await cache.read(tables, NOW + FRESH_FOR)).confirmed == 1
        earlier = NOW - timedelta(hours=1)
        await cache.read(tables, earlier)  # the clock was set back
        assert cache.is_fresh(earlier)
        assert not cache.is_fresh(NOW)


async def write_drafts(editor: Worker, count: int) -> None:
    for _draft in range(count):
        await written(editor, subject="A later draft")


async def test_the_next_scheduled_message_is_shown_whatever_was_written_since(
    editor: Worker,
) -> None:
    await scheduled(editor, "The yearly letter")
    await write_drafts(editor, MESSAGES_SEARCHED)
    page = (await editor.get("/admin")).text
    assert "The yearly letter" in page
    assert "Nothing scheduled" not in page


@pytest.mark.parametrize("status", [Status.QUEUING, Status.PROCESSING, Status.PAUSED])
async def test_what_is_on_its_way_is_shown_whatever_was_written_since(
    editor: Worker, status: Status
) -> None:
    tables = editor.office.storage.tables
    found = await messages.find_live(tables, await scheduled(editor, "The yearly letter"))
    assert found
    going = msgspec.structs.replace(found[0], status=status)
    await messages.replace(tables, going, found[1])
    await write_drafts(editor, MESSAGES_SEARCHED)
    assert "The yearly letter" in (await editor.get("/admin")).text


async def test_drafts_are_counted_as_far_as_the_page_says(editor: Worker) -> None:
    await write_drafts(editor, MESSAGES_SEARCHED)
    link = '<a href="/admin/messages?status=draft"><b>30</b><span>drafts</span></a>'
    assert link in (await editor.get("/admin")).text
    await write_drafts(editor, 1)
    page = (await editor.get("/admin")).text
    assert "<b>30</b><span>drafts among the newest 30 messages</span>" in page


async def test_dead_letters_are_listed_by_reason_and_only_held_recipients_are_called_held(
    editor: Worker,
) -> None:
    queues = editor.office.storage.queues
    assert "set aside" not in (await editor.get("/admin")).text
    await bury(editor, MAIL_QUEUE, "2012-10-15,634852858215726983,ada,0", Reason.MALFORMED)
    page = (await editor.get("/admin")).text
    assert "1 work item could not be processed" in page
    assert "not a Postroom work item" in page
    assert "on hold" not in page
    await bury(editor, MAIL_QUEUE, "2026-11-15,123,ada,0,4", Reason.NO_CONTENT)
    page = (await editor.get("/admin")).text
    assert "on hold" in page
    assert 'href="/admin/messages/123"' in page
    await dead_letters.clear(queues)
    assert "set aside" not in (await editor.get("/admin")).text


async def bury(editor: Worker, queue: str, body: str, reason: Reason) -> None:
    queues = editor.office.storage.queues
    await queues.put(queue, body)
    [claim] = await queues.claim(queue, limit=1, lease_s=60)
    await dead_letters.bury(queues, claim, reason, NOW)


async def test_a_bounce_mailbox_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    async with at_work(tmp_path, has_bounce_mailbox=True) as editor:
        tables = editor.office.storage.tables
        assert "bounce mailbox" not in (await editor.get("/admin")).text
        words = "The mail server imap.contoso.edu:993 rejects the login"
        failed = WebhookCounts(refused=1, refused_at=NOW, refusal=words)
        await webhooks.add_counts(tables, "mailbox", failed)
        page = (await editor.get("/admin")).text
        assert "The bounce mailbox cannot be read." in page
        assert f"{words}." in page
        read = WebhookCounts(last_at=NOW + timedelta(seconds=1))
        await webhooks.add_counts(tables, "mailbox", read)
        assert "bounce mailbox" not in (await editor.get("/admin")).text
