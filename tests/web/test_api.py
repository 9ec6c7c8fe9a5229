"""The web service: who may call, what is taken, and what every refusal says."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio
import structlog
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from structlog.testing import capture_logs

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import Subscriber
from postroom.flow import subscribe
from postroom.flow.render import Site
from postroom.records import keys, lists, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE, STORAGE_NAMES
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import Row, StorageFull, Unavailable
from postroom.wakeup import SENDER, WakeUps
from postroom.web import api
from postroom.web.api import auth, openapi, route
from postroom.web.context import WebContext
from tests.acting import acting
from tests.clock import START, MovableClock

ADA = "student1@contoso.edu"
PATH = "/api/v1/subscribe"
JSON = "application/json"
BODY: dict[str, Any] = {"list": "contoso1", "email": ADA}


@dataclass
class Service:
    """The service with the lists contoso1 and contoso2, and a caller with a key for both."""

    storage: MemoryStorage
    clock: MovableClock
    wakeups: WakeUps
    client: httpx2.AsyncClient
    app: FastAPI
    key: str = ""

    async def call(self, key: str = "", **members: Any) -> httpx2.Response:
        return await self.post(json.dumps(BODY | members).encode(), key=key)

    async def post(
        self, body: bytes | AsyncIterator[bytes], kind: str = JSON, key: str = ""
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": kind}
        return await self.client.post(PATH, content=body, headers=headers)

    async def new_key(self, *list_names: str) -> str:
        return (await keys.create(self.storage.tables, "portal", list_names, START))[0]

    async def subscriber(self, typed: str = ADA) -> Subscriber | None:
        key = parse_address(typed).storage_key
        found = await subscribers.find(self.storage.tables, "contoso1", key)
        return found[0] if found else None

    async def items(self) -> int:
        return await self.storage.queues.length(SINGLE_MAIL_QUEUE)


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    clock, wakeups, app = MovableClock(), WakeUps(tmp_path), FastAPI()
    storage = MemoryStorage(clock, STORAGE_NAMES)
    app.state.context = WebContext(
        storage, clock, wakeups, Site("https://post.contoso.edu", "secret")
    )
    app.include_router(api.router)
    for name in ("contoso1", "contoso2"):
        made = MailingList(name=name, description="", sender="a@contoso.edu", created_at=START)
        await lists.create(storage.tables, made)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        service = Service(storage, clock, wakeups, client, app)
        service.key = await service.new_key()
        yield service


def problem(response: httpx2.Response, status: int) -> dict[str, Any]:
    """The body of a refusal, which always has the same shape."""
    told: dict[str, Any] = response.json()
    assert (response.status_code, told["status"]) == (status, status)
    assert response.headers["content-type"] == "application/problem+json"
    assert told["type"] == "about:blank"
    assert told["title"]
    assert told["detail"].endswith(".")
    return told


# --- What is taken ------------------------------------------------------------------------------


async def test_a_call_stores_the_person_unverified_and_queues_one_item(service: Service) -> None:
    response = await service.call(attributes={"name": "Ada"})
    assert (response.status_code, response.json()) == (202, {"status": "accepted"})
    ada = await service.subscriber()
    assert ada is not None
    assert (ada.verified, ada.attributes) == (False, {"name": "Ada"})
    assert await service.items() == 1


async def test_senders_are_woken(service: Service) -> None:
    wakeup = service.wakeups.listen(SENDER)
    try:
        await service.call()
        assert await wakeup.wait(20)
    finally:
        wakeup.close()


async def test_a_known_address_gets_the_same_answer_and_no_item(service: Service) -> None:
    tables, bob = service.storage.tables, parse_address("bob@contoso.edu")
    await subscribe.add(acting(tables, START), "contoso1", bob, {}, verified=True)
    known, unknown = await service.call(email=bob.typed), await service.call()
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    assert known.headers == unknown.headers
    assert await service.items() == 1  # the unknown one's


async def test_a_call_may_be_repeated(service: Service) -> None:
    answers = [(await service.call()).status_code for _ in range(3)]
    assert answers == [202, 202, 202]
    assert await service.items() == 1


async def test_who_is_gone_may_sign_up_again(service: Service) -> None:
    tables, ada = service.storage.tables, parse_address(ADA)
    await subscribe.add(acting(tables, START), "contoso1", ada, {}, verified=True)
    await subscribe.remove(acting(tables, START), "contoso1", ada)
    assert (await service.call()).status_code == 202
    back = await service.subscriber()
    assert back is not None
    assert (back.inactive_reason, back.verified) == (None, False)
    assert await service.items() == 1


# --- Who may call -------------------------------------------------------------------------------


NO_KEYS = ["", "Bearer", "Bearer prk_" + "a" * 40, "Bearer ../é", "Basic dXNlcjpw", "é" * 5000]


@pytest.mark.parametrize("authorization", [None, *NO_KEYS])
async def test_without_a_valid_key_nothing_is_done(
    service: Service, authorization: str | None
) -> None:
    headers = {} if authorization is None else {b"Authorization": authorization.encode()}
    response = await service.client.post(PATH, json=BODY, headers=headers)
    problem(response, 401)
    assert response.headers["www-authenticate"] == "Bearer"
    assert await service.subscriber() is None


async def test_a_revoked_key_is_refused_within_five_seconds(service: Service) -> None:
    assert (await service.call()).status_code == 202
    [known] = [each async for each in keys.every_key(service.storage.tables)]
    await keys.revoke(service.storage.tables, known.id)
    service.clock.move(5)
    problem(await service.call(), 401)


async def test_a_key_for_one_list_signs_up_for_no_other(service: Service) -> None:
    key = await service.new_key("contoso1")
    assert (await service.call(key)).status_code == 202
    assert problem(await service.call(key, list="contoso2"), 403)["field"] == "list"


async def test_a_key_learns_nothing_about_lists_that_are_not_its_own(service: Service) -> None:
    key = await service.new_key("contoso1")
    there = problem(await service.call(key, list="contoso2"), 403)
    absent = problem(await service.call(key, list="contoso9"), 403)
    assert there["detail"].replace("contoso2", "contoso9") == absent["detail"]


async def test_a_list_that_is_not_there_is_named(service: Service) -> None:
    told = problem(await service.call(list="contoso9"), 404)
    assert (told["field"], "contoso9" in told["detail"]) == ("list", True)


# --- What is not taken --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"email": "nobody"}, ["email"]),
        ({"email": "ada\0@contoso.edu"}, ["email"]),
        ({"email": "ada@contoso.edu\r\nBcc: x@y.zz"}, ["email"]),
        ({"email": ["ada@contoso.edu"]}, ["email"]),
        ({"email": None}, ["email"]),
        ({"list": "../contoso1"}, ["list"]),
        ({"list": "-lists"}, ["list"]),
        ({"list": 5}, ["list"]),
        ({"attributes": {"name": 5}}, ["attributes"]),
        ({"attributes": {"email": "x@y.zz"}}, ["attributes"]),
        ({"attributes": {"name": "a\nb"}}, ["attributes"]),
        ({"attributes": [["name", "Ada"]]}, ["attributes"]),
        ({"attributes": {"name": {"first": "Ada"}}}, ["attributes"]),
        ({"verified": True}, ["verified"]),
        ({"list": "a b", "email": "nobody", "role": "admin"}, ["list", "email", "role"]),
    ],
)
async def test_every_wrong_member_is_named(
    service: Service, members: dict[str, Any], wrong: list[str]
) -> None:
    told = problem(await service.call(**members), 422)
    assert [each["field"] for each in told["errors"]] == wrong
    assert told.get("field") == (wrong[0] if len(wrong) == 1 else None)
    assert told["detail"] == " ".join(each["detail"] for each in told["errors"])
    assert await service.items() == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "“list” is missing. “email” is missing."),
        (b"[]", "one JSON object"),
        (b"null", "one JSON object"),
        (b"[" * 9000, "one JSON object"),
        (b'{"list":' + b"[" * 8000 + b"]" * 8000 + b"}", "nested too deep"),
        (b'{"list":5,"list":"contoso1","email":"student1@contoso.edu"}', "only once"),
        (b'{"list":"contoso2","list":"contoso1","email":"student1@contoso.edu"}', "only once"),
        (b'{"list":"contoso1","email":"a@contoso.edu","\\u006cist":"contoso1"}', "only once"),
        (b'{"list":"c","email":"a@b.edu","attributes":{"name":"A","name":"B"}}', "only once"),
    ],
)
async def test_a_body_of_another_shape_is_refused(
    service: Service, body: bytes, words: str
) -> None:
    assert words in problem(await service.post(body), 422)["detail"]


async def test_a_thousand_mistakes_are_not_all_told(service: Service) -> None:
    unknown = dict.fromkeys(map(str, range(1000)), 1)
    told = problem(await service.post(json.dumps(unknown).encode()), 422)
    assert len(told["errors"]) == route.ERRORS_SHOWN_MAX


NOT_JSON = [b"", b"{", b'{"list": 5, x', b"list=contoso1", b"\xff\xfe{}", b'{"list":NaN}']
NOT_TEXT = [b'{"list":"\xff","email":"a"}', b'{"list":"\\ud800","email":"a"}']


@pytest.mark.parametrize("body", NOT_JSON + NOT_TEXT)
async def test_what_is_not_json_is_refused(service: Service, body: bytes) -> None:
    problem(await service.post(body), 400)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_another_content_type_is_refused(service: Service, kind: str) -> None:
    problem(await service.post(b"{}", kind), 415)


async def test_json_may_name_its_charset(service: Service) -> None:
    response = await service.post(json.dumps(BODY).encode(), "Application/JSON; charset=utf-8")
    assert response.status_code == 202


async def test_a_huge_body_is_refused_before_it_is_read_to_its_end(service: Service) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1024
            yield b" " * 1024

    problem(await service.post(endless()), 413)
    assert sent <= openapi.BODY_BYTES_MAX + 2 * 1024


async def test_a_caller_that_hangs_up_half_way_changes_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang_up(*_: object) -> AsyncIterator[bytes]:
        yield b'{"list":'
        raise ClientDisconnect

    monkeypatch.setattr(Request, "stream", hang_up)
    problem(await service.call(), 400)
    assert await service.items() == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
async def test_another_method_is_refused(service: Service, method: str) -> None:
    response = await service.client.request(method, PATH)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.headers["content-type"] == "application/problem+json"


# --- Too often, and storage in trouble ----------------------------------------------------------


async def test_a_key_that_calls_too_often_is_told_when_to_call_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "KEY_CALLS", msgspec.structs.replace(auth.KEY_CALLS, burst=3))
    people = [f"student{number}@contoso.edu" for number in range(4)]
    answers = [await service.call(email=each) for each in people]
    assert [each.status_code for each in answers] == [202, 202, 202, 429]
    problem(answers[-1], 429)
    assert answers[-1].headers["retry-after"] == "1"
    assert (await service.call(await service.new_key())).status_code == 202
    service.clock.move(1)
    assert (await service.call()).status_code == 202


async def test_an_address_is_taken_twenty_times_at_once_then_every_three_minutes(
    service: Service,
) -> None:
    spellings = [ADA, ADA.upper()] * 10
    assert {(await service.call(email=each)).status_code for each in spellings} == {202}
    refused = await service.call(await service.new_key(), list="contoso2")
    problem(refused, 429)
    assert refused.headers["retry-after"] == "180"
    assert (await service.call(email="student2@contoso.edu")).status_code == 202
    service.clock.move(180)
    assert (await service.call()).status_code == 202


@pytest.mark.parametrize("error", [Unavailable, StorageFull])
@pytest.mark.parametrize("part", ["tables", "queues"])
async def test_when_storage_fails_the_caller_is_told_to_come_back(
    service: Service, monkeypatch: pytest.MonkeyPatch, part: str, error: type[Exception]
) -> None:
    async def fail(*_: object) -> None:
        raise error("disk /secret/place")

    call = {"tables": "get", "queues": "put"}[part]
    with monkeypatch.context() as broken:
        broken.setattr(getattr(service.storage, part), call, fail)
        response = await service.call()
    assert "secret" not in problem(response, 503)["detail"]
    assert int(response.headers["retry-after"]) > 0
    assert (await service.call()).status_code == 202  # and repeating it completes it
    assert await service.items() == 1


async def test_storage_that_never_answers_does_not_keep_the_caller(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> Row | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(auth, "STORAGE_S_MAX", 0.01)
    monkeypatch.setattr(service.storage.tables, "get", never)
    problem(await service.call(), 503)


# --- What others see ----------------------------------------------------------------------------


async def test_no_log_line_names_an_address_or_a_key(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(queue: str, body: str) -> None:
        raise Unavailable(f"{queue} {body} {ADA} {service.key}")

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    caplog.set_level(logging.DEBUG)
    try:
        with capture_logs() as logs:
            await service.call(email="nobody")
            await service.call("prk_" + "a" * 40)
            monkeypatch.setattr(service.storage.queues, "put", fail)
            await service.call()
    finally:
        structlog.configure(**before)
    assert logs  # storage failed: that is told, without the names
    seen = repr(logs) + caplog.text
    for secret in (ADA, "nobody", service.key, "prk_"):
        assert secret not in seen


async def test_the_service_is_documented_with_examples(service: Service) -> None:
    document = service.app.openapi()
    described = document["paths"][PATH]["post"]
    schemas = document["components"]["schemas"]
    response = await service.post(json.dumps(schemas["SignUp"]["examples"][0]).encode())
    assert (response.status_code, response.json()) == (202, schemas["Accepted"]["examples"][0])
    refusals = {"400", "401", "403", "404", "409", "413", "415", "422", "429", "503"}
    assert set(described["responses"]) == {"202"} | refusals
    assert described["security"] == [{"accessKey": []}]
