"""Several webs on one storage: sessions, keys, links, forms and limits, whichever answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from postroom.actions import sign_in
from postroom.actions.sign_in import Browser
from postroom.domain.address import parse_address
from postroom.domain.user import Role, User
from postroom.importing.worker import ImportWorker
from postroom.records import keys, subscribers, users
from postroom.scheduler import Scheduler
from postroom.storage.port import KeysWithin, Storage
from postroom.web.api.auth import KEY_CACHED
from tests.clock import START
from tests.contract.engines import all_rows
from tests.web.office import LIST
from tests.web.sent_forms import fields_of
from tests.web.several import TwoWebs, Web, two_webs
from tests.web.signed_in import HASH, PASSWORD

OWNER = "owner@contoso.edu"
ADA = "ada@contoso.edu"
TWENTY = range(20)


@pytest_asyncio.fixture(params=["memory", "sqlite", "azure"])
async def webs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TwoWebs]:
    async with two_webs(request.param, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture
async def near(tmp_path: Path) -> AsyncIterator[TwoWebs]:
    """On a model of storage, for what does not depend on the engine."""
    async with two_webs("memory", tmp_path) as opened:
        yield opened


async def signed_in(web: Web) -> httpx2.AsyncClient:
    """An owner, and their browser."""
    key = parse_address(OWNER).storage_key
    user = User(
        address=OWNER,
        key=key,
        role=Role.OWNER,
        password=HASH,
        created_at=START,
        sessions_from=START,
    )
    await users.add(web.storage.tables, user)
    token = await sign_in.begin(web.storage.tables, user, Browser("127.0.0.1", "a test"), START)
    browser = web.browser()
    browser.cookies.set("__Host-postroom", token)
    return browser


async def rows_of_throttles(storage: Storage) -> list[str]:
    rows = await all_rows(storage.tables, "service", KeysWithin("throttle"))
    return [f"{row.key} {row.properties}" for row in rows]


# --- Sessions, links, forms ---------------------------------------------------------------------


async def test_a_session_made_at_one_web_works_at_the_other_until_it_is_ended_anywhere(
    webs: TwoWebs,
) -> None:
    browser = await signed_in(webs.one)
    other = webs.two.browser(browser)
    assert (await other.get("/admin/lists")).status_code == 200
    assert (await browser.post("/admin/sign-out")).status_code == 303
    refused = await other.get("/admin/lists")
    assert refused.headers["location"].startswith("/admin/sign-in")


async def test_the_first_link_is_good_at_any_web_and_for_one_account(webs: TwoWebs) -> None:
    token = await sign_in.first_link(webs.one.storage.tables, START)
    assert token
    one, two = webs.one.browser(), webs.two.browser()
    path = f"/admin/welcome/{token}"
    assert (await one.get(path)).status_code == 200
    made = await two.post(path, data={"address": OWNER, "password": PASSWORD})
    assert made.headers["location"] == "/admin"
    assert (await webs.one.browser(two).get("/admin")).status_code == 200
    again = await one.post(path, data={"address": "eve@contoso.edu", "password": PASSWORD})
    assert again.status_code == 404


async def test_a_form_shown_at_one_web_and_sent_to_both_acts_once(webs: TwoWebs) -> None:
    one = await signed_in(webs.one)
    two = webs.two.browser(one)
    fields = fields_of((await one.get("/admin/keys")).text, "/admin/keys/new")
    fields |= {"name": "Contoso website", "lists": LIST, "right-subscribe": "yes"}
    first = await two.post("/admin/keys/new", data=fields)
    assert first.status_code == 200
    assert "prk_" in first.text
    assert "prk_" not in (await one.post("/admin/keys/new", data=fields)).text
    assert len([key async for key in keys.every_key(webs.one.storage.tables)]) == 1


async def test_a_sign_up_form_shown_at_one_web_is_taken_at_the_other(near: TwoWebs) -> None:
    browser = await signed_in(near.one)
    page = (await browser.get(f"/admin/lists/{LIST}/edit")).text
    changed = fields_of(page) | {"public_form": "yes"}
    assert (await browser.post(f"/admin/lists/{LIST}/edit", data=changed)).status_code == 303
    shown = (await near.one.client.get(f"/s/{LIST}")).text
    postmark = re.search(r'name="postmark" value="([^"]+)"', shown)
    assert postmark
    near.clock.move(3)
    sent = {"email": ADA, "postmark": postmark[1]}
    thanked = await near.two.client.post(f"/s/{LIST}", data=sent)
    assert thanked.headers["location"] == f"/s/{LIST}/thanks"


# --- Keys ---------------------------------------------------------------------------------------


async def test_a_key_made_at_one_web_works_at_the_other_until_it_is_revoked_anywhere(
    webs: TwoWebs,
) -> None:
    key, kept = await keys.create(webs.one.storage.tables, "program", (), START)
    assert await webs.two.subscribe(key, ADA) == 202
    await keys.revoke(webs.one.storage.tables, kept.id)
    webs.clock.move(KEY_CACHED.total_seconds())  # as docs/web-service.md says
    assert await webs.two.subscribe(key, ADA) == 401


# --- Limits -------------------------------------------------------------------------------------


async def test_each_web_process_limits_an_address_separately(near: TwoWebs) -> None:
    """A little inexact: two web processes take at most twice the limit."""
    key, _ = await keys.create(near.one.storage.tables, "program", (), START)
    for web in (near.one, near.two):
        assert {await web.subscribe(key, ADA) for _ in TWENTY} == {202}
        assert await web.subscribe(key, ADA) == 429
        assert await web.subscribe(key, "bob@contoso.edu") == 202
    near.clock.move(180)  # one call every three minutes
    assert await near.two.subscribe(key, ADA) == 202


async def test_a_limited_caller_costs_storage_nothing(near: TwoWebs) -> None:
    key, _ = await keys.create(near.one.storage.tables, "program", (), START)
    for _ in TWENTY:
        await near.one.subscribe(key, ADA)
    before = near.one.calls
    assert await near.one.subscribe(key, ADA) == 429
    assert near.one.calls == before


async def test_tries_to_sign_in_are_counted_one_by_one_whichever_web_is_asked(
    webs: TwoWebs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: object) -> None:
        return None

    monkeypatch.setattr(sign_in, "check", wrong)
    guess = {"address": OWNER, "password": "a guess"}
    browsers = [webs.one.browser(), webs.two.browser()]
    tries = [await browsers[n % 2].post("/admin/sign-in", data=guess) for n in range(12)]
    assert [each.status_code for each in tries] == [422] * 10 + [429] * 2
    before = webs.one.calls
    assert (await browsers[0].post("/admin/sign-in", data=guess)).status_code == 429
    assert webs.one.calls == before, "trying on costs storage something"
    webs.clock.move(360)
    assert (await browsers[1].post("/admin/sign-in", data=guess)).status_code == 422


async def test_stored_attempts_to_sign_in_contain_no_address_and_are_swept(
    near: TwoWebs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: object) -> None:
        return None

    monkeypatch.setattr(sign_in, "check", wrong)
    storage = near.one.storage
    await near.one.browser().post("/admin/sign-in", data={"address": OWNER, "password": "x"})
    rows = await rows_of_throttles(storage)
    assert len(rows) == 2  # of the network, and of the address from there
    assert not [row for row in rows if "@" in row or "owner" in row or "127.0.0.1" in row]
    assert await Scheduler(storage, near.clock, "scheduler").step() is False
    assert await rows_of_throttles(storage) == rows
    near.clock.move(3600)
    await Scheduler(storage, near.clock, "scheduler").step()
    assert await rows_of_throttles(storage) == []


# --- Imports --------------------------------------------------------------------------------------


async def test_an_import_is_uploaded_at_one_web_shown_at_the_other_and_run_by_a_worker(
    webs: TwoWebs,
) -> None:
    browser = await signed_in(webs.one)
    other = webs.two.browser(browser)
    file = ("people.csv", f"email\n{ADA}\nnobody\n".encode(), "text/csv")
    answer = await browser.post("/admin/imports/upload", data={"list": LIST}, files={"file": file})
    path = answer.headers["location"].removesuffix("/columns")
    assert ADA in (await other.get(f"{path}/columns")).text
    choice = {"email": "0", "header": "yes", "purpose": "confirmed", "basis": "They asked"}
    worker = ImportWorker(webs.two.storage, webs.clock)
    assert (await other.post(f"{path}/columns", data=choice)).status_code == 303
    assert "Waiting to start" in (await browser.get(path)).text
    assert await worker.step()
    await worker.settled()
    assert "Checked: 2 rows" in (await browser.get(path)).text
    assert (await browser.post(f"{path}/start")).status_code == 303
    assert await worker.step()
    await worker.settled()
    for each in (browser, other):
        assert "Done: 2 rows" in (await each.get(path)).text
        assert "nobody" in (await each.get(f"{path}/report/export")).text
    assert (await other.post(f"{path}/discard")).status_code == 303
    assert await webs.one.storage.blobs.list("imports/") == ([], None)
    key = parse_address(ADA).storage_key
    assert await subscribers.find(webs.one.storage.tables, LIST, key)
