"""/api/v1/suppressions: look up, explain, add, remove."""

from __future__ import annotations

import pytest

from postroom.actions import manage_suppressions
from postroom.domain.address import parse_address
from postroom.domain.delivery_token import delivery_tokens
from postroom.domain.suppression import Suppression, SuppressionReason, SuppressionScope
from postroom.records import suppressions
from tests.acting import acting
from tests.clock import START
from tests.web.program import ADA, BOB, Program, problem

HERE = f"/suppressions/{ADA}"


async def test_an_address_is_suppressed_widened_and_removed(program: Program) -> None:
    problem(await program.call("GET", HERE), 404)
    answer = await program.call("PUT", HERE, {"note": "by  phone"})
    assert answer.status_code == 200
    entry = answer.json()
    assert (entry["scope"], entry["reason"], entry["note"]) == ("bulk", "added", "by phone")
    assert entry["source"].startswith("key ")
    assert (entry["message"], entry["sent_at"], entry["confirmation"]) == ("", None, False)
    await program.call("PUT", HERE, {"scope": "all"})
    narrower = (await program.call("PUT", HERE, {"scope": "list", "lists": ["contoso1"]})).json()
    assert (narrower["scope"], narrower["lists"]) == ("all", [])
    problem(await program.call("DELETE", HERE), 428)
    problem(await program.call("DELETE", HERE, if_match=answer.headers["etag"]), 412)
    assert (
        await program.call("DELETE", HERE, if_match=await program.etag(HERE))
    ).status_code == 204
    problem(await program.call("DELETE", HERE, if_match="*"), 404)


async def test_an_entry_names_its_message_and_the_words_of_the_server(program: Program) -> None:
    made = {"list": "contoso1", "subject": "New lectures", "text": "x"}
    ref = (await program.make("/messages", made))["ref"]
    entry = Suppression(
        key=ADA,
        address=ADA,
        scope=SuppressionScope.ALL,
        reason=SuppressionReason.DEAD,
        since=START,
        source="smtp",
        delivery=delivery_tokens(b"s", ref, 0, [0])[0],
        words="550 5.1.1 No such user",
    )
    await suppressions.put(program.storage.tables, "s", ADA, entry, START)
    shown = await program.get(HERE)
    assert (shown["message"], shown["subject"]) == (ref, "New lectures")
    assert shown["words"] == "550 5.1.1 No such user"


async def test_they_come_page_by_page_without_erased_people(program: Program) -> None:
    addresses = [f"student{number:02}@contoso.edu" for number in range(25)]
    for address in [*addresses, "müller@contoso.edu"]:
        await program.call("PUT", f"/suppressions/{address}", {})
    act = acting(program.storage, START)
    await manage_suppressions.erase(act, "s", parse_address(BOB))
    shown = [each["address"] for each in await program.pages("/suppressions?limit=10")]
    assert sorted(shown) == sorted([*addresses, "müller@contoso.edu"])
    found = await program.get("/suppressions?address_prefix=student0")
    assert [each["address"] for each in found["items"]] == addresses[:10]
    erased = await program.get(f"/suppressions/{BOB}")
    assert (erased["address"], erased["reason"]) == (BOB, "erased")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"scope": "most"}, 422, "list"),
        ({"scope": "list"}, 422, "at least one list"),
        ({"lists": ["contoso1"]}, 422, "only with the scope"),
        ({"scope": "list", "lists": ["nolist"]}, 404, "no list nolist"),
        ({"note": "x" * 501}, 422, "500"),
        ({"reason": "dead"}, 422, "unknown"),
    ],
)
async def test_a_wrong_call_is_refused_in_words(
    program: Program, body: dict[str, object], status: int, words: str
) -> None:
    assert words in problem(await program.call("PUT", HERE, body), status)["detail"]
    problem(await program.call("GET", HERE), 404)


async def test_a_key_for_some_lists_sees_and_changes_nothing(program: Program) -> None:
    key = await program.new_key("contoso1")
    for method, path, body in (
        ("GET", "/suppressions", None),
        ("GET", HERE, None),
        ("PUT", HERE, {}),
        ("DELETE", HERE, None),
    ):
        problem(await program.call(method, path, body, key=key, if_match="*"), 403)
