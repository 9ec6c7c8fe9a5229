"""Lists on the admin pages: nothing typed is lost, nothing of somebody else's is overwritten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.user import Role
from postroom.records import lists
from tests.web.office import LIST
from tests.web.signed_in import Worker, at_work, notice_in, sign_in_as

GOOD = {"name": "news", "sender": "News <news@contoso.edu>", "description": "What is new"}


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


def etag_of(page: str) -> str:
    return page.partition('name="etag" value="')[2].partition('"')[0]


async def test_a_list_is_made_and_shown(editor: Worker) -> None:
    answer = await editor.post("/admin/lists/new", **GOOD)
    assert (answer.headers["location"], notice_in(answer)) == ("/admin/lists/news", "created")
    page = await editor.get("/admin/lists/news")
    assert "What is new" in page.text
    assert "News &lt;news@contoso.edu&gt;" in page.text
    assert "news" in (await editor.get("/admin/lists")).text


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", "no blanks", "cannot be a list name"),
        ("name", LIST, "already"),
        ("sender", "nobody", "no @"),
        ("description", "x" * 300, "longer than"),
        ("postal_address", "x" * 400, "one line"),
    ],
)
async def test_wrong_input_gets_a_sentence_and_loses_nothing(
    editor: Worker, field: str, value: str, sentence: str
) -> None:
    answer = await editor.post("/admin/lists/new", **GOOD | {field: value})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert sentence in answer.text
    assert f'aria-describedby="{field}-' in answer.text or f"{field}-mistake" in answer.text
    for kept in (GOOD | {field: value}).values():
        assert kept.replace("<", "&lt;").replace(">", "&gt;") in answer.text


async def test_of_two_who_edit_one_list_the_second_sees_both_versions(editor: Worker) -> None:
    first = (await editor.get(f"/admin/lists/{LIST}/edit")).text
    second = (await editor.get(f"/admin/lists/{LIST}/edit")).text
    mine = {"sender": "mine@contoso.edu", "description": "Mine", "etag": etag_of(second)}
    theirs = {"sender": "a@contoso.edu", "description": "Theirs", "etag": etag_of(first)}
    assert (await editor.post(f"/admin/lists/{LIST}/edit", **theirs)).status_code == 303
    answer = await editor.post(f"/admin/lists/{LIST}/edit", **mine)
    assert answer.status_code == 409
    assert "Somebody else changed this" in answer.text
    assert 'value="Mine"' in answer.text
    assert "<strong>Theirs</strong>" in answer.text
    assert (await lists.read(editor.office.storage.tables, LIST)).description == "Theirs"
    again = await editor.post(f"/admin/lists/{LIST}/edit", **mine | {"etag": etag_of(answer.text)})
    assert again.status_code == 303
    assert (await lists.read(editor.office.storage.tables, LIST)).description == "Mine"


async def test_a_list_goes_only_with_its_name_typed(editor: Worker) -> None:
    asked = await editor.get(f"/admin/lists/{LIST}/delete")
    etag = etag_of(asked.text)
    answer = await editor.post(f"/admin/lists/{LIST}/delete", etag=etag, typed="contoso")
    assert answer.status_code == 422
    assert await lists.find(editor.office.storage.tables, LIST)
    answer = await editor.post(f"/admin/lists/{LIST}/delete", etag=etag, typed=LIST)
    assert (answer.headers["location"], notice_in(answer)) == ("/admin/lists", "deleting")
    assert await lists.find(editor.office.storage.tables, LIST) is None
    assert (await editor.get(f"/admin/lists/{LIST}")).status_code == 404


async def test_a_second_click_on_delete_finds_the_list_gone_as_was_wanted(editor: Worker) -> None:
    etag = etag_of((await editor.get(f"/admin/lists/{LIST}/delete")).text)
    for _click in range(2):
        answer = await editor.post(f"/admin/lists/{LIST}/delete", etag=etag, typed=LIST)
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/lists", "deleting")


async def test_a_list_that_changed_since_one_looked_is_not_deleted(editor: Worker) -> None:
    asked = await editor.get(f"/admin/lists/{LIST}/delete")
    page = (await editor.get(f"/admin/lists/{LIST}/edit")).text
    change = {"sender": "a@contoso.edu", "description": "Changed", "etag": etag_of(page)}
    await editor.post(f"/admin/lists/{LIST}/edit", **change)
    answer = await editor.post(f"/admin/lists/{LIST}/delete", etag=etag_of(asked.text), typed=LIST)
    assert answer.status_code == 409
    assert await lists.find(editor.office.storage.tables, LIST)


@pytest.mark.parametrize("name", ["nope", "no%20blanks", "%3Cscript%3E", "x" * 300])
async def test_a_list_that_is_not_there_is_not_found(editor: Worker, name: str) -> None:
    for path in ("", "/edit", "/delete"):
        assert (await editor.get(f"/admin/lists/{name}{path}")).status_code == 404


async def test_a_viewer_looks_and_is_offered_nothing_else(editor: Worker) -> None:
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    async with viewer.browser:
        page = await viewer.get(f"/admin/lists/{LIST}")
        assert page.status_code == 200
        assert "/edit" not in page.text
        assert "/delete" not in page.text
        assert "/admin/keys" not in page.text


async def test_an_empty_house_offers_the_first_list(editor: Worker) -> None:
    await lists.start_deleting(editor.office.storage.tables, LIST)
    page = await editor.get("/admin/lists")
    assert "Create your first list" in page.text
    assert "Create a list" in (await editor.get("/admin")).text
