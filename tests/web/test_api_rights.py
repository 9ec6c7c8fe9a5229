"""Who may do what: every route, with every kind of key that must not."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from postroom.domain.access_key import Right
from postroom.domain.picture import Picture, PictureFile, PictureKind
from postroom.records.rows import all_rows, to_properties
from postroom.storage.port import KeysAcross, Row
from postroom.web import api
from tests.clock import START
from tests.picture_samples import png
from tests.web.program import ADA, API, BOB, Program, problem


class Operation(NamedTuple):
    method: str
    path: str
    right: Right
    body: Any = None


READ, WRITE = Right.READ, Right.WRITE
PERSON = "/lists/{name}/subscribers/{address}"
STEERING = dict.fromkeys(("unschedule", "pause", "resume", "cancel", "retry")) | {
    "schedule": {"at": "now"},
    "decide": {"held": "send-again"},
}
PAGE = base64.b64encode(b"<p>x</p>").decode()
FILE = {"name": "a.txt", "content": PAGE}
OPERATIONS = [
    Operation("POST", "/subscribe", Right.SUBSCRIBE, {"list": "{name}", "email": ADA}),
    Operation("GET", "/lists", READ),
    Operation("POST", "/lists", WRITE, {"name": "news", "from": "a@contoso.edu"}),
    Operation("GET", "/lists/{name}", READ),
    Operation("PATCH", "/lists/{name}", WRITE, {"description": "x"}),
    Operation("DELETE", "/lists/{name}", WRITE),
    Operation("GET", "/lists/{name}/subscribers", READ),
    Operation("POST", "/lists/{name}/subscribers", WRITE, {"address": BOB}),
    Operation("GET", PERSON, READ),
    Operation("PATCH", PERSON, WRITE, {"verified": True}),
    Operation("DELETE", PERSON, WRITE),
    Operation("POST", f"{PERSON}/ask", WRITE),
    Operation("GET", "/suppressions", READ),
    Operation("GET", "/suppressions/{address}", READ),
    Operation("PUT", "/suppressions/{address}", WRITE, {"scope": "bulk"}),
    Operation("DELETE", "/suppressions/{address}", WRITE),
    Operation("GET", "/media", READ),
    Operation("POST", "/media", WRITE, {"content": base64.b64encode(png()).decode()}),
    Operation("GET", "/media/{picture_id}", READ),
    Operation("DELETE", "/media/{picture_id}", WRITE),
    Operation("GET", "/messages", READ),
    Operation("POST", "/messages", WRITE, {"list": "{name}", "subject": "x", "text": "x"}),
    Operation("GET", "/messages/{ref}", READ),
    Operation("PATCH", "/messages/{ref}", WRITE, {"subject": "x"}),
    Operation("DELETE", "/messages/{ref}", WRITE),
    *(Operation("POST", f"/messages/{{ref}}/{act}", WRITE, body) for act, body in STEERING.items()),
    Operation("POST", "/messages/import", WRITE, {"list": "{name}", "file": PAGE}),
    Operation("POST", "/messages/preview", READ, {"list": "{name}", "text": "x"}),
    Operation("POST", "/messages/{ref}/preview", READ, {}),
    Operation("GET", "/messages/{ref}/source", READ),
    Operation("GET", "/messages/{ref}/attachments", READ),
    Operation("POST", "/messages/{ref}/attachments", WRITE, FILE),
    Operation("GET", "/messages/{ref}/attachments/{attachment}", READ),
    Operation("DELETE", "/messages/{ref}/attachments/{attachment}", WRITE),
    Operation("GET", "/templates", READ),
    Operation("POST", "/templates", WRITE, {"title": "x"}),
    Operation("GET", "/templates/{id}", READ),
    Operation("PATCH", "/templates/{id}", WRITE, {"title": "x"}),
    Operation("DELETE", "/templates/{id}", WRITE),
    Operation("GET", "/messages/{ref}/outcomes", READ),
    Operation("GET", "/messages/{ref}/feedback", READ),
    Operation("GET", "/messages/{ref}/bounces", READ),
    Operation("GET", "/instances", READ),
    Operation("GET", "/senders", READ),
    Operation("PATCH", "/senders", WRITE, {"max": 8}),
]
PICTURE = Picture(
    id="9" * 39,
    name="Secret",
    kind=PictureKind.PNG,
    files=[PictureFile(80, 60, 100)],
    digest="0" * 64,
    created_at=START,
)
_PICTURE_ROW = to_properties(PICTURE)
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o[0]} {o[1]}")
OWN, OTHER = "contoso1", "contoso2"


async def furnish(program: Program) -> str:
    """Somebody on, and a message to, the other list; its ref."""
    await program.make(f"/lists/{OTHER}/subscribers", {"address": ADA, "verified": True})
    made = {"list": OTHER, "subject": "Secret", "text": "x", "at": "2027-01-01T09:00Z"}
    ref: str = (await program.make("/messages", made))["ref"]
    await program.call("PUT", f"/suppressions/{ADA}", {})
    await program.make(f"/messages/{ref}/attachments", FILE)
    await program.storage.tables.upsert("service", "media", f"picture:{PICTURE.id}", _PICTURE_ROW)
    return ref


def filled(text: Any, **names: str) -> Any:
    if isinstance(text, str):
        return text.format(**names)
    if isinstance(text, dict):
        return {name: filled(value, **names) for name, value in text.items()}
    return text


async def ask(program: Program, operation: Operation, ref: str, key: str) -> Any:
    [attached] = (await program.get(f"/messages/{ref}/attachments"))["items"]
    names = {"name": OTHER, "address": ADA, "ref": ref, "picture_id": PICTURE.id}
    names |= {"attachment": attached["id"], "id": "event"}
    body, path = filled(operation.body, **names), filled(operation.path, **names)
    return await program.call(operation.method, path, body, key=key, if_match="*")


async def everything(program: Program) -> list[Row]:
    """All rows but those of keys, whose use is noted."""
    tables = program.storage.tables
    found = [
        row async for row in all_rows(tables, "service", KeysAcross()) if row.partition != "key"
    ]
    for table in ("mailinglist", "message", "messagearchive", "suppression"):
        found += [row async for row in all_rows(tables, table, KeysAcross())]
    return found


def test_the_operations_here_are_all_there_are() -> None:
    app = FastAPI()
    app.include_router(api.router)
    documented = {
        (method.upper(), path.removeprefix(API))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert documented == {(each.method, each.path) for each in OPERATIONS}


@each_operation
async def test_without_a_key_nothing_is_done_or_shown(
    program: Program, operation: Operation
) -> None:
    ref = await furnish(program)
    before = await everything(program)
    for key in ("", "prk_" + "a" * 40):
        problem(await ask(program, operation, ref, key), 401)
    assert await everything(program) == before


@each_operation
async def test_a_key_without_the_right_is_refused(program: Program, operation: Operation) -> None:
    ref = await furnish(program)
    before = await everything(program)
    for right in Right:
        is_enough = right is operation.right or (right, operation.right) == (WRITE, READ)
        if not is_enough:
            key = await program.new_key(rights=(right,))
            refused = problem(await ask(program, operation, ref, key), 403)
            assert f"--right {operation.right}" in refused["detail"]
    assert await everything(program) == before


@each_operation
async def test_a_key_with_the_right_is_let_in(program: Program, operation: Operation) -> None:
    ref = await furnish(program)
    key = await program.new_key(rights=(operation.right,))
    assert (await ask(program, operation, ref, key)).status_code not in (401, 403, 404)


@each_operation
async def test_a_key_for_one_list_neither_sees_nor_touches_another(
    program: Program, operation: Operation
) -> None:
    ref = await furnish(program)
    before = await everything(program)
    response = await ask(program, operation, ref, await program.new_key(OWN))
    if operation.path in ("/lists", "/messages") and operation.method == "GET":
        shown = response.json()["items"]
        assert [each.get("name") for each in shown] == ([OWN] if operation.path == "/lists" else [])
    elif operation.method == "GET" and operation.path.startswith("/templates"):
        assert response.status_code == 200  # all lists use them
    else:
        problem(response, 404 if "{ref}" in operation.path else 403)
    assert "Secret" not in response.text
    assert await everything(program) == before


async def test_what_is_absent_looks_like_what_is_not_the_keys_own(program: Program) -> None:
    ref = await furnish(program)
    key = await program.new_key(OWN)
    for there, absent in (
        (f"/messages/{ref}", "/messages/1"),
        (f"/lists/{OTHER}", "/lists/nolist"),
    ):
        refused = [await program.call("GET", path, key=key) for path in (there, absent)]
        assert refused[0].status_code == refused[1].status_code
        told = [each.json()["detail"] for each in refused]
        assert told[0].replace(there.split("/")[-1], "") == told[1].replace(
            absent.split("/")[-1], ""
        )


async def test_a_key_for_one_list_moves_nothing_out_of_it_and_asks_for_no_other(
    program: Program,
) -> None:
    key = await program.new_key(OWN)
    people = f"/lists/{OWN}/subscribers"
    await program.make(people, {"address": ADA}, key=key)
    moving = await program.call("PATCH", f"{people}/{ADA}", {"list": OTHER}, key=key, if_match="*")
    problem(moving, 403)
    draft = {"list": OWN, "subject": "x", "text": "x"}
    ref = (await program.make("/messages", draft, key=key))["ref"]
    moving = await program.call("PATCH", f"/messages/{ref}", {"list": OTHER}, key=key, if_match="*")
    problem(moving, 403)
    problem(await program.call("GET", f"/messages?list={OTHER}", key=key), 403)
    assert await program.pages(f"/lists/{OTHER}/subscribers") == []


async def test_a_key_for_some_lists_sees_these_page_by_page(program: Program) -> None:
    for name in ("news", "sport", "weather"):
        await program.make("/lists", {"name": name, "from": "a@contoso.edu"})
    program.key = await program.new_key("weather", "news", "gone", "sport")
    names = [each["name"] for each in await program.pages("/lists?limit=1")]
    assert names == ["news", "sport", "weather"]


async def test_messages_of_other_lists_do_not_hide_the_keys_own(program: Program) -> None:
    await program.make("/messages", {"list": OWN, "subject": "Mine", "text": "x"})
    for _ in range(3):
        program.clock.move(1)
        await program.make("/messages", {"list": OTHER, "subject": "x", "text": "x"})
    program.key = await program.new_key(OWN)
    assert [each["subject"] for each in await program.pages("/messages?limit=1")] == ["Mine"]


async def test_a_key_of_some_lists_imports_pages_but_adds_nothing_to_the_media_library(
    program: Program,
) -> None:
    key = await program.new_key(OWN)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("index.html", '<img src="a.png">')
        archive.writestr("a.png", png())
    packed = base64.b64encode(target.getvalue()).decode()
    refused = await program.call("POST", "/messages/import", {"list": OWN, "file": packed}, key=key)
    problem(refused, 403)
    assert await program.pages("/media") == []
    page = await program.call("POST", "/messages/import", {"list": OWN, "file": PAGE}, key=key)
    assert page.status_code == 201
