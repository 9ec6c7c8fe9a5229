"""Users of the admin pages: nobody is locked out, nobody comes back, somebody is always owner."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.actions import sign_in
from postroom.domain.address import parse_address
from postroom.domain.errors import WrongState
from postroom.domain.user import Role
from postroom.records import users
from postroom.storage.port import Conflict
from postroom.web.security import ORDINARY, limits_for
from tests.web.office import NOW, Office, open_office
from tests.web.signed_in import OWN_PAGE, PASSWORD, Worker, notice_in, sign_in_as

EVE = "eve@contoso.edu"
LATER = NOW + timedelta(minutes=1)


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    proxies = (ip_network("127.0.0.0/8"),)
    async with open_office(tmp_path, trusted_proxies=proxies) as office:
        yield office


@pytest_asyncio.fixture
async def boss(office: Office) -> AsyncIterator[Worker]:
    worker = await sign_in_as(office, Role.OWNER)
    async with worker.browser:
        yield worker


async def owners(office: Office) -> list[str]:
    found = users.every_user(office.storage.tables)
    return [user.address async for user in found if user.role is Role.OWNER]


async def removing(boss: Worker, address: str) -> str:
    """Where the page of users leads to remove this one."""
    page = (await boss.get("/admin/users")).text
    row = page.partition(f">{address}")[2]
    found = re.search(r'href="(/admin/users/[\w-]+/remove)"', row)
    assert found
    return found[1]


# --- Links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", [EVE, "Eve@Contoso.edu"])
async def test_who_is_removed_cannot_come_back_by_an_older_link(
    boss: Worker, spelling: str
) -> None:
    tables = boss.office.storage.tables
    await sign_in.add_user(tables, EVE, Role.OWNER, PASSWORD, NOW)
    token = await sign_in.invite(tables, spelling, Role.OWNER, NOW)
    assert (await boss.post(await removing(boss, EVE))).status_code == 303
    assert (await boss.get(f"/admin/welcome/{token}")).status_code == 404
    assert await sign_in.accept(tables, token, "", PASSWORD, LATER) is None


async def test_a_new_link_makes_the_older_one_void_however_the_address_is_spelt(
    boss: Worker,
) -> None:
    tables = boss.office.storage.tables
    older = await sign_in.invite(tables, EVE, Role.OWNER, NOW)
    await sign_in.invite(tables, "EVE@contoso.edu", Role.VIEWER, NOW)
    assert await users.find_invitation(tables, older, LATER) is None


async def test_links_that_are_not_used_are_shown_and_can_be_withdrawn(boss: Worker) -> None:
    tables = boss.office.storage.tables
    token = await sign_in.invite(tables, EVE, Role.EDITOR, NOW)
    page = (await boss.get("/admin/users")).text
    assert EVE in page
    assert token not in page
    await boss.post("/admin/users/withdraw", key=parse_address(EVE).storage_key)
    assert EVE not in (await boss.get("/admin/users")).text
    assert (await boss.get(f"/admin/welcome/{token}")).status_code == 404


async def test_a_link_for_a_new_password_is_shown_with_the_role_that_its_user_has(
    boss: Worker,
) -> None:
    tables = boss.office.storage.tables
    await sign_in.add_user(tables, EVE, Role.OWNER, PASSWORD, NOW)
    await sign_in.invite(tables, EVE, Role.EDITOR, NOW)
    invited = (await boss.get("/admin/users")).text.partition('class="invited"')[2]
    assert f"{EVE} · new password · owner" in invited.partition("</form>")[0]


@pytest.mark.parametrize("token", ["upload", "live", "export", "write"])
async def test_nothing_that_a_stranger_sends_to_a_void_link_is_read(
    office: Office, token: str
) -> None:
    assert limits_for(f"/admin/welcome/{token}") == ORDINARY
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"password=" + b"x" * 1000

    headers = OWN_PAGE | {"content-type": "application/x-www-form-urlencoded"}
    answer = await office.browser.post(f"/admin/welcome/{token}", content=body(), headers=headers)
    assert answer.status_code == 404
    assert read <= 1


# --- Roles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["demote", "remove"])
async def test_of_two_owners_who_act_on_each_other_at_once_one_stays(
    office: Office, act: str
) -> None:
    tables = office.storage.tables
    for address in ("ada@contoso.edu", "bob@contoso.edu"):
        await sign_in.add_user(tables, address, Role.OWNER, PASSWORD, NOW)
    keys = [parse_address(address).storage_key for address in await owners(office)]
    acts = [
        sign_in.give_role(tables, key, Role.VIEWER)
        if act == "demote"
        else sign_in.remove(tables, key)
        for key in keys
    ]
    done = await asyncio.gather(*acts, return_exceptions=True)
    assert len(await owners(office)) == 1
    assert sum(isinstance(each, (Conflict, WrongState)) for each in done) == 1


@pytest.mark.parametrize("role", ["", "king", "OWNER"])
async def test_a_role_that_is_none_changes_nothing(boss: Worker, role: str) -> None:
    editor = await sign_in_as(boss.office, Role.EDITOR)
    answer = await boss.post("/admin/users/role", key=editor.user.key, role=role)
    assert answer.status_code == 422
    assert "Choose a role" in answer.text
    found = await users.find(boss.office.storage.tables, editor.user.key)
    assert found
    assert found[0].role is Role.EDITOR


@pytest.mark.parametrize("key", ["", "nobody@contoso.edu", "a/b", "x" * 2000, "\0"])
async def test_a_user_who_is_not_there_is_not_found(boss: Worker, key: str) -> None:
    assert (await boss.post("/admin/users/role", key=key, role="viewer")).status_code == 404


@pytest.mark.parametrize("who", ["nobody@contoso.edu", "x" * 2000, "-"])
async def test_only_somebody_whom_the_page_showed_can_be_removed(boss: Worker, who: str) -> None:
    assert (await boss.get(f"/admin/users/{who}/remove")).status_code == 404
    assert (await boss.post(f"/admin/users/{who}/remove")).status_code == 404


async def test_removing_somebody_asks_first_and_says_what_it_means(boss: Worker) -> None:
    tables = boss.office.storage.tables
    await sign_in.add_user(tables, EVE, Role.EDITOR, PASSWORD, NOW)
    path = await removing(boss, EVE)
    assert "contoso" not in path
    page = (await boss.get(path)).text
    for words in (EVE, "editor", "signed out everywhere", "invite them again"):
        assert words in page
    assert await users.find(tables, parse_address(EVE).storage_key)
    for _click in range(2):
        answer = await boss.post(path)
        assert (answer.headers["location"], notice_in(answer)) == ("/admin/users", "removed")
    assert await users.find(tables, parse_address(EVE).storage_key) is None
    assert (await boss.get(path)).status_code == 404


async def test_last_seen_is_right_to_the_minute_without_a_write_for_every_page(
    office: Office,
) -> None:
    worker, tables = await sign_in_as(office, Role.VIEWER), office.storage.tables
    async with worker.browser:
        token = worker.browser.cookies["__Host-postroom"]
    for seconds in (30, 60, 90, 120):
        now = NOW + timedelta(seconds=seconds)
        assert await users.find_session(tables, token, now)
        [session] = await users.sessions_of(tables, worker.user, now)
        assert session.seen_at == (NOW if seconds <= 60 else NOW + timedelta(seconds=90))


# --- Tries --------------------------------------------------------------------------------------


async def try_from(office: Office, network: str, password: str, address: str = EVE) -> int:
    headers = OWN_PAGE | {"x-forwarded-for": network}
    fields = {"address": address, "password": password}
    answer = await office.browser.post("/admin/sign-in", data=fields, headers=headers)
    return answer.status_code


@pytest.fixture
def right_is_right(monkeypatch: pytest.MonkeyPatch, office: Office) -> None:
    """Without the time that hashing takes."""

    async def check(_tables: object, _address: str, password: str) -> object:
        found = await users.find(office.storage.tables, parse_address(EVE).storage_key)
        return found[0] if found and password == PASSWORD else None

    monkeypatch.setattr(sign_in, "check", check)


@pytest.mark.usefixtures("right_is_right")
async def test_nobody_can_lock_somebody_out_from_elsewhere(office: Office) -> None:
    await sign_in.add_user(office.storage.tables, EVE, Role.OWNER, PASSWORD, NOW)
    tries = [await try_from(office, "203.0.113.9", "guess") for _ in range(12)]
    assert tries == [422] * 10 + [429] * 2
    assert await try_from(office, "198.51.100.7", PASSWORD) == 303


@pytest.mark.usefixtures("right_is_right")
async def test_no_other_spelling_of_an_address_is_another_caller(office: Office) -> None:
    await sign_in.add_user(office.storage.tables, EVE, Role.OWNER, PASSWORD, NOW)
    spellings = [EVE, EVE.upper(), f"{EVE}\u200b", f"\ufeff{EVE}", f"{EVE}\u200b\u2060"]
    for spelling in spellings * 2:
        assert await try_from(office, "203.0.113.9", "guess", spelling) == 422
    for number in range(3):
        spelling = EVE + "\u200b" * number
        assert await try_from(office, "203.0.113.9", PASSWORD, spelling) == 429


@pytest.mark.usefixtures("right_is_right")
async def test_whoever_tried_too_often_reads_for_how_long(office: Office) -> None:
    fields = {"address": EVE, "password": "guess"}
    answers = [
        await office.browser.post("/admin/sign-in", data=fields, headers=OWN_PAGE)
        for _ in range(11)
    ]
    assert "Too many attempts. Try again in 6 minutes." in answers[-1].text


@pytest.mark.usefixtures("right_is_right")
async def test_whoever_is_right_in_the_end_starts_afresh(office: Office) -> None:
    await sign_in.add_user(office.storage.tables, EVE, Role.OWNER, PASSWORD, NOW)
    for _ in range(3):
        tries = [await try_from(office, "203.0.113.9", "mistyped") for _ in range(9)]
        assert tries == [422] * 9
        assert await try_from(office, "203.0.113.9", PASSWORD) == 303


@pytest.mark.usefixtures("right_is_right")
async def test_the_addresses_of_one_customer_count_as_one_network(office: Office) -> None:
    tries = [await try_from(office, f"2001:db8::{number:x}", "guess") for number in range(1, 13)]
    assert tries == [422] * 10 + [429] * 2


async def test_guessing_the_password_of_an_open_browser_has_a_limit(
    boss: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: object) -> None:
        raise sign_in.WrongPassword("This is not your current password.")

    monkeypatch.setattr(sign_in, "change_password", wrong)
    fields = {"old_password": "a guess", "new_password": "another good one"}
    tries = [(await boss.post("/admin/account/password", **fields)).status_code for _ in range(12)]
    assert tries == [422] * 10 + [429] * 2


async def test_what_changes_at_the_same_moment_does_not_stop_signing_out_everywhere(
    boss: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, conflicts = users.replace, [Conflict("faster"), Conflict("faster")]

    async def replace(*arguments: object) -> None:
        if conflicts:
            raise conflicts.pop()
        await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(users, "replace", replace)
    answer = await boss.post("/admin/account/sessions/end", session="all")
    assert answer.status_code == 303


async def test_a_file_that_did_not_change_may_be_kept(office: Office) -> None:
    first = await office.browser.get("/static/admin.css")
    tag = {"if-none-match": first.headers["etag"]}
    again = await office.browser.get("/static/admin.css", headers=tag)
    assert again.status_code == 304
    assert re.match("public, max-age", again.headers["cache-control"])
    assert "no-store" in (await office.browser.get("/static/nothing")).headers["cache-control"]


async def test_after_signing_in_one_is_where_one_wanted_to_go_with_what_was_asked(
    office: Office,
) -> None:
    await sign_in.add_user(office.storage.tables, EVE, Role.OWNER, PASSWORD, NOW)
    wanted = "/admin/subscribers?list=contoso1&q=ada"
    door = await office.browser.get(wanted)
    page = await office.browser.get(door.headers["location"])
    where = re.search(r'name="next" value="([^"]*)"', page.text)
    assert where
    fields = {"address": EVE, "password": PASSWORD, "next": where[1].replace("&amp;", "&")}
    answer = await office.browser.post("/admin/sign-in", data=fields, headers=OWN_PAGE)
    assert answer.headers["location"] == wanted
