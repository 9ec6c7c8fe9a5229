"""Traces on the admin pages: filtered, paged by key, live; and the stories made of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.trace_entry import TraceLevel
from postroom.domain.user import Role
from postroom.records import traces
from tests.web.signed_in import Worker, at_work
from tests.web.test_admin_sending import going_out
from tests.web.test_live import Room, room
from tests.web.trace_visits import PERSON, a_trace

__all__ = ["room"]  # a fixture


@pytest_asyncio.fixture
async def viewer(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def shown(worker: Worker, path: str = "/admin/traces", **more: str) -> str:
    answer = await worker.get(path, **more)
    assert answer.status_code == 200
    return unescape(answer.text)


def rows_in(page: str) -> int:
    return page.count('class="level level-')


async def test_an_empty_page_says_that_there_are_no_traces(viewer: Worker) -> None:
    assert "No traces" in await shown(viewer)


async def test_pages_follow_each_other_by_key(viewer: Worker) -> None:
    tables = viewer.office.storage.tables
    await traces.write(tables, [a_trace(number) for number in range(120)])
    path, rows = "/admin/traces?level=debug", []
    for _page in range(4):
        page = await shown(viewer, path)
        rows.append(rows_in(page))
        older = re.search(r'href="(/admin/traces\?[^"]*before=[^"]*)"', page)
        if older is None:
            break
        assert "level=debug" in older[1]
        path = older[1]
    assert rows == [50, 50, 20]
    assert "Back to the newest" in page
    assert "sse-connect" not in page


async def test_filters_are_kept_and_links_lead_on(viewer: Worker) -> None:
    tables = viewer.office.storage.tables
    about = {"ref": "638888888888888888", "person": PERSON, "level": TraceLevel.WARNING}
    await traces.write(tables, [a_trace(1), a_trace(2, "batch_taken_over", about)])
    page = await shown(viewer, message="638888888888888888", level="warning", text="took over")
    assert rows_in(page) == 1
    assert 'value="638888888888888888"' in page
    assert 'href="/admin/messages/638888888888888888/story"' in page
    assert f'href="/admin/traces?person={PERSON}&level=debug"' in page
    assert 'sse-connect="/admin/traces/live?level=warning&message=638888888888888888' in page
    assert rows_in(await shown(viewer, person=PERSON)) == 1
    assert rows_in(await shown(viewer, instance="host.2", level="debug")) == 0
    assert rows_in(await shown(viewer, level="debug", to="2026-11-15T08:59")) == 0
    assert rows_in(await shown(viewer, **{"level": "debug", "from": "2026-11-15T08:59"})) == 2


@pytest.mark.parametrize("name", ["level", "message", "person", "from", "to"])
async def test_a_wrong_filter_is_shown_again_with_a_sentence(viewer: Worker, name: str) -> None:
    answer = await viewer.get("/admin/traces", **{name: "wrong one"})
    assert answer.status_code == 422
    assert f'href="#{name}"' in answer.text
    assert f'id="{name}"' in answer.text
    assert 'role="alert"' in answer.text


async def test_new_traces_appear_by_themselves(room: Room) -> None:
    await traces.write(room.storage.tables, [a_trace(9, about={"level": TraceLevel.INFO})])
    async with room.watching("/admin/traces/live") as stream:
        name, data = await stream.event()
        assert (name, rows_in(data)) == ("traces", 1)
        await traces.write(room.storage.tables, [a_trace(8, about={"level": TraceLevel.ERROR})])
        await room.clock.tick()
        assert rows_in((await stream.event())[1]) == 2


async def test_a_message_leads_to_its_story_and_a_recipient_to_theirs(viewer: Worker) -> None:
    path = await going_out(viewer)
    ref = path.rpartition("/")[2]
    tables = viewer.office.storage.tables
    about = {"ref": ref, "fields": {"batch": 0, "owner": "sender 1", "known": 1, "held": 1}}
    other = {"ref": ref, "fields": {"batch": 7, "owner": "sender 2"}}
    await traces.write(
        tables, [a_trace(1, "batch_taken_over", about), a_trace(2, "batch_taken_over", other)]
    )
    page = await shown(viewer, path, outcome="failed")
    assert f'href="{path}/story"' in page
    assert f'href="{path}/story?delivery=0.0"' in page
    story = await shown(viewer, f"{path}/story")
    assert "The message was created." in story
    assert "Sender sender 1 stopped" in story
    assert "Sender sender 2 stopped" in story
    delivery = await shown(viewer, f"{path}/story", delivery="0.0")
    steps = ["The message was created.", "number 1 of 2 in batch 0", "failed for good", "550 5.1.1"]
    places = [delivery.index(step) for step in steps]
    assert places == sorted(places)
    assert "student0@contoso.edu" in delivery
    assert "Sender sender 1 stopped" in delivery
    assert "sender 2" not in delivery
    held = await shown(viewer, f"{path}/story", delivery="0.1")
    assert "held until somebody decides" in held


async def test_batches_that_are_queued_again_are_counted_in_the_story(viewer: Worker) -> None:
    path = await going_out(viewer)
    ref = path.rpartition("/")[2]
    written = [
        a_trace(number, "item_after_restart", {"ref": ref, "fields": {"batch": number}})
        for number in range(1, 32)
    ]
    await traces.write(viewer.office.storage.tables, written)
    story = await shown(viewer, f"{path}/story")
    assert story.count("was queued again after an interruption") == 1
    assert "The same happened to 30 more batches." in story
