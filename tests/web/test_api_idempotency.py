"""Idempotency keys: a call made twice creates once, whoever died in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from postroom.actions import manage_lists
from postroom.flow import compose, subscribe
from postroom.records import idempotency, messages
from postroom.records.idempotency import KEPT_FOR, TAKEN_FOR
from postroom.storage.port import KeysAcross, Unavailable
from tests.web.program import ADA, Program, problem

DAY_S, TAKEN_S = KEPT_FOR.total_seconds(), TAKEN_FOR.total_seconds()
CREATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "list": ("/lists", {"name": "news", "from": "news@contoso.edu"}),
    "subscriber": ("/lists/contoso1/subscribers", {"address": ADA, "verified": True}),
    "message": ("/messages", {"list": "contoso1", "subject": "News", "text": "Hi", "at": "now"}),
}
each_creation = pytest.mark.parametrize(("path", "sent"), CREATIONS.values(), ids=CREATIONS)


async def count(program: Program, path: str) -> int:
    return len(await program.pages(path))


async def notes(program: Program) -> int:
    rows = await program.storage.tables.scan("service", KeysAcross("idempotency-", "idempotency."))
    return len(rows.rows)


@each_creation
async def test_the_same_call_again_gives_the_same_answer_and_creates_nothing(
    program: Program, path: str, sent: dict[str, Any]
) -> None:
    before = await count(program, path)
    first = await program.call("POST", path, sent, idempotency_key="one")
    program.clock.move(DAY_S - 1)
    again = await program.call("POST", path, sent, idempotency_key="one")
    assert (again.status_code, again.content) == (201, first.content)
    for header in ("location", "etag", "content-type"):
        assert again.headers[header] == first.headers[header]
    assert await count(program, path) == before + 1


async def test_a_message_written_for_a_time_that_has_passed_gives_the_same_answer(
    program: Program,
) -> None:
    path, sent = CREATIONS["message"]
    sent = sent | {"at": (program.clock.now() + timedelta(hours=1)).isoformat()}
    first = await program.call("POST", path, sent, idempotency_key="one")
    program.clock.move(DAY_S - 1)
    again = await program.call("POST", path, sent, idempotency_key="one")
    assert (again.status_code, again.content) == (201, first.content)
    assert problem(await program.call("POST", path, sent), 422)["field"] == "at"


async def test_a_call_that_died_is_finished_even_if_its_time_has_passed(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = CREATIONS["message"]
    due_at = program.clock.now() + timedelta(hours=1)
    sent = sent | {"at": due_at.isoformat()}
    with monkeypatch.context() as dying:
        dying.setattr(compose, "compose", fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    program.clock.move(DAY_S / 2)
    made = await program.make(path, sent, idempotency_key="one")
    assert made["due_at"] == due_at.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("kind", ["subscriber", "message"])
async def test_what_was_made_for_a_list_that_is_gone_gives_the_same_answer(
    program: Program, kind: str
) -> None:
    path, sent = CREATIONS[kind]
    first = await program.call("POST", path, sent, idempotency_key="one")
    await program.call("DELETE", "/lists/contoso1", if_match="*")
    again = await program.call("POST", path, sent, idempotency_key="one")
    assert (again.status_code, again.content) == (201, first.content)
    problem(await program.call("POST", path, sent, idempotency_key="two"), 404)
    assert await notes(program) == 1 + 2  # the first call's, and two by age


@pytest.mark.parametrize("at", [None, "now"])
async def test_a_message_whose_list_is_gone_is_found_by_the_call_that_died_writing_it(
    program: Program, monkeypatch: pytest.MonkeyPatch, at: str | None
) -> None:
    path, sent = CREATIONS["message"]
    sent = {name: value for name, value in (sent | {"at": at}).items() if value}
    with monkeypatch.context() as dying:
        dying.setattr(idempotency, "finish", fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    [made] = await program.pages(path)
    await program.call("DELETE", "/lists/contoso1", if_match="*")
    program.clock.move(TAKEN_S)
    again = await program.make(path, sent, idempotency_key="one")
    assert (again["ref"], again["status"]) == (made["ref"], "pending" if at else "draft")
    assert await program.make(path, sent, idempotency_key="one") == again


@pytest.mark.parametrize("step", ["put", "put_due"])
async def test_a_message_that_died_half_written_needs_its_list_to_be_finished(
    program: Program, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path, sent = CREATIONS["message"]
    with monkeypatch.context() as dying:
        dying.setattr(program.storage.blobs if step == "put" else messages, step, fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    await program.call("DELETE", "/lists/contoso1", if_match="*")
    program.clock.move(TAKEN_S)
    problem(await program.call("POST", path, sent, idempotency_key="one"), 404)


async def test_another_request_under_the_same_key_is_refused(program: Program) -> None:
    path, sent = CREATIONS["message"]
    await program.make(path, sent, idempotency_key="one")
    other = await program.call("POST", path, sent | {"subject": "Other"}, idempotency_key="one")
    assert problem(other, 422)["field"] == "Idempotency-Key"
    elsewhere = await program.call("POST", *CREATIONS["list"], idempotency_key="one")
    problem(elsewhere, 422)
    assert await count(program, path) == 1


async def test_keys_of_two_callers_do_not_meet(program: Program) -> None:
    path, sent = CREATIONS["message"]
    await program.make(path, sent, idempotency_key="one")
    program.clock.move(1)
    await program.make(path, sent, idempotency_key="one", key=await program.new_key())
    assert await count(program, path) == 2


async def test_without_a_key_two_calls_create_two(program: Program) -> None:
    path, sent = CREATIONS["message"]
    for _ in range(2):
        await program.make(path, sent)
    assert await count(program, path) == 2


async def test_two_messages_of_one_moment_have_refs_of_their_own(program: Program) -> None:
    path, sent = CREATIONS["message"]
    made = [await program.make(path, sent, idempotency_key=str(number)) for number in range(5)]
    assert len({each["ref"] for each in made}) == 5


@pytest.mark.parametrize("key", ["", "x" * 101, "tab\there", "é", "two words"])
async def test_a_key_is_printable_and_short(program: Program, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode(), b"Authorization": f"Bearer {program.key}".encode()}
    path, sent = CREATIONS["list"]
    response = await program.client.post(f"/api/v1{path}", json=sent, headers=headers)
    assert problem(response, 422)["field"] == "Idempotency-Key"


async def test_a_refused_call_may_be_corrected_under_the_same_key(program: Program) -> None:
    path, sent = CREATIONS["list"]
    await program.make(path, sent)
    program.clock.move(1)
    problem(await program.call("POST", path, sent, idempotency_key="one"), 409)
    await program.make(path, sent | {"name": "other"}, idempotency_key="one")


# --- Dying half-way -----------------------------------------------------------------------------

CREATE = {
    "list": (manage_lists, "create"),
    "subscriber": (subscribe, "add"),
    "message": (compose, "compose"),
}


async def fail(*_: object, **__: object) -> None:
    raise Unavailable("no answer")


@pytest.mark.parametrize("kind", CREATIONS)
@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_call_that_died_is_finished_by_repeating_it(
    program: Program, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    path, sent = CREATIONS[kind]
    before = await count(program, path)
    broken = CREATE[kind] if where == "before" else (idempotency, "finish")
    with monkeypatch.context() as dying:
        dying.setattr(*broken, fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    waiting = await program.call("POST", path, sent, idempotency_key="one")
    problem(waiting, 409)
    program.clock.move(int(waiting.headers["retry-after"]))
    first = await program.call("POST", path, sent, idempotency_key="one")
    assert first.status_code == 201, first.text
    assert (await program.call("POST", path, sent, idempotency_key="one")).content == first.content
    assert await count(program, path) == before + 1


@pytest.mark.parametrize("step", ["put", "put_due", "replace"])
async def test_a_message_that_died_while_it_was_written_is_finished_under_its_ref(
    program: Program, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path, sent = CREATIONS["message"]
    with monkeypatch.context() as dying:
        dying.setattr(program.storage.blobs if step == "put" else messages, step, fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    [half] = await program.pages(path)
    assert half["status"] == "draft"
    program.clock.move(TAKEN_S)
    whole = await program.make(path, sent, idempotency_key="one")
    assert (whole["ref"], whole["status"]) == (half["ref"], "pending")
    assert (await program.get(f"/messages/{whole['ref']}"))["text"] == "Hi"


async def test_a_message_that_was_sent_meanwhile_is_not_written_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = CREATIONS["message"]
    with monkeypatch.context() as dying:
        dying.setattr(idempotency, "finish", fail)
        problem(await program.call("POST", path, sent, idempotency_key="one"), 503)
    [made] = await program.pages(path)
    tables = program.storage.tables
    found = await messages.find_live(tables, made["ref"])
    assert found
    await messages.put_archived(tables, found[0], program.clock.now())
    await messages.delete_live(tables, made["ref"], found[1])
    program.clock.move(TAKEN_S)
    assert (await program.make(path, sent, idempotency_key="one"))["ref"] == made["ref"]
    assert await messages.find_live(tables, made["ref"]) is None


async def test_a_ref_that_somebody_else_took_is_not_overwritten(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = CREATIONS["message"]
    other = await program.make(path, sent | {"subject": "Other"})
    monkeypatch.setattr("postroom.web.api.messages.ref_of_call", lambda *_: other["ref"])
    problem(await program.call("POST", path, sent, idempotency_key="one"), 409)
    assert (await program.get(f"/messages/{other['ref']}"))["subject"] == "Other"


async def test_of_two_calls_at_once_one_creates_and_the_other_is_told_to_wait(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = CREATIONS["message"]
    entered, go_on = asyncio.Event(), asyncio.Event()
    write = compose.compose

    async def slow(*arguments: Any) -> Any:
        entered.set()
        await go_on.wait()
        return await write(*arguments)

    monkeypatch.setattr(compose, "compose", slow)
    first = asyncio.create_task(program.call("POST", path, sent, idempotency_key="one"))
    await entered.wait()
    second = await program.call("POST", path, sent, idempotency_key="one")
    problem(second, 409)
    assert 0 < int(second.headers["retry-after"]) <= TAKEN_S
    go_on.set()
    assert (await first).status_code == 201
    assert await count(program, path) == 1


# --- Forgetting ---------------------------------------------------------------------------------


async def test_after_a_day_a_key_is_new_again(program: Program) -> None:
    path, sent = CREATIONS["message"]
    first = await program.make(path, sent, idempotency_key="one")
    program.clock.move(DAY_S)
    second = await program.make(path, sent, idempotency_key="one")
    assert first["ref"] != second["ref"]


async def test_the_sweep_deletes_notes_that_are_a_day_old_and_no_newer_ones(
    program: Program,
) -> None:
    path, sent = CREATIONS["message"]
    await program.make(path, sent, idempotency_key="old")
    program.clock.move(DAY_S / 2)
    young = await program.make(path, sent, idempotency_key="young")
    program.clock.move(DAY_S / 2 + 1)
    assert await idempotency.forget_old(program.storage.tables, program.clock.now()) == 1
    assert await program.make(path, sent, idempotency_key="young") == young
    program.clock.move(DAY_S)
    await idempotency.forget_old(program.storage.tables, program.clock.now())
    assert await notes(program) == 0


async def test_a_key_used_again_after_a_day_outlives_its_first_note(program: Program) -> None:
    path, sent = CREATIONS["message"]
    await program.make(path, sent, idempotency_key="one")
    program.clock.move(DAY_S)
    again = await program.make(path, sent, idempotency_key="one")
    program.clock.move(1)
    await idempotency.forget_old(program.storage.tables, program.clock.now())
    assert await program.make(path, sent, idempotency_key="one") == again


async def test_one_sweep_forgets_only_so_many(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "FORGOTTEN_A_SWEEP", 2)
    path, sent = CREATIONS["message"]
    for number in range(3):
        await program.make(path, sent, idempotency_key=str(number))
    now = program.clock.now() + KEPT_FOR + timedelta(seconds=1)
    assert [await idempotency.forget_old(program.storage.tables, now) for _ in range(3)] == [
        2,
        1,
        0,
    ]
