"""A message in the browser: for anybody with the link, with nobody's data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from postroom.domain.user import Role
from tests.web.drafts import written
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
