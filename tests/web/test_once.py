"""Forms that create something act once: however often they are sent, whoever dies in between."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from postroom.actions import manage_lists, move_subscriber, sign_in
from postroom.domain.address import parse_address
from postroom.domain.user import Role
from postroom.flow import compose, subscribe
from postroom.records import idempotency, keys, lists, messages, subscribers, users
from postroom.records.idempotency import KEPT_FOR
from postroom.storage.port import KeysAcross, Unavailable
from postroom.web.security import ORDINARY
from tests.clock import MovableClock
from tests.web.drafts import GOOD, written
from tests.web.office import ADDRESS, LIST
from tests.web.people import NEW, join, path_of
from tests.web.sent_forms import fields_of
from tests.web.signed_in import Worker, at_work, sign_in_as

EVE = "eve@contoso.edu"
NEW_KEY = {"name": "Contoso website", "lists": LIST, "right-subscribe": "yes"}


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def owner(tmp_path: Path, clock: MovableClock) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.OWNER, clock) as worker:
        yield worker


@dataclass
class Creation:
    """A form that is shown on a page, and what it takes to fill it in."""

    page: str
    action: str
    typed: dict[str, str]
    makes: tuple[Any, str]  # the step that creates


CREATIONS = {
    "list": Creation(
        "/admin/lists/new",
        "",
        {"name": "news", "sender": "news@contoso.edu"},
        (manage_lists, "create"),
    ),
    "subscriber": Creation(NEW, "", {"address": EVE, "verified": "yes"}, (subscribe, "add")),
    "message": Creation("/admin/messages/new", "/admin/messages/write", GOOD, (compose, "compose")),
}
SHOWN_ONCE = {
    "key": Creation("/admin/keys", "/admin/keys/new", NEW_KEY, (keys, "create")),
    "link": Creation(
        "/admin/users",
        "/admin/users/invite",
        {"address": EVE, "role": "editor"},
        (sign_in, "invite"),
    ),
}
each_creation = pytest.mark.parametrize("kind", CREATIONS)
each_shown_once = pytest.mark.parametrize("kind", SHOWN_ONCE)


async def filled_in(worker: Worker, creation: Creation) -> dict[str, str]:
    page = await worker.get(creation.page)
    return fields_of(page.text, creation.action or None) | creation.typed


async def sent(worker: Worker, creation: Creation, fields: dict[str, str]) -> httpx2.Response:
    return await worker.post(creation.action or creation.page, **fields)


async def count(worker: Worker) -> int:
    """Lists, people, messages, keys and links that there are."""
    tables, now = worker.office.storage.tables, MovableClock().now()
    found_lists, _ = await lists.page(tables, limit=100)
    found_messages, _ = await messages.newest(tables, limit=100)
    people = await subscribers.scan_people(tables, LIST, limit=100)
    made = [key async for key in keys.every_key(tables)]
    links = await users.open_invitations(tables, now)
    return len([*found_lists, *found_messages, *people.people, *made, *links])


async def fail(*_: object, **__: object) -> None:
    raise Unavailable("no answer")


async def works(owner: Worker, kind: str, page: str) -> None:
    """What the page shows can be used."""
    if kind == "link":
        found = re.search(r"https://post\.contoso\.edu(/admin/welcome/[\w-]+)", page)
        assert found, page
        assert (await owner.get(found[1])).status_code == 200
        return
    found = re.search(r"prk_[\w-]{40}", page)
    assert found, page
    assert await keys.find(owner.office.storage.tables, found[0])


# --- Sent again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CREATIONS | SHOWN_ONCE)
async def test_every_form_that_creates_something_has_a_new_token_each_time_it_is_shown(
    owner: Worker, kind: str
) -> None:
    creation = (CREATIONS | SHOWN_ONCE)[kind]
    tokens = [(await filled_in(owner, creation))["once"] for _ in range(2)]
    assert len(set(tokens)) == 2
    assert min(map(len, tokens)) >= 20


@each_creation
async def test_the_same_form_again_creates_nothing_and_leads_to_the_same_place(
    owner: Worker, clock: MovableClock, kind: str
) -> None:
    creation, before = CREATIONS[kind], await count(owner)
    fields = await filled_in(owner, creation)
    first = await sent(owner, creation, fields)
    clock.move(KEPT_FOR.total_seconds() - 1)
    again = await sent(owner, creation, fields)
    assert first.status_code == again.status_code == 303
    assert first.headers["location"] == again.headers["location"]
    assert await count(owner) == before + 1


@each_shown_once
async def test_what_is_shown_once_is_neither_made_nor_shown_again(
    owner: Worker, clock: MovableClock, kind: str
) -> None:
    creation, before = SHOWN_ONCE[kind], await count(owner)
    fields = await filled_in(owner, creation)
    first = await sent(owner, creation, fields)
    clock.move(60)
    again = await sent(owner, creation, fields)
    assert again.status_code == 200
    assert "was already created" in again.text
    assert "shown only once" in again.text
    assert creation.typed["name" if kind == "key" else "address"] in again.text
    assert "prk_" not in again.text
    assert "/admin/welcome/" not in again.text
    assert await count(owner) == before + 1
    await works(owner, kind, first.text)


@each_shown_once
async def test_nothing_that_is_shown_once_is_kept(owner: Worker, kind: str) -> None:
    creation = SHOWN_ONCE[kind]
    answer = await sent(owner, creation, await filled_in(owner, creation))
    secret = re.search(r"prk_[\w-]{40}|(?<=/admin/welcome/)[\w-]{20,}", answer.text)
    assert secret
    rows = await owner.office.storage.tables.scan("service", KeysAcross("", "~"), limit=1000)
    assert any(row.partition.startswith("idempotency-user-") for row in rows.rows)
    assert secret[0] not in repr(rows.rows)


async def test_a_copy_is_made_once(owner: Worker, clock: MovableClock) -> None:
    path = await written(owner)
    fields = fields_of((await owner.get(path)).text, f"{path}/copy")
    first = await owner.post(f"{path}/copy", **fields)
    clock.move(1)
    again = await owner.post(f"{path}/copy", **fields)
    assert first.headers["location"] == again.headers["location"]
    found, _ = await messages.newest(owner.office.storage.tables, limit=10)
    assert len(found) == 2


async def test_a_repeated_move_changes_nothing_more(owner: Worker, clock: MovableClock) -> None:
    one = await join(owner, ADDRESS)
    path = await path_of(owner, one.address)
    fields = fields_of((await owner.get(f"{path}/edit")).text) | {"address": EVE}
    first = await owner.post(f"{path}/edit", **fields)
    clock.move(1)
    again = await owner.post(f"{path}/edit", **fields)
    assert first.status_code == again.status_code == 303
    assert first.headers["location"] == again.headers["location"]


@each_creation
async def test_a_form_without_a_token_works_as_ever(owner: Worker, kind: str) -> None:
    creation, before = CREATIONS[kind], await count(owner)
    assert (await sent(owner, creation, creation.typed)).status_code == 303
    again = await sent(owner, creation, creation.typed)
    assert again.status_code == (303 if kind == "message" else 422)
    assert await count(owner) == before + (2 if kind == "message" else 1)


async def test_other_words_with_the_same_token_are_another_thing(
    owner: Worker, clock: MovableClock
) -> None:
    creation, before = CREATIONS["subscriber"], await count(owner)
    fields = await filled_in(owner, creation)
    for address in (EVE, ADDRESS):
        clock.move(1)
        answer = await sent(owner, creation, fields | {"address": address})
        assert answer.status_code == 303
    assert await count(owner) == before + 2


async def test_nobody_repeats_what_another_user_sent(owner: Worker, clock: MovableClock) -> None:
    creation = CREATIONS["message"]
    fields = await filled_in(owner, creation)
    first = await sent(owner, creation, fields)
    clock.move(1)
    editor = await sign_in_as(owner.office, Role.EDITOR)
    async with editor.browser:
        second = await sent(editor, creation, fields)
    assert first.headers["location"] != second.headers["location"]


async def test_a_mistake_can_be_corrected_in_the_same_form(owner: Worker) -> None:
    creation = CREATIONS["list"]
    fields = await filled_in(owner, creation)
    wrong = await sent(owner, creation, fields | {"name": LIST})
    assert wrong.status_code == 422
    back = fields_of(wrong.text)
    assert back["once"] == fields["once"]
    assert (await sent(owner, creation, back | {"name": "news"})).status_code == 303


async def test_a_key_whose_list_is_gone_since_was_made_all_the_same(owner: Worker) -> None:
    creation = SHOWN_ONCE["key"]
    fields = await filled_in(owner, creation)
    await sent(owner, creation, fields)
    await lists.start_deleting(owner.office.storage.tables, LIST)
    assert "was already created" in (await sent(owner, creation, fields)).text


# --- Two at once, and dying half-way ------------------------------------------------------------


async def test_a_second_click_waits_for_the_first_and_is_answered_alike(
    owner: Worker, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    creation = CREATIONS["message"]
    fields = await filled_in(owner, creation)
    entered, go_on = asyncio.Event(), asyncio.Event()
    write = compose.compose

    async def slow(*arguments: Any) -> Any:
        entered.set()
        await go_on.wait()
        return await write(*arguments)

    async def sleep(_seconds: float) -> None:
        go_on.set()
        await asyncio.wait([first])

    monkeypatch.setattr(compose, "compose", slow)
    monkeypatch.setattr(clock, "sleep", sleep)
    first = asyncio.create_task(sent(owner, creation, fields))
    await entered.wait()
    second = await sent(owner, creation, fields)
    assert second.status_code == 303
    assert second.headers["location"] == (await first).headers["location"]


@pytest.mark.parametrize("kind", CREATIONS | SHOWN_ONCE)
@pytest.mark.parametrize("where", ["before", "after"])
async def test_what_failed_is_finished_at_once_by_sending_the_form_again(
    owner: Worker, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    creation, before = (CREATIONS | SHOWN_ONCE)[kind], await count(owner)
    fields = await filled_in(owner, creation)
    with monkeypatch.context() as dying:
        step, name = creation.makes if where == "before" else (idempotency, "finish")
        dying.setattr(step, name, fail)
        failed = await sent(owner, creation, fields)
    assert failed.status_code == 503
    assert fields_of(failed.text)["once"] == fields["once"]
    clock.move(1)
    answer = await sent(owner, creation, fields)
    assert answer.status_code == (200 if kind in SHOWN_ONCE else 303)
    if kind in SHOWN_ONCE:
        await works(owner, kind, answer.text)
    assert await count(owner) == before + 1


@pytest.mark.parametrize("kind", CREATIONS | SHOWN_ONCE)
async def test_what_died_without_a_word_is_taken_over_when_its_time_is_up(
    owner: Worker, clock: MovableClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    creation, before = (CREATIONS | SHOWN_ONCE)[kind], await count(owner)
    fields = await filled_in(owner, creation)
    with monkeypatch.context() as dying:
        dying.setattr(idempotency, "finish", fail)
        dying.setattr(idempotency, "release", fail)
        await sent(owner, creation, fields)
    waiting = await sent(owner, creation, fields)
    assert waiting.status_code == 409
    assert "Wait a moment" in waiting.text
    assert fields_of(waiting.text).items() >= creation.typed.items()
    clock.move(30 if kind == "message" else ORDINARY.answer_s or 0)
    answer = await sent(owner, creation, fields)
    assert answer.status_code == (200 if kind in SHOWN_ONCE else 303)
    assert await count(owner) == before + 1


async def test_a_move_that_died_before_its_note_is_found_again(
    owner: Worker, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await join(owner, ADDRESS)
    path = await path_of(owner, one.address)
    fields = fields_of((await owner.get(f"{path}/edit")).text) | {"address": EVE}
    with monkeypatch.context() as dying:
        dying.setattr(idempotency, "finish", fail)
        assert (await owner.post(f"{path}/edit", **fields)).status_code == 503
    clock.move(1)
    answer = await owner.post(f"{path}/edit", **fields)
    assert answer.status_code == 303
    there = await subscribers.find(
        owner.office.storage.tables, LIST, parse_address(EVE).storage_key
    )
    assert there
    assert not there[0].inactive_reason


async def test_somebody_who_unsubscribed_before_the_move_is_shown_as_unsubscribed(
    owner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await join(owner, ADDRESS)
    path = await path_of(owner, one.address)
    fields = fields_of((await owner.get(f"{path}/edit")).text) | {"address": EVE}
    with monkeypatch.context() as dying:
        dying.setattr(move_subscriber, "move", fail)
        assert (await owner.post(f"{path}/edit", **fields)).status_code == 503
    await owner.post(f"{path}/remove")
    answer = await owner.post(f"{path}/edit", **fields)
    assert answer.status_code == 409
    assert "They unsubscribed in the meantime" in answer.text


async def test_a_ref_that_another_message_took_does_not_lock_anybody_out(
    owner: Worker, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (await written(owner)).rpartition("/")[2]
    creation = CREATIONS["message"]
    fields = await filled_in(owner, creation)
    with monkeypatch.context() as taken:
        taken.setattr("postroom.web.admin.messages.writing.ref_of_call", lambda *_: other)
        answer = await sent(owner, creation, fields)
    assert answer.status_code == 422
    assert "at the same time" in answer.text
    clock.move(1)
    assert (await sent(owner, creation, fields)).status_code == 303
