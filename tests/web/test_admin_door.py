"""Who gets in: every admin route refuses strangers, lesser roles and other sites."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import argon2
import httpx2
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from starlette.requests import Request

from postroom.actions import sign_in
from postroom.domain.user import SESSION_IDLE, SESSION_LASTS, Role, User
from postroom.records import users
from postroom.records.names import STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.web import admin
from postroom.web.admin.users import removal_path
from postroom.web.context import client_of
from postroom.web.public import links, sign_up_form, webhooks
from postroom.web.signed_in import ADMIN, anybody
from tests.clock import MovableClock
from tests.conftest import PRODUCTION_HASHER
from tests.web.office import NOW, Office, open_office
from tests.web.signed_in import OWN_PAGE, PASSWORD, Worker, sign_in_as

NEW = "owner@contoso.edu"
# Whoever is signed in may do these with what is their own.
OWN_AFFAIRS = {"/admin/sign-out", "/admin/account/password", "/admin/account/sessions/end"}


@pytest_asyncio.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as office:
        yield office


def routes() -> Iterator[tuple[str, str, Role | None]]:
    """(method, path, role) of every admin page; None: it is before the door."""
    for route in (route for module in admin.MODULES for route in module.router.routes):
        assert isinstance(route, APIRoute)
        calls = [each.call for each in route.dependant.dependencies]
        roles: list[Role] = [role for call in calls if (role := getattr(call, "role", None))]
        assert roles or anybody in calls, f"{route.path} names no role"
        for method in route.methods or ():
            path = ADMIN + re.sub(r"\{\w+(:\w+)?\}", "x", route.path)
            yield method, path, roles[0] if roles else None


ROUTES = sorted(set(routes()))


# What anybody may call: links have a token, webhooks a signature or a secret of their own.
PUBLIC = {"/", "/webhooks/{provider}", "/s/{list_name}", "/s/{list_name}/thanks"}
PUBLIC |= {"/u/{list_name}/{guid}", "/u/{list_name}/{guid}/kept", "/u/{list_name}/{guid}/left"}
PUBLIC |= {"/u/{list_name}/{guid}/again", "/u/{list_name}/{guid}/asked"}
PUBLIC |= {"/c/{list_name}/{guid}/{token}"}


def test_no_other_page_is_public() -> None:
    modules = (links, sign_up_form, webhooks)
    assert {route.path for module in modules for route in module.router.routes} == PUBLIC


def test_whatever_changes_something_needs_more_than_a_viewer() -> None:
    lax = [
        (method, path)
        for method, path, role in ROUTES
        if method not in ("GET", "HEAD") and role is Role.VIEWER and path not in OWN_AFFAIRS
    ]
    assert lax == []


@pytest.mark.parametrize(("method", "path", "role"), [one for one in ROUTES if one[2]])
async def test_a_stranger_is_sent_to_the_door(
    office: Office, method: str, path: str, role: Role
) -> None:
    answer = await office.browser.request(method, path, headers=OWN_PAGE)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/admin/sign-in?next=/admin")


@pytest.mark.parametrize(
    ("method", "path", "role"), [one for one in ROUTES if one[2] in (Role.EDITOR, Role.OWNER)]
)
async def test_a_lesser_role_is_refused(office: Office, method: str, path: str, role: Role) -> None:
    lesser = Role.VIEWER if role is Role.EDITOR else Role.EDITOR
    worker = await sign_in_as(office, lesser)
    async with worker.browser:
        answer = await worker.browser.request(method, path, headers=OWN_PAGE)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for method, path, _ in ROUTES if method == "POST"]
)
@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
     {"origin": "https://evil.contoso.edu"}, {"origin": "null"}, {}],
)  # fmt: skip
async def test_another_site_cannot_send_our_forms(
    office: Office, method: str, path: str, headers: dict[str, str]
) -> None:
    worker = await sign_in_as(office, Role.OWNER)
    async with worker.browser:
        answer = await worker.browser.post(path, headers=headers)
    assert answer.status_code == 403


async def test_an_old_browser_that_only_tells_its_origin_is_let_in(office: Office) -> None:
    worker = await sign_in_as(office, Role.OWNER)
    async with worker.browser:
        headers = {"origin": office.site.url}
        answer = await worker.browser.post("/admin/account/sessions/end", headers=headers)
    assert answer.status_code == 303


# --- The first start, invitations ---------------------------------------------------------------


async def welcome(office: Office, token: str, **fields: str) -> httpx2.Response:
    return await office.browser.post(f"/admin/welcome/{token}", data=fields, headers=OWN_PAGE)


async def test_no_first_link_is_given_while_somebody_is_there_however_pages_come() -> None:
    """A page may be short, even empty, and still have a next (storage/port.py)."""
    tables = MemoryStorage(MovableClock(), STORAGE_NAMES, empty_first_page=True).tables
    owner = User(
        address="ada@contoso.edu",
        key="ada@contoso.edu",
        role=Role.OWNER,
        password="",
        created_at=NOW,
        sessions_from=NOW,
    )
    await users.add(tables, owner)
    assert await sign_in.first_link(tables, NOW) is None


async def test_the_first_link_makes_one_owner_and_works_once(office: Office) -> None:
    token = await sign_in.first_link(office.storage.tables, NOW)
    assert token
    page = await office.browser.get(f"/admin/welcome/{token}")
    assert page.status_code == 200
    answer = await welcome(office, token, address=NEW, password=PASSWORD)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-postroom=")
    for attribute in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert attribute in cookie
    assert [user.role async for user in users.every_user(office.storage.tables)] == [Role.OWNER]
    again = await welcome(office, token, address="second@contoso.edu", password=PASSWORD)
    assert again.status_code == 404
    assert await sign_in.first_link(office.storage.tables, NOW) is None


async def test_the_first_link_is_used_up_once_there_is_an_account(office: Office) -> None:
    tables = office.storage.tables
    token = await sign_in.first_link(tables, NOW)
    assert token
    assert "There is no account yet" in (await office.browser.get("/admin/sign-in")).text
    assert (await office.browser.get(f"/admin/welcome/{token}")).status_code == 200
    await sign_in.add_user(tables, NEW, Role.OWNER, PASSWORD, NOW)
    shown = await office.browser.get(f"/admin/welcome/{token}")
    assert shown.status_code == 404
    assert "This link is no longer valid" in shown.text
    door = await office.browser.get("/admin/sign-in")
    assert "There is no account yet" not in door.text
    assert "postroom user link" in door.text


async def test_wrong_input_is_shown_again_and_the_link_still_works(office: Office) -> None:
    token = await sign_in.first_link(office.storage.tables, NOW)
    assert token
    answer = await welcome(office, token, address=NEW, password="short")
    assert answer.status_code == 422
    assert "too short" in answer.text
    assert f'value="{NEW}"' in answer.text
    answer = await welcome(office, token, address="not an address", password=PASSWORD)
    assert answer.status_code == 422
    answer = await welcome(office, token, address=NEW, password=PASSWORD)
    assert answer.status_code == 303


async def test_a_link_that_is_over_makes_nobody(office: Office) -> None:
    earlier = NOW - timedelta(days=3)
    token = await sign_in.invite(office.storage.tables, NEW, Role.OWNER, earlier)
    assert (await office.browser.get(f"/admin/welcome/{token}")).status_code == 404
    assert (await welcome(office, token, password=PASSWORD)).status_code == 404
    assert not await users.has_any(office.storage.tables)


async def test_an_invitation_for_a_user_gives_a_new_password_and_ends_their_sessions(
    office: Office,
) -> None:
    worker = await sign_in_as(office, Role.VIEWER)
    later = NOW + timedelta(seconds=1)
    token = await sign_in.invite(office.storage.tables, worker.user.address, Role.OWNER, NOW)
    user = await sign_in.accept(office.storage.tables, token, "", PASSWORD, later)
    assert user
    assert user.role is Role.VIEWER  # it stays
    async with worker.browser:
        assert (await worker.get("/admin")).status_code == 303


# --- Signing in and out -------------------------------------------------------------------------


@pytest_asyncio.fixture
async def owner(office: Office) -> Office:
    await sign_in.add_user(office.storage.tables, NEW, Role.OWNER, PASSWORD, NOW)
    return office


async def try_to_sign_in(office: Office, address: str, password: str) -> httpx2.Response:
    fields = {"address": address, "password": password, "next": "/admin/lists"}
    return await office.browser.post("/admin/sign-in", data=fields, headers=OWN_PAGE)


async def test_the_right_password_leads_to_where_one_wanted_to_go(owner: Office) -> None:
    answer = await try_to_sign_in(owner, NEW.upper(), PASSWORD)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/admin/lists"


async def test_a_wrong_password_and_an_unknown_address_read_the_same(owner: Office) -> None:
    wrong = await try_to_sign_in(owner, NEW, "not the password")
    unknown = await try_to_sign_in(owner, "nobody@contoso.edu", PASSWORD)
    rubbish = await try_to_sign_in(owner, "rubbish", PASSWORD)
    assert wrong.status_code == unknown.status_code == rubbish.status_code == 422
    assert wrong.text.replace(NEW, "") == unknown.text.replace("nobody@contoso.edu", "")
    assert "not the password" not in wrong.text


async def test_tries_are_counted_also_right_ones(
    owner: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: Any) -> None:
        return None

    monkeypatch.setattr(sign_in, "check", wrong)
    for _ in range(10):
        assert (await try_to_sign_in(owner, NEW, "guess")).status_code == 422
    assert (await try_to_sign_in(owner, NEW, PASSWORD)).status_code == 429
    assert (await try_to_sign_in(owner, "other@contoso.edu", "guess")).status_code == 422


@pytest.mark.parametrize(
    "where", ["https://evil.contoso.edu", "//evil.contoso.edu", "/\\evil", "/admin//evil", "/u/x/y",
              "/admin\r\nSet-Cookie: a=b", "/adminevil"],
)  # fmt: skip
async def test_signing_in_leads_nowhere_else(owner: Office, where: str) -> None:
    fields = {"address": NEW, "password": PASSWORD, "next": where}
    answer = await owner.browser.post("/admin/sign-in", data=fields, headers=OWN_PAGE)
    assert answer.headers["location"] == "/admin"


async def test_signing_out_ends_the_session_not_only_the_cookie(office: Office) -> None:
    worker = await sign_in_as(office, Role.VIEWER)
    async with worker.browser:
        cookie = dict(worker.browser.cookies)
        answer = await worker.post("/admin/sign-out")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        worker.browser.cookies.update(cookie)
        assert (await worker.get("/admin")).status_code == 303


async def test_sign_out_everywhere_ends_every_browser(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await sign_in_as(office, Role.VIEWER), await sign_in_as(office, Role.VIEWER)
    later = NOW + timedelta(seconds=1)
    async with here.browser, there.browser:
        await sign_in.sign_out_everywhere(office.storage.tables, here.user, later)
        assert (await here.get("/admin")).status_code == 303
        assert (await there.get("/admin")).status_code == 303


async def test_one_of_ones_own_browsers_can_be_signed_out_and_nobody_elses(office: Office) -> None:
    here, there = await sign_in_as(office, Role.VIEWER), await sign_in_as(office, Role.VIEWER)
    other = await sign_in_as(office, Role.OWNER)
    tables = office.storage.tables
    async with here.browser, there.browser, other.browser:
        for session in await users.sessions_of(tables, other.user, NOW):
            await here.post("/admin/account/sessions/end", session=session.id)
        assert (await other.get("/admin")).status_code == 200
        found = await users.find_session(tables, there.browser.cookies["__Host-postroom"], NOW)
        assert found
        await here.post("/admin/account/sessions/end", session=found[1].id)
        assert (await there.get("/admin")).status_code == 303
        assert (await here.get("/admin")).status_code == 200


@pytest.mark.parametrize("age", [SESSION_IDLE, SESSION_LASTS])
async def test_a_session_expires(office: Office, age: timedelta) -> None:
    worker = await sign_in_as(office, Role.VIEWER)
    token = worker.browser.cookies["__Host-postroom"]
    tables, late = office.storage.tables, NOW + age + timedelta(seconds=1)
    assert await users.find_session(tables, token, late) is None
    assert await users.forget_ended(tables, late) >= 1
    assert await users.sessions_of(tables, worker.user, NOW) == []


async def test_a_changed_password_signs_every_other_browser_out(owner: Office) -> None:
    found = await sign_in.check(owner.storage.tables, NEW, PASSWORD)
    assert found
    later = NOW + timedelta(minutes=1)
    other = await sign_in_as(owner, Role.OWNER)
    await sign_in.change_password(owner.storage.tables, found, PASSWORD, "other words, too", later)
    assert await sign_in.check(owner.storage.tables, NEW, PASSWORD) is None
    assert await sign_in.check(owner.storage.tables, NEW, "other words, too")
    token = other.browser.cookies["__Host-postroom"]
    assert await users.find_session(owner.storage.tables, token, later) is None


async def test_a_wrong_old_password_changes_nothing(owner: Office) -> None:
    signed_in = await try_to_sign_in(owner, NEW, PASSWORD)
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    answer = await owner.browser.post(
        "/admin/account/password",
        data={"old_password": "wrong wrong wrong", "new_password": "another good one"},
        headers=OWN_PAGE | {"cookie": cookie},
    )
    assert answer.status_code == 422
    assert await sign_in.check(owner.storage.tables, NEW, PASSWORD)


# --- Users --------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def boss(office: Office) -> AsyncIterator[Worker]:
    worker = await sign_in_as(office, Role.OWNER)
    async with worker.browser:
        yield worker


async def test_an_owner_invites_by_a_link_that_is_shown_once(boss: Worker) -> None:
    answer = await boss.post("/admin/users/invite", address="new@contoso.edu", role="viewer")
    link = re.search(r"https://post\.contoso\.edu(/admin/welcome/[\w-]+)", answer.text)
    assert link
    assert (await boss.get(link[1])).status_code == 200
    assert "/admin/welcome/" not in (await boss.get("/admin/users")).text


async def test_the_last_owner_stays_one(boss: Worker) -> None:
    answer = await boss.post("/admin/users/role", key=boss.user.key, role="viewer")
    assert answer.status_code == 409
    assert "only owner" in answer.text
    answer = await boss.post(removal_path(boss.office.site.secret, boss.user.key))
    assert answer.status_code == 409


async def test_who_is_removed_is_out_at_once(boss: Worker) -> None:
    worker = await sign_in_as(boss.office, Role.EDITOR)
    async with worker.browser:
        assert (await worker.get("/admin")).status_code == 200
        await boss.post(removal_path(boss.office.site.secret, worker.user.key))
        assert (await worker.get("/admin")).status_code == 303


# --- Networks and proxies -----------------------------------------------------------------------


def request_from(host: str, forwarded: list[str], trusted: str = "10.0.0.0/8") -> Request:
    state = SimpleNamespace(context=SimpleNamespace(trusted_proxies=(ip_network(trusted),)))
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    scope = {"type": "http", "client": (host, 1), "headers": headers,
             "app": SimpleNamespace(state=state)}  # fmt: skip
    return Request(scope)


@pytest.mark.parametrize(
    ("host", "forwarded", "client"),
    [
        (
            "192.0.2.1",
            ["203.0.113.9"],
            "192.0.2.1",
        ),  # not a proxy of ours
        ("10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.7, 203.0.113.9"], "203.0.113.9"),  # the first was made up
        ("10.0.0.1", ["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", ["rubbish"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
    ],
)
def test_the_caller_is_found_behind_our_own_proxies_and_no_others(
    host: str, forwarded: list[str], client: str
) -> None:
    assert client_of(request_from(host, forwarded)) == client


async def test_the_admin_pages_are_shown_to_the_networks_named_alone(tmp_path: Path) -> None:
    async with open_office(tmp_path, admin_networks=(ip_network("192.0.2.0/24"),)) as office:
        assert (await office.browser.get("/admin/sign-in")).status_code == 403
        assert (await office.browser.get("/")).status_code == 200
    async with open_office(tmp_path, admin_networks=(ip_network("127.0.0.0/8"),)) as office:
        assert (await office.browser.get("/admin/sign-in")).status_code == 200


def test_a_password_is_hashed_as_argon2_recommends() -> None:
    """The tests themselves hash cheaper (tests/conftest.py)."""
    chosen = argon2.extract_parameters(PRODUCTION_HASHER.hash("word"))
    assert chosen == argon2.profiles.RFC_9106_LOW_MEMORY
