"""/lists/{name}/subscribers: people by address, found by prefix, moved without a trace lost."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from postroom.domain.address import parse_address
from postroom.domain.consent import Event
from postroom.domain.subscriber import SubscriberFilter
from postroom.flow import subscribe
from postroom.records import consents, counts, subscribers
from postroom.records.names import SINGLE_MAIL_QUEUE
from postroom.storage.port import Conflict, Unavailable
from tests.acting import acting
from tests.clock import START
from tests.web.program import ADA, BOB, Program, problem

PEOPLE = "/lists/contoso1/subscribers"
ESCAPED = ["jürgen@contoso.edu", "a/b@contoso.edu", "a~b@contoso.edu"]  # in keys of storage


async def guid_of(program: Program, address: str, list_name: str = "contoso1") -> str:
    key = parse_address(address).storage_key
    found = await subscribers.find(program.storage.tables, list_name, key)
    assert found
    return found[0].guid


async def test_somebody_is_added_and_shown(program: Program) -> None:
    sent = {"address": "Ada@contoso.edu", "verified": True, "attributes": {"name": "Ada"}}
    response = await program.call("POST", PEOPLE, sent)
    assert response.status_code == 201
    assert response.headers["location"] == "/api/v1" + PEOPLE + "/Ada@contoso.edu"
    shown = await program.call("GET", response.headers["location"])
    assert (shown.json(), shown.headers["etag"]) == (response.json(), response.headers["etag"])
    assert shown.json() == {
        "list": "contoso1",
        "address": "Ada@contoso.edu",
        "status": "verified",
        "verified": True,
        "since": "2026-11-15T09:00:00Z",
        "attributes": {"name": "Ada"},
    }
    assert await program.get(f"{PEOPLE}/ADA@contoso.edu") == shown.json()


async def test_nobody_is_mailed_by_an_addition_and_its_record_names_the_key(
    program: Program,
) -> None:
    await program.make(PEOPLE, {"address": ADA})
    assert await program.storage.queues.length(SINGLE_MAIL_QUEUE) == 0
    [added] = (await consents.history(program.storage.tables, "contoso1", ADA)).events
    assert (added.event, added.source.kind) == (Event.ADDED, "key")


async def test_who_has_not_confirmed_is_asked_once_a_day(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    asked = await program.call("POST", f"{PEOPLE}/{ADA}/ask")
    assert (asked.status_code, asked.json()) == (202, {"status": "accepted"})
    again = problem(await program.call("POST", f"{PEOPLE}/{ADA}/ask"), 409)
    assert "in the last 24 hours" in again["detail"]
    assert await program.storage.queues.length(SINGLE_MAIL_QUEUE) == 1
    events = (await consents.history(program.storage.tables, "contoso1", ADA)).events
    assert [each.event for each in events] == [Event.ADDED, Event.INVITED]


async def test_who_confirmed_or_was_never_there_is_not_asked(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA, "verified": True})
    problem(await program.call("POST", f"{PEOPLE}/{ADA}/ask"), 409)
    problem(await program.call("POST", f"{PEOPLE}/{BOB}/ask"), 404)
    assert await program.storage.queues.length(SINGLE_MAIL_QUEUE) == 0


async def test_no_answer_shows_a_guid(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    guid = await guid_of(program, ADA)
    for path in (PEOPLE, f"{PEOPLE}/{ADA}"):
        assert guid not in (await program.call("GET", path)).text


async def test_who_is_there_is_not_added_twice(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    problem(await program.call("POST", PEOPLE, {"address": ADA.upper()}), 409)


async def test_people_who_unsubscribed_are_added_again_only_on_request(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA, "verified": True})
    await subscribe.leave(acting(program.storage, START), "contoso1", await guid_of(program, ADA))
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "unsubscribed"
    refused = problem(await program.call("POST", PEOPLE, {"address": ADA}), 409)
    assert (refused["field"], "bring_back" in refused["detail"]) == ("bring_back", True)
    await program.make(PEOPLE, {"address": ADA, "bring_back": True})
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "unverified"


@pytest.mark.parametrize(
    "address", ["o'hara+x@contoso.edu", "a/b?c#d@contoso.edu", "ß%@contoso.edu"]
)
async def test_an_address_is_in_the_path_percent_encoded(program: Program, address: str) -> None:
    await program.make(PEOPLE, {"address": address})
    path = f"{PEOPLE}/{quote(address, safe='')}"
    assert (await program.get(path))["address"] == address
    assert (await program.call("DELETE", path, if_match="*")).status_code == 204


@pytest.mark.parametrize("address", ["nobody", "%00@contoso.edu", "a@b", "x" * 900])
async def test_what_is_no_address_is_refused(program: Program, address: str) -> None:
    problem(await program.call("GET", f"{PEOPLE}/{address}"), 422)


async def test_somebody_who_was_never_there_is_not_found(program: Program) -> None:
    path = f"{PEOPLE}/{ADA}"
    problem(await program.call("GET", path), 404)
    problem(await program.call("PATCH", path, {}, if_match="*"), 404)
    problem(await program.call("DELETE", path, if_match="*"), 404)


# --- Finding ------------------------------------------------------------------------------------


async def test_people_come_page_by_page_and_by_prefix(program: Program) -> None:
    names = ["ada", "adam", "bob", "bobby", "carol"]
    for name in reversed(names):
        await program.make(PEOPLE, {"address": f"{name}@contoso.edu"})
    everyone = [f"{name}@contoso.edu" for name in names]
    assert [one["address"] for one in await program.pages(f"{PEOPLE}?limit=2")] == everyone
    found = await program.pages(f"{PEOPLE}?limit=1&address_prefix=ADA")
    assert [one["address"] for one in found] == everyone[:2]
    assert await program.pages(f"{PEOPLE}?address_prefix=zoe") == []
    problem(await program.call("GET", f"{PEOPLE}?address_prefix={'é' * 300}"), 422)


async def test_people_are_found_by_how_they_stand(program: Program) -> None:
    for name, verified in (("ada", True), ("bob", False), ("eve", True), ("mia", False)):
        sent = {"address": f"{name}@contoso.edu", "verified": verified}
        await program.make(PEOPLE, sent)
    await program.call("DELETE", f"{PEOPLE}/eve@contoso.edu", if_match="*")
    status = {"verified": ["ada"], "unverified": ["bob", "mia"], "inactive": ["eve"]}
    status |= {"active": ["ada", "bob", "mia"], "all": ["ada", "bob", "eve", "mia"]}
    for word, names in status.items():
        found = await program.pages(f"{PEOPLE}?status={word}&limit=1")
        assert [one["address"].partition("@")[0] for one in found] == names
    assert problem(await program.call("GET", f"{PEOPLE}?status=x"), 422)["field"] == "status"


# --- Changing -----------------------------------------------------------------------------------


async def test_a_change_needs_the_version_it_means(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    path = f"{PEOPLE}/{ADA}"
    problem(await program.call("PATCH", path, {"verified": True}), 428)
    problem(await program.call("DELETE", path), 428)
    seen = await program.etag(path)
    changed = await program.call("PATCH", path, {"verified": True}, if_match=seen)
    assert changed.json()["status"] == "verified"
    for method in ("PATCH", "DELETE"):
        late = await program.call(method, path, {} if method == "PATCH" else None, if_match=seen)
        assert problem(late, 412)["current"] == changed.json()


async def test_what_is_not_named_stays(program: Program) -> None:
    sent = {"address": ADA, "verified": True, "attributes": {"name": "Ada", "town": "London"}}
    made = await program.make(PEOPLE, sent)
    path = f"{PEOPLE}/{ADA}"
    same = await program.call("PATCH", path, {}, if_match="*")
    assert same.json() == made
    changed = await program.call("PATCH", path, {"attributes": {"name": "A."}}, if_match="*")
    assert changed.json() == made | {"attributes": {"name": "A."}}


async def test_who_is_gone_cannot_be_changed(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    path = f"{PEOPLE}/{ADA}"
    assert (await program.call("DELETE", path, if_match="*")).status_code == 204
    assert (await program.get(path))["status"] == "removed"
    problem(await program.call("PATCH", path, {"verified": True}, if_match="*"), 409)
    problem(await program.call("DELETE", path, if_match="*"), 409)


async def test_another_spelling_is_no_move(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA, "verified": True})
    guid = await guid_of(program, ADA)
    sent = {"address": ADA.title()}
    changed = await program.call("PATCH", f"{PEOPLE}/{ADA}", sent, if_match="*")
    assert changed.json()["address"] == parse_address(ADA.title()).typed
    assert await guid_of(program, ADA) == guid
    assert len(await program.pages(PEOPLE)) == 1


async def test_a_new_address_keeps_old_links_and_leaves_the_old_one_gone(program: Program) -> None:
    sent = {"address": ADA, "verified": True, "attributes": {"name": "Ada"}}
    await program.make(PEOPLE, sent)
    guid = await guid_of(program, ADA)
    moved = await program.call("PATCH", f"{PEOPLE}/{ADA}", {"address": BOB}, if_match="*")
    assert moved.headers["location"] == f"/api/v1{PEOPLE}/{BOB}"
    assert moved.json() == sent | {"address": BOB, "list": "contoso1", "status": "verified",
                                   "since": "2026-11-15T09:00:00Z"}  # fmt: skip
    old = await program.get(f"{PEOPLE}/{ADA}")
    assert (old["status"], old["attributes"]) == ("removed", {})
    linked = await subscribers.find_linked(program.storage.tables, "contoso1", guid)
    assert linked.there is not None
    assert linked.there[0].address == BOB
    counted = await counts.read(program.storage.tables, "contoso1")
    assert (counted.verified, counted.inactive) == (1, 1)


async def test_the_record_of_either_address_tells_of_the_other(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    await program.call("PATCH", f"{PEOPLE}/{ADA}", {"address": BOB}, if_match="*")
    tables = program.storage.tables
    [_, removed] = (await consents.history(tables, "contoso1", ADA)).events
    [added] = (await consents.history(tables, "contoso1", BOB)).events
    assert (removed.event, added.event) == (Event.REMOVED, Event.ADDED)
    assert (removed.source.new_address, added.source.old_address) == (BOB, ADA)


async def test_an_address_that_is_taken_is_not_overwritten(program: Program) -> None:
    for address in (ADA, BOB):
        await program.make(PEOPLE, {"address": address, "attributes": {"name": address[:3]}})
    path = f"{PEOPLE}/{ADA}"
    problem(await program.call("PATCH", path, {"address": BOB}, if_match="*"), 409)
    await program.call("DELETE", f"{PEOPLE}/{BOB}", if_match="*")
    problem(await program.call("PATCH", path, {"address": BOB}, if_match="*"), 409)
    sent: dict[str, Any] = {"address": BOB, "bring_back": True}
    assert (await program.call("PATCH", path, sent, if_match="*")).status_code == 200
    assert (await program.get(f"{PEOPLE}/{BOB}"))["attributes"] == {"name": "ada"}
    counted = await counts.read(program.storage.tables, "contoso1")
    assert (counted.unverified, counted.inactive) == (1, 1)


async def test_somebody_goes_over_to_another_list_under_a_new_guid(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA, "verified": True})
    guid = await guid_of(program, ADA)
    moved = await program.call("PATCH", f"{PEOPLE}/{ADA}", {"list": "contoso2"}, if_match="*")
    there = f"/api/v1/lists/contoso2/subscribers/{ADA}"
    assert (moved.status_code, moved.headers["location"]) == (200, there)
    assert (await program.get(there))["status"] == "verified"
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "removed"
    assert await guid_of(program, ADA, "contoso2") != guid


async def test_a_move_that_died_between_the_lists_is_finished_by_repeating_it(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    await program.make(PEOPLE, {"address": ADA, "verified": True})

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(subscribers, "leave", fail)
        half = await program.call("PATCH", f"{PEOPLE}/{ADA}", {"list": "contoso2"}, if_match="*")
        problem(half, 503)
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "verified"
    guid = await guid_of(program, ADA, "contoso2")
    again = await program.call("PATCH", f"{PEOPLE}/{ADA}", {"list": "contoso2"}, if_match="*")
    assert again.status_code == 200
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "removed"
    assert await guid_of(program, ADA, "contoso2") == guid


async def test_nobody_goes_over_to_a_list_that_is_not_there(program: Program) -> None:
    await program.make(PEOPLE, {"address": ADA})
    problem(await program.call("PATCH", f"{PEOPLE}/{ADA}", {"list": "nolist"}, if_match="*"), 404)
    assert (await program.get(f"{PEOPLE}/{ADA}"))["status"] == "unverified"


@pytest.mark.parametrize(
    ("step", "path", "sent"),
    [
        ("add", PEOPLE, {"address": ADA}),
        ("sign_up", "/subscribe", {"list": "contoso1", "email": ADA}),
    ],
)
async def test_somebody_else_who_was_faster_is_no_failure_of_storage(
    program: Program, monkeypatch: pytest.MonkeyPatch, step: str, path: str, sent: dict[str, str]
) -> None:
    async def lose(*_: object, **__: object) -> None:
        raise Conflict("row of ada in place 7")

    monkeypatch.setattr(subscribe, step, lose)
    told = problem(await program.call("POST", path, sent), 409)
    assert "same time" in told["detail"]
    assert "ada" not in told["detail"]


def path_of(address: str) -> str:
    return f"{PEOPLE}/{quote(address, safe='@')}"


@pytest.mark.parametrize("address", ESCAPED)
async def test_who_is_changed_stays_who_they_are(program: Program, address: str) -> None:
    await program.make(PEOPLE, {"address": address, "verified": True})
    change = {"attributes": {"name": "Ada"}}
    response = await program.call("PATCH", path_of(address), change, if_match="*")
    assert response.status_code == 200, response.text
    shown = await program.get(path_of(address))
    assert (shown["status"], shown["attributes"]) == ("verified", {"name": "Ada"})


@pytest.mark.parametrize("address", ESCAPED)
async def test_nobody_is_on_a_list_twice_after_a_change(program: Program, address: str) -> None:
    await program.make(PEOPLE, {"address": address, "verified": True})
    await program.call("PATCH", path_of(address), {"attributes": {"a": "b"}}, if_match="*")
    await program.call("POST", PEOPLE, {"address": address, "verified": True, "bring_back": True})
    there = [
        one.address
        async for one in subscribers.everyone(
            program.storage.tables, "contoso1", SubscriberFilter.VERIFIED
        )
    ]
    assert there == [address]


@pytest.mark.parametrize("address", ESCAPED)
async def test_who_moves_to_such_an_address_is_shown_there(program: Program, address: str) -> None:
    await program.make(PEOPLE, {"address": "x@contoso.edu", "verified": True})
    before, change = path_of("x@contoso.edu"), {"address": address}
    response = await program.call("PATCH", before, change, if_match="*")
    assert response.status_code == 200, response.text
    assert response.json()["address"] == address
    problem(await program.call("POST", PEOPLE, {"address": address}), 409)
