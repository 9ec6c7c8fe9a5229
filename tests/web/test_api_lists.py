"""/lists: made once, changed only by who saw what stands there, deleted in the background."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from postroom.flow import sweep
from postroom.records import lists
from tests.web.program import ADA, BOB, Program, problem

NEWS: dict[str, Any] = {
    "name": "news",
    "from": "News <news@contoso.edu>",
    "description": "All the news",
}


async def test_a_list_is_made_and_shown(program: Program) -> None:
    response = await program.call("POST", "/lists", NEWS)
    assert (response.status_code, response.headers["location"]) == (201, "/api/v1/lists/news")
    shown = await program.call("GET", "/lists/news")
    nobody = {"people": {"verified": 0, "unverified": 0, "inactive": 0}}
    assert shown.json() == response.json() | nobody
    assert NEWS.items() <= shown.json().items()
    assert shown.headers["etag"] == response.headers["etag"]


async def test_a_name_that_is_taken_is_refused(program: Program) -> None:
    assert "already" in problem(await program.call("POST", "/lists", NEWS | {"name": "contoso1"}),
                                409)["detail"]  # fmt: skip


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"name": "a b"}, "name"),
        ({"from": "nobody"}, "from"),
        ({"from": None}, "from"),
        ({"description": "two\nlines"}, "description"),
        ({"postal_address": "x" * 301}, "postal_address"),
        ({"public_form": "yes"}, "public_form"),
        ({"public_form": None}, "public_form"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_is_wrong_with_a_new_list_is_named(
    program: Program, members: dict[str, Any], wrong: str
) -> None:
    assert problem(await program.call("POST", "/lists", NEWS | members), 422)["field"] == wrong
    problem(await program.call("GET", "/lists/news"), 404)


async def test_lists_come_page_by_page_in_order(program: Program) -> None:
    for number in range(5):
        await program.make("/lists", NEWS | {"name": f"list{number}"})
    names = [each["name"] for each in await program.pages("/lists?limit=2")]
    assert names == ["contoso1", "contoso2", *(f"list{number}" for number in range(5))]


async def test_a_change_needs_the_version_it_means(program: Program) -> None:
    refused = problem(await program.call("PATCH", "/lists/contoso1", {"description": "x"}), 428)
    assert "If-Match" in refused["detail"]
    problem(await program.call("DELETE", "/lists/contoso1"), 428)


async def test_who_saw_an_older_version_is_shown_the_current_one(program: Program) -> None:
    path = "/lists/contoso1"
    seen = await program.etag(path)
    first = await program.call("PATCH", path, {"description": "First"}, if_match=seen)
    assert (first.status_code, first.json()["description"]) == (200, "First")
    late = await program.call("PATCH", path, {"description": "Second"}, if_match=seen)
    assert problem(late, 412)["current"] == first.json()
    assert late.headers["etag"] == first.headers["etag"]
    problem(await program.call("DELETE", path, if_match=seen), 412)
    again = await program.call(
        "PATCH", path, {"from": "b@contoso.edu"}, if_match=late.headers["etag"]
    )
    assert (again.json()["description"], again.json()["from"]) == ("First", "b@contoso.edu")


async def test_a_list_is_shown_with_its_counts(program: Program) -> None:
    for address, verified in ((ADA, True), (BOB, False)):
        await program.make(
            "/lists/contoso1/subscribers", {"address": address, "verified": verified}
        )
    people = (await program.get("/lists/contoso1"))["people"]
    assert people == {"verified": 1, "unverified": 1, "inactive": 0}


async def test_a_public_form_is_opened_and_closed(program: Program) -> None:
    for is_open in (True, False):
        sent = {"public_form": is_open}
        changed = await program.call("PATCH", "/lists/contoso1", sent, if_match="*")
        assert changed.json()["public_form"] is is_open
        # What is not named stays as it is.
        renamed = await program.call("PATCH", "/lists/contoso1", {"description": "x"}, if_match="*")
        assert renamed.json()["public_form"] is is_open


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_list_is_made_with_a_public_form_or_without(
    program: Program, is_open: bool
) -> None:
    made = await program.call("POST", "/lists", NEWS | {"public_form": is_open})
    assert made.json()["public_form"] is is_open
    assert (await program.get("/lists/news"))["public_form"] is is_open


@pytest.mark.parametrize("named", ["*", '"other", {}', ' {} , "x"'])
async def test_if_match_takes_every_form_of_the_standard(program: Program, named: str) -> None:
    tag = await program.etag("/lists/contoso1")
    body = {"description": "x"}
    response = await program.call("PATCH", "/lists/contoso1", body, if_match=named.format(tag))
    assert response.status_code == 200


@pytest.mark.parametrize("named", ["", "W/{}", "{}x", '"x"', "rubbish"])
async def test_if_match_of_another_version_changes_nothing(program: Program, named: str) -> None:
    tag = await program.etag("/lists/contoso1")
    body = {"description": "x"}
    named = named.format(tag.strip('"') if named.startswith("{") else tag)
    problem(await program.call("PATCH", "/lists/contoso1", body, if_match=named), 412)
    assert await program.etag("/lists/contoso1") == tag


async def test_who_loses_a_race_is_told_who_won(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = lists.replace

    async def overtaken(tables: Any, edited: Any, etag: str) -> str:
        monkeypatch.setattr(lists, "replace", replace)
        other = await program.call("PATCH", "/lists/contoso1", {"description": "won"}, if_match="*")
        assert other.status_code == 200
        return await replace(tables, edited, etag)

    monkeypatch.setattr(lists, "replace", overtaken)
    late = await program.call("PATCH", "/lists/contoso1", {"description": "lost"}, if_match="*")
    assert problem(late, 412)["current"]["description"] == "won"


async def test_a_deleted_list_is_gone_at_once_and_swept_to_the_last_row(program: Program) -> None:
    await program.make("/lists/contoso1/subscribers", {"address": ADA})
    response = await program.call("DELETE", "/lists/contoso1", if_match="*")
    assert (response.status_code, response.json()) == (202, {"status": "deleting"})
    problem(await program.call("GET", "/lists/contoso1"), 404)
    problem(await program.call("GET", "/lists/contoso1/subscribers"), 404)
    assert [each["name"] for each in await program.pages("/lists")] == ["contoso2"]
    await sweep.finish_deletions(program.storage.tables)
    await program.make("/lists", NEWS | {"name": "contoso1"})
    assert await program.pages("/lists/contoso1/subscribers") == []


@pytest.mark.parametrize("name", ["nolist", "-lists", "a%20b", "%00", "é", "x" * 400])
async def test_a_list_that_is_not_there_is_not_found(program: Program, name: str) -> None:
    problem(await program.call("GET", f"/lists/{name}"), 404)
    problem(await program.call("PATCH", f"/lists/{name}", {}, if_match="*"), 404)
    problem(await program.call("DELETE", f"/lists/{name}", if_match="*"), 404)


async def test_another_method_is_told_all_that_are_taken(program: Program) -> None:
    response = await program.call("PUT", "/lists/contoso1")
    problem(response, 405)
    assert response.headers["allow"] == "DELETE, GET, PATCH"


# --- Pages --------------------------------------------------------------------------------------

RUBBISH = ["", "x", "x.y", "é", "%00", "..", "a" * 3000, "Y29udG9zbzE.000000000000000000000000"]


@pytest.mark.parametrize("cursor", RUBBISH)
@pytest.mark.parametrize("path", ["/lists", "/lists/contoso1/subscribers", "/messages"])
async def test_a_cursor_that_is_not_ours_is_refused(
    program: Program, path: str, cursor: str
) -> None:
    problem(await program.call("GET", f"{path}?cursor={cursor}"), 422)


async def test_a_cursor_does_not_reveal_the_row_it_continues_after(program: Program) -> None:
    for address in (ADA, BOB):
        await program.make("/lists/contoso1/subscribers", {"address": address})
    cursor = (await program.get("/lists/contoso1/subscribers?limit=1"))["next"]
    assert b"contoso" not in base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


async def test_a_cursor_fits_only_where_it_was_given_out(program: Program) -> None:
    cursor = (await program.get("/lists?limit=1"))["next"]
    assert (await program.get(f"/lists?limit=1&cursor={cursor}"))["items"][0]["name"] == "contoso2"
    for path in ("/messages", "/lists/contoso1/subscribers"):
        problem(await program.call("GET", f"{path}?cursor={cursor}"), 422)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "limit=-1", "limit=", "limit=٣", "limit=1&limit=2"]
)
async def test_a_limit_out_of_bounds_is_refused(program: Program, query: str) -> None:
    assert problem(await program.call("GET", f"/lists?{query}"), 422)["field"] == "limit"


async def test_a_parameter_that_is_not_known_is_refused(program: Program) -> None:
    refused = problem(await program.call("GET", "/lists?status=gone"), 422)
    assert (refused["field"], "unknown" in refused["detail"]) == ("status", True)
