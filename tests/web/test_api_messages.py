"""/messages: written, edited while nobody is queued, steered, and everyone's outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from postroom.domain.message import Status
from postroom.domain.trouble import Trouble, TroubleKind
from postroom.flow import fan_out, schedule
from postroom.records import batches, bodies, leases, messages, recipient_outcomes
from postroom.storage.port import Tables
from tests.web.program import Program, problem

DRAFT: dict[str, Any] = {"list": "contoso1", "subject": "News", "text": "Hello {{ name }}"}
LATER = "2026-12-01T09:00Z"


async def fanned_out(program: Program, ref: str) -> None:
    """Every verified subscriber is queued, and nobody is sent to."""
    tables = program.storage.tables
    for _ in range(100):
        found = await messages.find_live(tables, ref)
        assert found
        message, etag = found
        if message.status is Status.PROCESSING:
            return
        if message.status is Status.PENDING:
            await schedule.start(tables, message, etag, program.clock.now())
        else:
            await fan_out.advance(program.storage, message, etag, program.clock.now())
    raise AssertionError("never fanned out")


async def with_states(tables: Tables, ref: str, batch: int, states: str) -> None:
    """As if a sender had been there."""
    found = await batches.find_ledger(tables, ref, batch)
    assert found
    ledger = msgspec.structs.replace(found[0], states=states)
    await batches.replace_ledger(tables, ledger, found[1])


async def going_out(program: Program, people: int) -> str:
    for number in range(people):
        sent = {"address": f"student{number:03d}@contoso.edu", "verified": True}
        await program.make("/lists/contoso1/subscribers", sent)
    ref: str = (await program.make("/messages", DRAFT | {"at": "now"}))["ref"]
    await fanned_out(program, ref)
    return ref


async def test_a_draft_is_written_and_shown_with_its_bodies(program: Program) -> None:
    response = await program.call("POST", "/messages", DRAFT)
    made = response.json()
    assert response.headers["location"] == f"/api/v1/messages/{made['ref']}"
    assert (made["status"], made["due_at"], made["from"]) == ("draft", None, "a@contoso.edu")
    shown = await program.call("GET", response.headers["location"])
    more: dict[str, Any] = {"html": None, "text": "Hello {{ name }}", "mail_server_troubles": []}
    assert shown.json() == made | more
    assert shown.headers["etag"] == response.headers["etag"]


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"subject": ""}, "subject"),
        ({"list": "a b"}, "list"),
        ({"text": 5}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"html": "x" * (2 * 1024 * 1024 + 1)}, "html"),
        ({"at": "tomorrow"}, "at"),
        ({"at": "2026-12-01 09:00", "zone": "Mars/Base"}, "zone"),
        ({"at": "2020-01-01T09:00Z"}, "at"),
        ({"on_doubt": "maybe"}, "on_doubt"),
        ({"text": None}, None),
        ({"text": "{{ name"}, None),
    ],
)
async def test_what_is_wrong_with_a_message_is_named(
    program: Program, members: dict[str, Any], wrong: str | None
) -> None:
    told = problem(await program.call("POST", "/messages", DRAFT | members), 422)
    assert told.get("field") == wrong
    assert await program.pages("/messages") == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"list": "a b"}, "list name"),
        ({"list": 5}, "“list” must be"),
        ({"list": [[]]}, "one JSON object whose members are strings"),
        ({"unheard": 1}, "“unheard” is unknown"),
        ({str(number): "" for number in range(3000)}, "too many members"),
    ],
)
async def test_what_is_wrong_with_a_long_message_is_told_as_well(
    program: Program, wrong: dict[str, Any], words: str
) -> None:
    """Without reading it all over again: a hostile one would take seconds."""
    sent = DRAFT | {"html": "<p>x</p>" * 10_000} | wrong
    told = problem(await program.call("POST", "/messages", sent), 422)
    assert words in told["detail"]


async def test_a_long_body_that_is_no_object_is_refused(program: Program) -> None:
    told = problem(await program.call("POST", "/messages", ["x" * 100_000]), 422)
    assert "Send one JSON object" in told["detail"]


async def test_a_message_to_no_list_is_refused(program: Program) -> None:
    problem(await program.call("POST", "/messages", DRAFT | {"list": "nolist"}), 404)


async def test_bodies_of_two_mebibytes_fit(program: Program) -> None:
    long = "é" * (1024 * 1024)
    ref = (await program.make("/messages", DRAFT | {"html": long, "text": long}))["ref"]
    assert (await program.get(f"/messages/{ref}"))["html"] == long


async def test_the_newest_message_comes_first_and_a_list_may_be_picked(program: Program) -> None:
    for number in range(5):
        program.clock.move(1)
        list_name = f"contoso{1 + number % 2}"
        await program.make("/messages", DRAFT | {"subject": str(number), "list": list_name})
    subjects = [each["subject"] for each in await program.pages("/messages?limit=2")]
    assert subjects == ["4", "3", "2", "1", "0"]
    picked = await program.pages("/messages?limit=1&list=contoso2")
    assert [each["subject"] for each in picked] == ["3", "1"]
    assert await program.pages("/messages?list=nolist") == []


# --- Editing ------------------------------------------------------------------------------------


async def test_an_edit_needs_the_version_it_means(program: Program) -> None:
    path = f"/messages/{(await program.make('/messages', DRAFT))['ref']}"
    for method, sent in (("PATCH", {"subject": "x"}), ("DELETE", None)):
        problem(await program.call(method, path, sent), 428)
        problem(await program.call(method, path, sent, if_match='"other"'), 412)


async def test_what_is_not_named_stays_and_a_body_that_is_null_goes(program: Program) -> None:
    path = f"/messages/{(await program.make('/messages', DRAFT))['ref']}"
    before = await program.get(path)
    edited = await program.call("PATCH", path, {"html": "<p>Hi</p>"}, if_match="*")
    assert edited.json() == before | {"html": "<p>Hi</p>"}
    edited = await program.call("PATCH", path, {"text": None, "subject": "New"}, if_match="*")
    assert edited.json() == before | {"html": "<p>Hi</p>", "text": None, "subject": "New"}
    problem(await program.call("PATCH", path, {"html": None}, if_match="*"), 422)
    moved = await program.call("PATCH", path, {"list": "contoso2"}, if_match="*")
    assert moved.json()["list"] == "contoso2"


async def test_a_late_edit_changes_neither_subject_nor_bodies(program: Program) -> None:
    path = f"/messages/{(await program.make('/messages', DRAFT))['ref']}"
    seen = await program.etag(path)
    first = await program.call("PATCH", path, {"text": "First"}, if_match=seen)
    late = await program.call("PATCH", path, {"text": "Late", "subject": "Late"}, if_match=seen)
    assert problem(late, 412)["current"] == first.json()
    assert await program.get(path) == first.json()


async def test_an_edit_that_loses_the_race_leaves_the_winners_bodies(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = (await program.make("/messages", DRAFT))["ref"]
    put = bodies.put

    async def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(bodies, "put", put)
        await program.call("PATCH", f"/messages/{ref}", {"text": "Won"}, if_match="*")
        await put(*arguments)

    monkeypatch.setattr(bodies, "put", overtaken)
    late = await program.call("PATCH", f"/messages/{ref}", {"text": "Lost"}, if_match="*")
    assert problem(late, 412)["current"]["text"] == "Won"
    assert (await program.get(f"/messages/{ref}"))["text"] == "Won"
    await program.call("DELETE", f"/messages/{ref}", if_match="*")
    assert await program.storage.blobs.list(ref) == ([], None)


async def test_once_people_are_queued_nothing_can_be_edited(program: Program) -> None:
    path = f"/messages/{await going_out(program, 1)}"
    problem(await program.call("PATCH", path, {"subject": "x"}, if_match="*"), 409)
    problem(await program.call("DELETE", path, if_match="*"), 409)
    problem(await program.call("POST", f"{path}/schedule", {"at": LATER}), 409)


async def test_a_deleted_draft_leaves_nothing(program: Program) -> None:
    ref = (await program.make("/messages", DRAFT))["ref"]
    assert (await program.call("DELETE", f"/messages/{ref}", if_match="*")).status_code == 204
    problem(await program.call("GET", f"/messages/{ref}"), 404)
    assert await program.pages("/messages") == []
    assert await program.storage.blobs.list(ref) == ([], None)


async def test_a_draft_whose_writer_died_can_be_shown_edited_and_deleted(program: Program) -> None:
    ref = (await program.make("/messages", DRAFT))["ref"]
    await bodies.delete_all(program.storage.blobs, ref)
    assert (await program.get(f"/messages/{ref}"))["text"] is None
    sent = {"text": "Again", "html": None}
    edited = await program.call("PATCH", f"/messages/{ref}", sent, if_match="*")
    assert edited.json()["text"] == "Again"
    assert (await program.call("DELETE", f"/messages/{ref}", if_match="*")).status_code == 204


@pytest.mark.parametrize("ref", ["1", "x", "1" * 30, "é", "%00", "-messages", "٣"])
@pytest.mark.parametrize("act", ["", "/outcomes", "/pause"])
async def test_a_message_that_is_not_there_is_not_found(
    program: Program, ref: str, act: str
) -> None:
    method = "POST" if act == "/pause" else "GET"
    problem(await program.call(method, f"/messages/{ref}{act}"), 404)


# --- Steering -----------------------------------------------------------------------------------


async def test_a_draft_is_given_a_time_and_another_one(program: Program) -> None:
    path = f"/messages/{(await program.make('/messages', DRAFT))['ref']}/schedule"
    given = await program.call("POST", path, {"at": "2026-12-01 09:00", "zone": "Europe/Berlin"})
    assert (given.json()["status"], given.json()["due_at"]) == ("pending", "2026-12-01T08:00:00Z")
    again = await program.call("POST", path, {"at": LATER}, if_match=given.headers["etag"])
    assert again.json()["due_at"] == "2026-12-01T09:00:00Z"
    problem(await program.call("POST", path, {"at": LATER}, if_match=given.headers["etag"]), 412)
    assert problem(await program.call("POST", path, {"at": "soon"}), 422)["field"] == "at"


async def test_a_pending_message_goes_back_to_draft_unless_it_has_begun(program: Program) -> None:
    made = await program.make("/messages", DRAFT | {"at": LATER})
    path = f"/messages/{made['ref']}"
    stale = await program.call("POST", f"{path}/unschedule", if_match='"stale"')
    problem(stale, 412)
    back = await program.call("POST", f"{path}/unschedule")
    assert (back.json()["status"], back.json()["due_at"]) == ("draft", None)
    assert (await program.get(path))["text"] == DRAFT["text"]
    problem(await program.call("POST", f"{path}/unschedule"), 409)
    begun = f"/messages/{await going_out(program, 1)}"
    refused = problem(await program.call("POST", f"{begun}/unschedule"), 409)
    assert "can no longer be unscheduled" in refused["detail"]


async def test_a_message_that_waits_for_the_mail_server_says_why(program: Program) -> None:
    path = f"/messages/{await going_out(program, 1)}"
    shown = await program.get(path)
    assert shown["mail_server_troubles"] == []
    assert shown["test_mode"] is False
    tables, now = program.storage.tables, program.clock.now()
    trouble = Trouble(TroubleKind.LOGIN, "mail.contoso.edu:587", "535 no", now, now, 1)
    name = leases.sender_lease("one")
    assert await leases.hold(tables, name, "one", now=now, lease_s=30, mail_trouble=trouble)
    [told] = (await program.get(path))["mail_server_troubles"]
    assert told["kind"] == "login"
    assert told["detail"] == "The mail server mail.contoso.edu:587 rejects the login: 535 no"
    assert (told["senders"], told["running"]) == (1, 1)
    await program.call("POST", f"{path}/pause")
    assert (await program.get(path))["mail_server_troubles"] == []


async def test_a_message_pauses_continues_and_is_cancelled(program: Program) -> None:
    path = f"/messages/{await going_out(program, 1)}"
    for act, status in (("pause", "paused"), ("resume", "queuing"), ("cancel", "cancelled")):
        response = await program.call("POST", f"{path}/{act}")
        assert (response.status_code, response.json()["status"]) == (200, status)
    problem(await program.call("POST", f"{path}/cancel"), 409)
    problem(await program.call("POST", f"{path}/pause"), 409)


async def test_the_failed_are_retried_and_the_held_decided_once_there_are_some(
    program: Program,
) -> None:
    ref = await going_out(program, 2)
    path = f"/messages/{ref}"
    for act, sent in (("retry", None), ("decide", {"held": "send-again"})):
        refused = problem(await program.call("POST", f"{path}/{act}", sent), 409)
        assert f"{ref} has no " in refused["detail"]
    await with_states(program.storage.tables, ref, 0, "fh")
    assert (await program.get(path))["failed"] == 1
    assert (await program.call("POST", f"{path}/retry")).json()["status"] == "queuing"
    sent = {"held": "maybe"}
    assert problem(await program.call("POST", f"{path}/decide", sent), 422)["field"] == "held"


@pytest.mark.parametrize("decision", ["send-again", "count-as-sent"])
async def test_a_decision_on_the_held_is_taken(program: Program, decision: str) -> None:
    ref = await going_out(program, 2)
    await with_states(program.storage.tables, ref, 0, "sh")
    response = await program.call("POST", f"/messages/{ref}/decide", {"held": decision})
    assert (response.status_code, response.json()["status"]) == (200, "queuing")
    message = await messages.read(program.storage.tables, ref)
    assert message.revive == {"send-again": "held", "count-as-sent": "held-as-sent"}[decision]


# --- Outcomes -----------------------------------------------------------------------------------


async def test_outcomes_come_page_by_page_over_all_batches(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipient_outcomes, "BATCHES_A_PAGE", 2)
    ref = await going_out(program, 250)
    everyone = [f"student{number:03d}@contoso.edu" for number in range(250)]
    for limit in (7, 99, 200):
        found = await program.pages(f"/messages/{ref}/outcomes?limit={limit}")
        assert [one["address"] for one in found] == everyone
    assert {one["outcome"] for one in found} == {"queued"}
    books = await program.get(f"/messages/{ref}")
    assert (books["audience"], books["queued"]) == (250, 250)


async def test_outcomes_of_one_kind_are_found_in_any_batch(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipient_outcomes, "GROUPS_A_PAGE", 1)
    for module in (recipient_outcomes, batches, fan_out):
        monkeypatch.setattr(module, "GROUP_BATCHES", 1)
    ref = await going_out(program, 250)
    await with_states(program.storage.tables, ref, 0, "h" + "q" * 98)
    await with_states(program.storage.tables, ref, 2, "q" * 51 + "h")
    path = f"/messages/{ref}/outcomes"
    held = await program.pages(f"{path}?outcome=held")
    assert [one["address"][7:10] for one in held] == ["000", "249"]
    assert await program.pages(f"{path}?outcome=failed") == []
    assert len(await program.pages(f"{path}?outcome=queued")) == 248
    assert problem(await program.call("GET", f"{path}?outcome=lost"), 422)["field"] == "outcome"


async def test_a_message_that_was_edited_is_sent_as_edited(program: Program) -> None:
    """What the sender reads is the edition that the row names."""
    ref = (await program.make("/messages", DRAFT | {"at": LATER}))["ref"]
    await program.call("PATCH", f"/messages/{ref}", {"text": "Edited"}, if_match="*")
    program.clock.move(timedelta(days=30).total_seconds())
    await fanned_out(program, ref)
    message = await messages.read(program.storage.tables, ref)
    assert await bodies.load(program.storage.blobs, message) == (None, "Edited")
