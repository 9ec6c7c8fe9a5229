"""One subscriber on the admin pages: changed by one person at a time, never lost on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.confirmation import after_attempt
from postroom.domain.outcome import Deferred, Outcome, Rejected
from postroom.domain.retry import RetryRules
from postroom.domain.subscriber import InactiveReason
from postroom.domain.user import Role
from postroom.records import consents, subscribers
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import (
    NEW,
    SECOND,
    etag_of,
    join,
    leave,
    path_of,
    second_list,
    stored,
)
from tests.web.signed_in import Worker, at_work, notice_in, sign_in_as


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


async def test_a_persons_page_is_found_by_a_seal_and_while_they_are_there_by_their_guid(
    editor: Worker,
) -> None:
    one = await join(editor, ADDRESS)
    path = await path_of(editor, ADDRESS)
    assert "student1" not in path
    assert one.guid not in path
    by_guid = f"/admin/subscribers/{LIST}/{one.guid}"
    assert (await editor.get(path)).status_code == 200
    assert (await editor.get(by_guid)).status_code == 200
    await leave(editor, one)
    assert (await editor.get(path)).status_code == 200
    assert (await editor.get(by_guid)).status_code == 404
    broken = path[:-2] + ("AA" if not path.endswith("AA") else "BB")
    assert (await editor.get(broken)).status_code == 404
    assert (await editor.get(f"/admin/subscribers/{LIST}/{'0' * 32}")).status_code == 404


async def test_a_seal_of_one_list_opens_nothing_on_another(editor: Worker) -> None:
    await second_list(editor)
    await join(editor, ADDRESS)
    await join(editor, ADDRESS, name=SECOND)
    path = await path_of(editor, ADDRESS)
    assert (await editor.get(path.replace(LIST, SECOND))).status_code == 404


async def test_a_page_that_shows_not_the_whole_record_says_so(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consents, "EVENTS_SHOWN_MAX", 1)
    one = await join(editor, ADDRESS)
    path = await path_of(editor, ADDRESS)
    assert "Older ones are kept in storage" not in (await editor.get(path)).text
    await leave(editor, one)
    assert "Older ones are kept in storage" in (await editor.get(path)).text


async def edit_form(editor: Worker, address: str) -> tuple[str, dict[str, str]]:
    """The path of the form, and its fields as they stand."""
    one = await stored(editor, address)
    assert one
    path = await path_of(editor, one.address) + "/edit"
    page = (await editor.get(path)).text
    fields = {
        "address": one.address,
        "list": one.list_name,
        "attributes": "\n".join(f"{name}={value}" for name, value in one.attributes.items()),
        "etag": etag_of(page),
    }
    return path, fields | ({"verified": "yes"} if one.verified else {})


async def test_somebody_is_verified_by_hand_and_the_record_says_who_did_it(editor: Worker) -> None:
    await join(editor, ADDRESS, verified=False)
    path, fields = await edit_form(editor, ADDRESS)
    answer = await editor.post(path, **fields | {"verified": "yes", "attributes": "city=Bonn"})
    page = (await editor.get(answer.headers["location"])).text
    assert "Saved." in page
    assert "confirmed" in page
    changed = await stored(editor, ADDRESS)
    assert changed
    assert (changed.verified, changed.attributes) == (True, {"city": "Bonn"})


async def test_another_spelling_is_the_same_person(editor: Worker) -> None:
    one = await join(editor, ADDRESS)
    path, fields = await edit_form(editor, ADDRESS)
    answer = await editor.post(path, **fields | {"address": "Student1@contoso.edu"})
    assert answer.status_code == 303
    changed = await stored(editor, ADDRESS)
    assert changed
    assert (changed.address, changed.guid) == ("Student1@contoso.edu", one.guid)


async def test_another_address_takes_the_place_of_the_old_one(editor: Worker) -> None:
    await join(editor, ADDRESS, city="Köln")
    path, fields = await edit_form(editor, ADDRESS)
    answer = await editor.post(path, **fields | {"address": "ada@contoso.edu"})
    assert answer.status_code == 303
    assert "ada@contoso.edu" in (await editor.get(answer.headers["location"])).text
    moved, old = await stored(editor, "ada@contoso.edu"), await stored(editor, ADDRESS)
    assert moved
    assert old
    assert (moved.attributes, moved.inactive_reason) == ({"city": "Köln"}, None)
    assert old.inactive_reason is InactiveReason.REMOVED


async def test_a_move_to_another_list_leaves_the_old_one(editor: Worker) -> None:
    await second_list(editor)
    await join(editor, ADDRESS)
    path, fields = await edit_form(editor, ADDRESS)
    answer = await editor.post(path, **fields | {"list": SECOND})
    assert answer.headers["location"].startswith(f"/admin/subscribers/{SECOND}/")
    old, new = await stored(editor, ADDRESS), await stored(editor, ADDRESS, SECOND)
    assert old
    assert new
    assert (old.inactive_reason, new.inactive_reason) == (InactiveReason.REMOVED, None)


async def test_an_address_that_somebody_has_cannot_be_taken(editor: Worker) -> None:
    await join(editor, ADDRESS)
    await join(editor, "ada@contoso.edu")
    path, fields = await edit_form(editor, ADDRESS)
    answer = await editor.post(
        path, **fields | {"address": "ada@contoso.edu", "attributes": "city=Bonn"}
    )
    assert answer.status_code == 409
    assert "is already on" in answer.text
    assert "city=Bonn" in answer.text


async def test_an_address_that_left_is_taken_only_by_the_tick(editor: Worker) -> None:
    await join(editor, ADDRESS)
    await leave(editor, await join(editor, "ada@contoso.edu"))
    path, fields = await edit_form(editor, ADDRESS)
    wanted = fields | {"address": "ada@contoso.edu"}
    answer = await editor.post(path, **wanted)
    assert answer.status_code == 409
    assert 'name="bring_back"' in answer.text
    assert (await editor.post(path, **wanted, bring_back="yes")).status_code == 303
    back = await stored(editor, "ada@contoso.edu")
    assert back
    assert back.inactive_reason is None


async def test_of_two_who_edit_one_person_the_second_sees_both_versions(editor: Worker) -> None:
    await join(editor, ADDRESS, city="Köln")
    path, fields = await edit_form(editor, ADDRESS)
    first = await editor.post(path, **fields | {"attributes": "city=Bonn"})
    assert first.status_code == 303
    second = await editor.post(path, **fields | {"attributes": "city=Mainz"})
    assert second.status_code == 409
    assert "Somebody else changed this" in second.text
    assert "city=Mainz" in second.text
    assert "city=Bonn" in second.text
    kept = await stored(editor, ADDRESS)
    assert kept
    assert kept.attributes == {"city": "Bonn"}
    again = fields | {"attributes": "city=Mainz", "etag": etag_of(second.text)}
    assert (await editor.post(path, **again)).status_code == 303


async def test_a_move_from_a_stale_form_changes_nothing(editor: Worker) -> None:
    await join(editor, ADDRESS)
    path, fields = await edit_form(editor, ADDRESS)
    await editor.post(path, **fields | {"attributes": "city=Bonn"})
    answer = await editor.post(path, **fields | {"address": "ada@contoso.edu"})
    assert answer.status_code == 409
    assert await stored(editor, "ada@contoso.edu") is None


async def test_an_edit_of_somebody_who_unsubscribed_meanwhile_loses_nothing_typed(
    editor: Worker,
) -> None:
    one = await join(editor, ADDRESS)
    path, fields = await edit_form(editor, ADDRESS)
    await leave(editor, one)
    answer = await editor.post(path, **fields | {"attributes": "city=Bonn"})
    assert answer.status_code == 409
    assert "They unsubscribed in the meantime" in answer.text
    assert "city=Bonn" in answer.text
    assert (await editor.get(path)).status_code == 404


async def test_a_removal_asks_first_and_is_noted(editor: Worker) -> None:
    await join(editor, ADDRESS)
    path = await path_of(editor, ADDRESS)
    assert "Remove subscriber" in (await editor.get(f"{path}/remove")).text
    kept = await stored(editor, ADDRESS)
    assert kept
    assert kept.inactive_reason is None
    answer = await editor.post(f"{path}/remove")
    assert (answer.headers["location"], notice_in(answer)) == (path, "removed")
    page = (await editor.get(path)).text
    assert "They receive no emails" in page
    assert "user editor@contoso.edu" in page
    again = await editor.post(f"{path}/remove")  # who is gone stays gone
    assert again.status_code == 303


async def test_a_viewer_looks_and_changes_nothing(editor: Worker) -> None:
    await join(editor, ADDRESS)
    viewer = await sign_in_as(editor.office, Role.VIEWER)
    path = await path_of(viewer, ADDRESS)
    page = (await viewer.get(path)).text
    assert ADDRESS in page
    assert "/edit" not in page
    assert "Add subscriber" not in (await viewer.get("/admin/subscribers", list=LIST)).text
    for each in (f"{path}/edit", f"{path}/remove", NEW):
        assert (await viewer.get(each)).status_code == 403
        assert (await viewer.post(each)).status_code == 403
    await viewer.browser.aclose()


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (Rejected("550 5.1.1 no such user"), "was refused on"),
        (Deferred("450 4.2.0 greylisted"), "has not been accepted yet"),
    ],
)
async def test_a_persons_page_tells_what_became_of_the_confirmation_email(
    editor: Worker, outcome: Outcome, sentence: str
) -> None:
    await join(editor, ADDRESS, verified=False)
    page = (await editor.get(await path_of(editor, ADDRESS))).text
    assert "The confirmation email" not in page
    tables, key = editor.office.storage.tables, parse_address(ADDRESS).storage_key
    found = await subscribers.find(tables, LIST, key)
    assert found
    attempts = after_attempt(outcome, None, rules=RetryRules(), now=NOW)
    tried = msgspec.structs.replace(found[0], confirmation=attempts)
    await subscribers.replace(tables, found[0], tried, found[1])
    page = (await editor.get(await path_of(editor, ADDRESS))).text
    assert sentence in page
    assert outcome.words in page
    assert NOW.strftime("%Y-%m-%d %H:%M UTC") in page
