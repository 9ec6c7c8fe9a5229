"""A message in the browser: for anybody with the link, with nobody's data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.parsing import in_thread
from postroom.records import lists
from postroom.web.public import view
from tests.web.drafts import fields_in, written
from tests.web.office import LIST
from tests.web.signed_in import Worker, at_work


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def test_the_page_shows_defaults_and_no_persons_data(editor: Worker) -> None:
    body = (
        '<p>Dear {{ name | default("friend") }}, {{ email }} {% if city %}in {{ city }}{% else %}'
        'anywhere{% endif %} <a href="{{ view_url }}">view</a> {{ list_title }}</p>'
    )
    path = await written(editor, body=body)
    ref = path.rpartition("/")[2]
    link = editor.office.site.view_path(ref)
    assert link in (await editor.get(f"{path}/mail")).text
    answer = await editor.office.browser.get(link)
    assert answer.status_code == 200
    assert "Dear friend, " in answer.text
    assert "anywhere" in answer.text
    assert "History &lt;b&gt;news&lt;/b&gt;" in answer.text
    assert "@" not in answer.text
    assert "/u/" not in answer.text  # nobody's unsubscribe link
    assert "noindex" in answer.headers["x-robots-tag"]
    policy = answer.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "script" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ("<p>Words</p>", "<title>News of {{ name }} &amp; more</title><p>"),
        ("<!doctype html><html lang='en'><head><title></title>", "<head><title>News of"),
        ("<!doctype html>\n<html><body><p>x</p></body></html>", "<html><title>News of"),
        ("<head><title>Mine</title></head><p>x</p>", "<head><title>Mine</title></head>"),
    ],
)
async def test_the_title_is_the_subject_unless_there_is_one(
    editor: Worker, body: str, start: str
) -> None:
    path = await written(editor, body=body, subject="News of {{ name | default('all') }} & more")
    link = editor.office.site.view_path(path.rpartition("/")[2])
    answer = await editor.office.browser.get(link)
    assert start.replace("{{ name }}", "all") in answer.text
    assert answer.text.count("<title") == 1


async def test_a_link_that_is_not_ours_shows_nothing(editor: Worker) -> None:
    path = await written(editor)
    ref = path.rpartition("/")[2]
    for wrong in (
        f"/v/{ref}/{'0' * 24}",
        f"/v/{ref}x/{'0' * 24}",
        editor.office.site.view_path("1"),
    ):
        answer = await editor.office.browser.get(wrong)
        assert answer.status_code == 404
        assert "Dear" not in answer.text


async def test_a_text_message_is_shown_as_text(editor: Worker) -> None:
    path = await written(editor, body="", text="Hello {{ name }}, <b>")
    link = editor.office.site.view_path(path.rpartition("/")[2])
    answer = await editor.office.browser.get(link)
    assert answer.headers["content-type"].startswith("text/plain")
    assert "Hello , <b>" in answer.text


async def test_many_readers_take_no_turn_from_those_who_write(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is made once, and one at a time, in the thread that saves and previews use as well."""
    links = []
    for number in range(3):
        path = await written(editor, body=f"<p>Words {number}</p>")
        links.append(editor.office.site.view_path(path.rpartition("/")[2]))
    making: list[int] = []
    waiting = 0

    async def watched(work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        nonlocal waiting
        waiting += 1
        making.append(waiting)
        made = await in_thread(work, *args, **named)
        waiting -= 1
        return made

    monkeypatch.setattr(view, "in_thread", watched)
    browser = editor.office.browser
    answers = await asyncio.gather(*(browser.get(link) for link in links * 10))
    assert [answer.status_code for answer in answers] == [200] * 30
    assert making == [1] * 3
    fields = fields_in((await editor.get(f"{path}/write")).text, body="<p>Other words</p>")
    assert (await editor.post(f"{path}/write", **fields)).status_code == 303
    assert "Other words" in (await browser.get(links[-1])).text
    found, etag = await lists.read_with_etag(editor.office.storage.tables, LIST)
    named = msgspec.structs.replace(found, description="Renamed")
    await lists.replace(editor.office.storage.tables, named, etag)
    assert "Renamed" in (await browser.get(links[-1])).text
