"""Access keys on the admin pages: shown once, stored hashed, revoked for good."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from postroom.domain.access_key import Right
from postroom.domain.user import Role
from postroom.records import keys
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import SECOND, second_list
from tests.web.signed_in import Worker, at_work, notice_in


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER) as worker:
        yield worker


async def made(owner: Worker, **fields: str) -> str:
    answer = await owner.post("/admin/keys/new", **fields)
    found = re.search(r"prk_[\w-]{40}", answer.text)
    assert found
    return found[0]


async def test_a_key_is_shown_once_and_signs_people_up(owner: Worker) -> None:
    key = await made(owner, name="Contoso website", lists=LIST, **{"right-subscribe": "yes"})
    assert key not in (await owner.get("/admin/keys")).text
    answer = await owner.browser.post(
        "/api/v1/subscribe",
        json={"list": LIST, "email": ADDRESS},
        headers={"Authorization": f"Bearer {key}"},
    )
    assert answer.status_code == 202


async def test_a_key_has_the_rights_that_were_ticked(owner: Worker) -> None:
    await made(owner, name="reader", lists="", **{"right-read": "yes"})
    [key] = [key async for key in keys.every_key(owner.office.storage.tables)]
    assert key.rights == (Right.READ,)
    assert key.is_for_every_list


async def test_a_key_is_for_the_lists_that_were_ticked(owner: Worker) -> None:
    await second_list(owner)
    assert f'name="list-{SECOND}"' in (await owner.get("/admin/keys")).text
    await made(owner, name="site", **{f"list-{LIST}": "yes"})
    [key] = [key async for key in keys.every_key(owner.office.storage.tables)]
    assert key.lists == (LIST,)


async def test_wrong_input_loses_nothing(owner: Worker) -> None:
    answer = await owner.post(
        "/admin/keys/new", name="", lists="contoso1 nope", **{f"list-{LIST}": "yes"}
    )
    assert answer.status_code == 422
    assert "that says who uses it" in answer.text
    assert "There is no list nope." in answer.text
    assert 'value="contoso1 nope"' in answer.text
    assert f'name="list-{LIST}" value="yes" checked' in answer.text


async def test_revoking_a_key_asks_first_and_says_what_will_stop(owner: Worker) -> None:
    secret = await made(owner, name="Contoso website", **{f"list-{LIST}": "yes"})
    tables = owner.office.storage.tables
    await keys.note_use(tables, secret, NOW)
    [key] = [key async for key in keys.every_key(tables)]
    index = (await owner.get("/admin/keys")).text
    assert f'href="/admin/keys/{key.id}/revoke"' in index
    assert "<form" not in index.partition("<tbody>")[2].partition("</tbody>")[0]
    page = (await owner.get(f"/admin/keys/{key.id}/revoke")).text
    for words in ("Contoso website", LIST, "Signing people up", "2026-11-15 09:00 UTC"):
        assert words in page
    assert [key async for key in keys.every_key(tables)] == [key]


async def test_a_revoked_key_is_gone_however_often_it_is_revoked(owner: Worker) -> None:
    await made(owner, name="site", lists="")
    [key] = [key async for key in keys.every_key(owner.office.storage.tables)]
    for _ in range(2):
        answer = await owner.post(f"/admin/keys/{key.id}/revoke")
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/keys", "revoked")
    assert [key async for key in keys.every_key(owner.office.storage.tables)] == []
    gone = await owner.get(f"/admin/keys/{key.id}/revoke")
    assert gone.headers["location"] == "/admin/keys"
