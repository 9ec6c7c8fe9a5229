"""The audit log on the admin pages: what leaves an entry, and what an owner reads of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from postroom.actions import sign_in
from postroom.domain.audit import (
    ActorKind,
    AuditAction,
    AuditEntry,
    AuditKind,
    AuditOutcome,
)
from postroom.domain.user import Role
from postroom.records import audit, keys, lists
from postroom.records.audit import AuditFilter
from postroom.records.rows import all_rows
from postroom.storage.port import KeysWithin, Storage
from postroom.web import admin, api
from postroom.web.signed_in import ADMIN
from tests.clock import MovableClock
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import path_of
from tests.web.program import open_program
from tests.web.signed_in import OWN_PAGE, Worker, at_work, sign_in_as

PASSWORD = "four words are good"


@pytest_asyncio.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER, has_outbox=True) as worker:
        yield worker


async def entries(storage: Storage) -> list[AuditEntry]:
    clock = MovableClock()
    found = [each async for each in audit.everything(storage.tables, clock, AuditFilter())]
    return found[::-1]


async def recorded(worker: Worker) -> list[tuple[AuditKind, str, AuditAction, AuditOutcome]]:
    found = await entries(worker.office.storage)
    return [(each.kind, each.name, each.action, each.outcome) for each in found]


DONE = AuditOutcome.DONE


# --- What leaves an entry -----------------------------------------------------------------------


async def test_creating_editing_and_deleting_a_list_is_recorded(owner: Worker) -> None:
    tables = owner.office.storage.tables
    new = {"name": "fresh", "sender": "a@contoso.edu", "description": "Old"}
    await owner.post("/admin/lists/new", **new)
    etag = (await lists.read_with_etag(tables, "fresh")).etag
    changed = new | {"description": "New", "etag": etag}
    await owner.post("/admin/lists/fresh/edit", **changed)
    assert (await owner.post("/admin/lists/fresh/edit", **changed | {"sender": "b@c.edu"})
            ).status_code == 409  # fmt: skip
    etag = (await lists.read_with_etag(tables, "fresh")).etag
    await owner.post("/admin/lists/fresh/delete", typed="fresh", etag=etag)
    found = await entries(owner.office.storage)
    assert [(each.action, each.outcome) for each in found] == [
        (AuditAction.CREATE, DONE),
        (AuditAction.CHANGE, DONE),
        (AuditAction.DELETE, DONE),
    ]
    assert {(each.kind, each.name, each.actor) for each in found} == {
        (AuditKind.LIST, "fresh", "owner@contoso.edu")
    }
    assert (found[1].before, found[1].after) == ("description: Old", "description: New")
    assert {each.client for each in found} == {"127.0.0.1"}


async def test_people_are_recorded_without_their_address(owner: Worker) -> None:
    await owner.post(f"/admin/subscribers/new?list={LIST}", address=ADDRESS, verified="yes")
    await owner.post(f"{await path_of(owner, ADDRESS)}/remove")
    await owner.post("/admin/suppression/new", address=ADDRESS, scope="all")
    await owner.post("/admin/suppression/erase", address=ADDRESS, sure="yes")
    masked = "s•••@contoso.edu"
    assert await recorded(owner) == [
        (AuditKind.SUBSCRIBER, f"{LIST} {masked}", AuditAction.CREATE, DONE),
        (AuditKind.SUBSCRIBER, f"{LIST} {masked}", AuditAction.DELETE, DONE),
        (AuditKind.SUPPRESSION, masked, AuditAction.CREATE, DONE),
        (AuditKind.SUPPRESSION, masked, AuditAction.ERASE, DONE),
    ]
    rows = [row async for row in all_rows(owner.office.storage.tables, "audit", KeysWithin("log"))]
    assert "student1@" not in str(rows)


async def test_keys_users_and_limits_are_recorded_without_their_secrets(owner: Worker) -> None:
    page = await owner.post("/admin/keys/new", name="portal", **{"right-read": "yes"})
    secret = page.text.partition("prk_")[2][:20]
    [key] = [each async for each in keys.every_key(owner.office.storage.tables)]
    await owner.post(f"/admin/keys/{key.id}/revoke")
    link = await owner.post("/admin/users/invite", address="eve@contoso.edu", role="viewer")
    token = link.text.partition("/admin/welcome/")[2][:20]
    await owner.post("/admin/limits/set", domain="contoso.edu", mails_per_second="5")
    await owner.post("/admin/limits/contoso.edu/clear")
    assert [(kind, action) for kind, _name, action, _outcome in await recorded(owner)] == [
        (AuditKind.KEY, AuditAction.CREATE),
        (AuditKind.KEY, AuditAction.REVOKE),
        (AuditKind.USER, AuditAction.INVITE),
        (AuditKind.LIMIT, AuditAction.CHANGE),
        (AuditKind.LIMIT, AuditAction.CLEAR),
    ]
    rows = [row async for row in all_rows(owner.office.storage.tables, "audit", KeysWithin("log"))]
    assert all((secret, token))
    assert secret not in str(rows)
    assert token not in str(rows)


async def test_using_an_invitation_is_recorded_as_what_it_does(owner: Worker) -> None:
    tables = owner.office.storage.tables

    async def use(address: str, password: str = PASSWORD) -> None:
        token = await sign_in.invite(tables, address, Role.VIEWER, NOW)
        typed = {"password": password}
        await owner.office.browser.post(f"/admin/welcome/{token}", data=typed, headers=OWN_PAGE)

    await use("eve@contoso.edu", "short")
    await use("eve@contoso.edu")
    await use("eve@contoso.edu")
    assert [each for each in await recorded(owner) if each[0] is AuditKind.USER] == [
        (AuditKind.USER, "eve@contoso.edu", AuditAction.CREATE, AuditOutcome.REFUSED),
        (AuditKind.USER, "eve@contoso.edu", AuditAction.CREATE, DONE),
        (AuditKind.USER, "eve@contoso.edu", AuditAction.PASSWORD, DONE),
    ]


async def test_signing_in_and_out_and_failing_to_is_recorded(owner: Worker) -> None:
    tables = owner.office.storage.tables
    await sign_in.add_user(tables, "eve@contoso.edu", Role.VIEWER, PASSWORD, NOW)
    browser = owner.office.browser

    async def try_to(address: str, password: str) -> int:
        typed = {"address": address, "password": password}
        answer = await browser.post("/admin/sign-in", data=typed, headers=OWN_PAGE)
        return answer.status_code

    assert await try_to("eve@contoso.edu", "wrong") == 422
    assert await try_to("my secret password", "eve@contoso.edu") == 422
    assert await try_to("nobody@contoso.edu", "wrong") == 422
    assert await try_to("eve@contoso.edu", PASSWORD) == 303
    await owner.post("/admin/sign-out")
    found = await entries(owner.office.storage)
    assert [(each.actor_kind, each.name, each.action, each.outcome) for each in found] == [
        (ActorKind.VISITOR, "eve@contoso.edu", AuditAction.SIGN_IN, AuditOutcome.REFUSED),
        (ActorKind.VISITOR, "", AuditAction.SIGN_IN, AuditOutcome.REFUSED),
        (ActorKind.VISITOR, "", AuditAction.SIGN_IN, AuditOutcome.REFUSED),
        (ActorKind.USER, "eve@contoso.edu", AuditAction.SIGN_IN, DONE),
        (ActorKind.USER, "owner@contoso.edu", AuditAction.SIGN_OUT, DONE),
    ]
    assert all(each.client for each in found)


async def test_the_web_service_leaves_entries_with_the_id_of_the_key(tmp_path: Path) -> None:
    async with open_program(tmp_path, LIST) as program:
        message = {"list": LIST, "subject": "Hi", "text": "Hi"}
        made = await program.call("POST", "/api/v1/messages", message)
        ref = made.json()["ref"]
        body = {"at": "2120-01-01T09:00+00:00"}
        await program.call("POST", f"/api/v1/messages/{ref}/schedule", body)
        await program.call("POST", f"/api/v1/messages/{ref}/unschedule")
        await program.call("POST", "/api/v1/subscribe", {"list": LIST, "email": ADDRESS})
        found = await entries(program.storage)
        [key] = [each async for each in keys.every_key(program.storage.tables)]
    assert [(each.kind, each.action) for each in found] == [
        (AuditKind.MESSAGE, AuditAction.CREATE),
        (AuditKind.MESSAGE, AuditAction.SCHEDULE),
        (AuditKind.MESSAGE, AuditAction.UNSCHEDULE),
    ]  # a sign-up is in the consent record
    assert {(each.actor_kind, each.actor) for each in found} == {(ActorKind.KEY, key.id)}


# --- Every door ---------------------------------------------------------------------------------

# Routes that change something and leave no entry of their own, and why.
NOT_RECORDED = {
    "POST /admin/messages/autosave": "what somebody types; saving and sending are recorded",
    "POST /admin/messages/{ref}/autosave": "what somebody types; saving and sending are recorded",
    "POST /admin/messages/preview": "changes nothing",
    "POST /admin/rich-text": "changes nothing",
    "POST /api/v1/messages/preview": "changes nothing",
    "POST /api/v1/messages/{ref}/preview": "changes nothing",
    "POST /admin/messages/mail/preview": "changes nothing",
    "POST /admin/messages/{ref}/copy": "shows a form",
    "POST /admin/messages/blocks": "shows other blocks; a picture is recorded",
    "POST /admin/templates/{template_id}/blocks": "shows other blocks; a picture is recorded",
    "POST /admin/webhooks/{provider}/test": "a test of our own",
    "POST /admin/sending/test": "connects and sends nothing",
    "POST /admin/imports/upload": "stores a file; starting the import is recorded",
    "POST /admin/imports/{id_}/columns": "chooses columns; starting the import is recorded",
    "POST /admin/account/sessions/end": "recorded as a sign-out",
    "POST /api/v1/subscribe": "the person's own sign-up is in the consent record",
}
# The others: each is recorded by the action that it calls, or around it.
RECORDED = """
DELETE /api/v1/lists/{name}
DELETE /api/v1/lists/{name}/subscribers/{address:path}
DELETE /api/v1/media/{picture_id}
DELETE /api/v1/messages/{ref}
DELETE /api/v1/messages/{ref}/attachments/{attachment}
DELETE /api/v1/suppressions/{address:path}
DELETE /api/v1/templates/{id}
PATCH /api/v1/lists/{name}
PATCH /api/v1/lists/{name}/subscribers/{address:path}
PATCH /api/v1/messages/{ref}
PATCH /api/v1/senders
PATCH /api/v1/templates/{id}
POST /admin/account/password
POST /admin/dead-letters/clear
POST /admin/dead-letters/clear-all
POST /admin/dead-letters/put-back
POST /admin/dead-letters/resend
POST /admin/imports/{id_}/discard
POST /admin/imports/{id_}/start
POST /admin/imports/{id_}/stop
POST /admin/instances/senders
POST /admin/keys/new
POST /admin/keys/{id_}/revoke
POST /admin/limits/set
POST /admin/limits/{name}/clear
POST /admin/lists/new
POST /admin/lists/{name}/delete
POST /admin/lists/{name}/edit
POST /admin/media/upload
POST /admin/media/{picture_id}
POST /admin/media/{picture_id}/delete
POST /admin/messages/import
POST /admin/messages/write
POST /admin/messages/{ref}/cancel
POST /admin/messages/{ref}/decide
POST /admin/messages/{ref}/delete
POST /admin/messages/{ref}/pause
POST /admin/messages/{ref}/resume
POST /admin/messages/{ref}/retry
POST /admin/messages/{ref}/schedule
POST /admin/messages/{ref}/send
POST /admin/messages/{ref}/test
POST /admin/messages/{ref}/unschedule
POST /admin/messages/{ref}/write
POST /admin/outbox/empty
POST /admin/settings
POST /admin/settings/reset
POST /admin/sign-in
POST /admin/sign-out
POST /admin/storage/blobs/upload
POST /admin/storage/blobs/{sealed}/delete
POST /admin/storage/queues/{queue}/items/{id_}/delete
POST /admin/storage/queues/{queue}/items/{id_}/move
POST /admin/storage/queues/{queue}/put
POST /admin/storage/tables/{table}/new
POST /admin/storage/tables/{table}/rows/{sealed}
POST /admin/storage/tables/{table}/rows/{sealed}/delete
POST /admin/subscribers/ask
POST /admin/subscribers/new
POST /admin/subscribers/{list_name}/{person_id}/ask
POST /admin/subscribers/{list_name}/{person_id}/edit
POST /admin/subscribers/{list_name}/{person_id}/remove
POST /admin/suppression/erase
POST /admin/suppression/import
POST /admin/suppression/new
POST /admin/suppression/{entry_id}/remove
POST /admin/templates/new
POST /admin/templates/{template_id}
POST /admin/templates/{template_id}/delete
POST /admin/users/invite
POST /admin/users/role
POST /admin/users/withdraw
POST /admin/users/{sealed_key}/remove
POST /admin/webhooks/topics/{name}/confirm
POST /admin/webhooks/topics/{name}/dismiss
POST /admin/welcome/{token}
POST /api/v1/lists
POST /api/v1/lists/{name}/subscribers
POST /api/v1/lists/{name}/subscribers/{address:path}/ask
POST /api/v1/media
POST /api/v1/messages
POST /api/v1/messages/import
POST /api/v1/messages/{ref}/attachments
POST /api/v1/messages/{ref}/cancel
POST /api/v1/messages/{ref}/decide
POST /api/v1/messages/{ref}/pause
POST /api/v1/messages/{ref}/resume
POST /api/v1/messages/{ref}/retry
POST /api/v1/messages/{ref}/schedule
POST /api/v1/messages/{ref}/unschedule
POST /api/v1/templates
PUT /api/v1/suppressions/{address:path}
"""


def test_every_route_that_changes_something_is_known_here() -> None:
    """A new kind of route is recorded, or has a reason in the table above."""
    known = [*NOT_RECORDED, *RECORDED.split("\n")[1:-1]]
    assert sorted(known) == sorted(changing_routes())


def changing_routes() -> list[str]:
    routers = [(ADMIN, module.router) for module in admin.MODULES]
    routers += [(api.PREFIX, router) for router in api.ROUTERS]
    found = []
    for start, router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            methods = sorted((route.methods or set()) - {"GET", "HEAD"})
            found += [f"{method} {start}{route.path}" for method in methods]
    return found


# --- The page -----------------------------------------------------------------------------------


async def test_the_page_shows_filters_and_pages(owner: Worker) -> None:
    for number in range(60):
        await owner.post(
            "/admin/limits/set", domain="contoso.edu", mails_per_second=f"{number + 1}"
        )
    page = unescape((await owner.get("/admin/audit")).text)
    assert page.count("<tr>") == 51
    assert "60 a second" in page
    assert "limit: 59 a second" in page
    link = page.partition('href="/admin/audit?after=')[2].partition('"')[0]
    older = unescape((await owner.get(f"/admin/audit?after={link}")).text)
    assert older.count("<tr>") == 11
    found = unescape((await owner.get("/admin/audit", text="limit: 59 a")).text)
    assert found.count("<tr>") == 3
    nothing = (await owner.get("/admin/audit", person="eve")).text
    assert "No entry matches all filters." in nothing
    assert (await owner.get("/admin/audit", since="2026-11-16")).text.count("<tr>") == 0
    assert (await owner.get("/admin/audit", since="x", after="../x")).status_code == 200


async def test_the_export_has_what_the_filters_match(owner: Worker) -> None:
    await owner.post("/admin/limits/set", domain="contoso.edu", mails_per_second="5")
    await owner.post("/admin/lists/new", name="fresh", sender="a@contoso.edu")
    answer = await owner.get("/admin/audit/export", kind="limit")
    assert answer.headers["content-disposition"].startswith("attachment")
    header, line = answer.text.lstrip("\ufeff").splitlines()
    assert header.startswith("at,actor_kind,actor,client,kind,name")
    assert "contoso.edu" in line
    assert "fresh" not in answer.text
    assert (await recorded(owner))[-1][2] is AuditAction.EXPORT


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
@pytest.mark.parametrize("path", ["/admin/audit", "/admin/audit/export", "/admin/storage"])
async def test_only_owners_read_it(owner: Worker, role: Role, path: str) -> None:
    other = await sign_in_as(owner.office, role)
    async with other.browser:
        assert (await other.get(path)).status_code == 403


async def test_an_export_is_recorded(owner: Worker) -> None:
    await owner.get("/admin/subscribers/export", list=LIST)
    await owner.get("/admin/suppression/export")
    await owner.get("/admin/storage/tables/message/export")
    assert await recorded(owner) == [
        (AuditKind.LIST, LIST, AuditAction.EXPORT, DONE),
        (AuditKind.SUPPRESSION, "", AuditAction.EXPORT, DONE),
        (AuditKind.ROW, "message", AuditAction.EXPORT, DONE),
    ]
