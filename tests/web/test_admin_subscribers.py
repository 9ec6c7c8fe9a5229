"""Subscribers on the admin pages: found by how they begin, added by name, exported whole."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, SubscriberFilter
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.records import lists, subscribers
from postroom.records.names import TABLES
from postroom.storage.memory import MemoryTables
from postroom.storage.port import Keys, Page, Properties
from tests.web.office import ADDRESS, LIST, NOW
from tests.web.people import (
    NEW,
    SECOND,
    join,
    leave,
    next_of,
    path_of,
    second_list,
    shown,
    stored,
)
from tests.web.signed_in import Worker, at_work


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


# --- Searching --------------------------------------------------------------------------------


async def test_people_are_found_by_how_their_address_begins(editor: Worker) -> None:
    for address in ("ada@contoso.edu", "Adam@contoso.edu", "bob@contoso.edu", "ädi@contoso.edu"):
        await join(editor, address)
    for typed, expected in [
        ("", ["ada@contoso.edu", "Adam@contoso.edu", "bob@contoso.edu", "ädi@contoso.edu"]),
        ("AD", ["ada@contoso.edu", "Adam@contoso.edu"]),
        ("ada@", ["ada@contoso.edu"]),
        ("ada@Cont", ["ada@contoso.edu"]),
        ("Ä", ["ädi@contoso.edu"]),
        ("contoso", []),
        ("\x00", []),
    ]:
        page = await editor.get("/admin/subscribers", list=LIST, q=typed)
        assert shown(page.text) == expected, typed


async def test_a_domain_in_another_script_is_found_while_it_is_typed(editor: Worker) -> None:
    await join(editor, "info@münchen.example")
    for typed in ("info@mün", "info@münchen.", "info@münchen.ex"):
        page = await editor.get("/admin/subscribers", list=LIST, q=typed)
        assert shown(page.text) == ["info@münchen.example"], typed


async def test_the_status_narrows_the_search(editor: Worker) -> None:
    await join(editor, "ada@contoso.edu")
    await join(editor, "bob@contoso.edu", verified=False)
    await leave(editor, await join(editor, "eve@contoso.edu"))
    for status, expected in [
        ("all", ["ada@contoso.edu", "bob@contoso.edu", "eve@contoso.edu"]),
        ("verified", ["ada@contoso.edu"]),
        ("unverified", ["bob@contoso.edu"]),
        ("inactive", ["eve@contoso.edu"]),
        ("nonsense", ["ada@contoso.edu", "bob@contoso.edu", "eve@contoso.edu"]),
    ]:
        page = await editor.get("/admin/subscribers", list=LIST, status=status)
        assert shown(page.text) == expected, status


async def test_pages_continue_by_key_and_no_address_is_in_a_link(editor: Worker) -> None:
    for number in range(120):
        await join(editor, f"student{number:03}@contoso.edu")
    path, found = f"/admin/subscribers?list={LIST}", list[str]()
    for _ in range(3):
        page = (await editor.get(path)).text
        found += shown(page)
        links = re.findall(r'href="([^"]+)"', page)
        assert not [link for link in links if "student" in link]
        path = next_of(page)
    assert found == [f"student{number:03}@contoso.edu" for number in range(120)]


class CountingTables(MemoryTables):
    rows = 0

    async def scan(
        self,
        table: str,
        keys: Keys,
        *,
        where: Properties | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page:
        page = await super().scan(table, keys, where=where, limit=limit, after=after)
        self.rows += len(page.rows)
        return page


async def test_a_rare_status_costs_no_more_than_a_common_one() -> None:
    tables = CountingTables(TABLES)
    mailing_list = MailingList(name=LIST, description="", sender="a@b.example", created_at=NOW)
    await lists.create(tables, mailing_list)
    for start in range(0, 7000, 49):
        people = [
            subscribe.new_subscriber(LIST, parse_address(f"s{n:05}@contoso.edu"), {}, True, NOW)
            for n in range(start, min(start + 49, 7000))
        ]
        await subscribers.join_together(tables, people, NOW)
    shelf = await subscribers.scan_people(tables, LIST, filter_=SubscriberFilter.INACTIVE, limit=50)
    assert (shelf.people, shelf.looked_at, shelf.next) == ([], 3000, "s02999@contoso.edu")
    assert tables.rows <= subscribers.ROWS_READ_MAX
    looks = 1
    while shelf.next:
        shelf = await subscribers.scan_people(
            tables, LIST, filter_=SubscriberFilter.INACTIVE, after=shelf.next, limit=50
        )
        looks += 1
    assert looks == 3


async def test_an_incomplete_search_is_marked_as_such(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "ROWS_READ_MAX", 2)
    monkeypatch.setattr(subscribers, "SCAN_ROWS_MAX", 2)
    for number in range(5):
        await join(editor, f"student{number}@contoso.edu")
    await leave(editor, await join(editor, "zoe@contoso.edu"))
    page = (await editor.get("/admin/subscribers", list=LIST, status="inactive")).text
    for _ in range(2):
        assert shown(page) == []
        assert "Searched 2 subscribers so far" in page
        page = (await editor.get(next_of(page))).text
    assert shown(page) == ["zoe@contoso.edu"]
    assert "Searched" not in page


async def test_without_a_list_the_only_one_is_taken_and_several_are_offered(
    editor: Worker,
) -> None:
    await join(editor, ADDRESS)
    assert shown((await editor.get("/admin/subscribers")).text) == [ADDRESS]
    await second_list(editor)
    page = (await editor.get("/admin/subscribers")).text
    assert f"/admin/subscribers?list={LIST}" in page
    assert f"/admin/subscribers?list={SECOND}" in page


@pytest.mark.parametrize("name", ["no-such", "../x", "nobody"])
async def test_a_list_that_is_not_there_is_not_found(editor: Worker, name: str) -> None:
    assert (await editor.get("/admin/subscribers", list=name)).status_code == 404
    assert (await editor.get("/admin/subscribers/export", list=name)).status_code == 404
    assert (await editor.get(f"/admin/subscribers/new?list={name}")).status_code == 404


# --- Adding -----------------------------------------------------------------------------------


async def test_somebody_is_added_with_attributes(editor: Worker) -> None:
    fields = {"address": ADDRESS, "verified": "yes", "attributes": "city=Köln\n\nfirst_name=Ada"}
    answer = await editor.post(NEW, **fields)
    assert answer.status_code == 303
    page = (await editor.get(answer.headers["location"])).text
    assert "Added." in page
    assert "Köln" in page
    assert "user editor@contoso.edu" in page  # the consent record
    added = await stored(editor, ADDRESS)
    assert added
    assert (added.verified, added.attributes) == (True, {"city": "Köln", "first_name": "Ada"})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"address": "nobody"}, "no @"),
        ({"attributes": "just words"}, "Write it as name=value"),
        ({"attributes": "Name=Ada"}, "cannot be an attribute"),
        ({"attributes": f"name={'x' * 501}"}, "longer than 500"),
    ],
)
async def test_wrong_input_gets_a_sentence_and_loses_nothing(
    editor: Worker, fields: dict[str, str], sentence: str
) -> None:
    typed = {"address": ADDRESS, "attributes": "city=Köln", "verified": "yes"} | fields
    answer = await editor.post(NEW, **typed)
    assert answer.status_code == 422
    assert sentence in answer.text
    assert 'role="alert"' in answer.text
    assert typed["address"] in answer.text
    assert typed["attributes"] in answer.text
    assert " checked" in answer.text


async def test_who_is_there_is_not_added_again(editor: Worker) -> None:
    await join(editor, ADDRESS, city="Köln")
    answer = await editor.post(NEW, address=ADDRESS)
    assert answer.status_code == 422
    assert "is already on contoso1" in answer.text
    assert 'name="bring_back"' not in answer.text
    kept = await stored(editor, ADDRESS)
    assert kept
    assert kept.attributes == {"city": "Köln"}


async def test_people_who_unsubscribed_are_added_again_only_if_the_box_is_ticked(
    editor: Worker,
) -> None:
    assert 'name="bring_back"' not in (await editor.get(NEW)).text
    await leave(editor, await join(editor, ADDRESS))
    answer = await editor.post(NEW, address=ADDRESS, attributes="city=Köln", verified="yes")
    assert answer.status_code == 409
    assert "They unsubscribed:" in answer.text
    assert 'name="bring_back"' in answer.text
    assert "city=Köln" in answer.text
    gone = await stored(editor, ADDRESS)
    assert gone
    assert gone.inactive_reason is InactiveReason.UNSUBSCRIBED
    answer = await editor.post(NEW, address=ADDRESS, verified="yes", bring_back="yes")
    assert answer.status_code == 303
    back = await stored(editor, ADDRESS)
    assert back
    assert (back.inactive_reason, back.verified) == (None, True)


async def test_the_page_of_an_inactive_person_leads_to_bringing_them_back(
    editor: Worker,
) -> None:
    await leave(editor, await join(editor, ADDRESS))
    page = (await editor.get(await path_of(editor, ADDRESS))).text
    assert "They unsubscribed:" in page
    assert "/edit" not in page
    link = unescape(page.partition('href="/admin/subscribers/new')[2].partition('"')[0])
    form = (await editor.get(f"/admin/subscribers/new{link}")).text
    assert ADDRESS in form
    assert 'name="bring_back"' in form


# --- Export -----------------------------------------------------------------------------------


async def test_an_export_is_a_file_that_is_safe_in_a_spreadsheet(editor: Worker) -> None:
    await join(editor, "=cmd@contoso.edu", city="=1+1")
    await join(editor, "bob@contoso.edu", verified=False, first_name="Bob, the 2nd")
    await leave(editor, await join(editor, "eve@contoso.edu"))
    answer = await editor.get("/admin/subscribers/export", list=LIST)
    assert answer.headers["content-disposition"] == (
        'attachment; filename="contoso1-subscribers-2026-11-15.csv"'
    )
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.reader(io.StringIO(answer.text.removeprefix("\ufeff"))))
    assert rows == [
        ["email", "subscription", "since", "city", "first_name"],
        ["'=cmd@contoso.edu", "verified", NOW.isoformat(), "'=1+1", ""],
        ["bob@contoso.edu", "unverified", NOW.isoformat(), "", "Bob, the 2nd"],
    ]


@pytest.mark.parametrize(
    ("status", "people"),
    [("all", ["a", "b", "e"]), ("verified", ["a"]), ("unverified", ["b"]), ("inactive", ["e"])],
)
async def test_an_export_has_whom_it_was_asked_for(
    editor: Worker, status: str, people: list[str]
) -> None:
    await join(editor, "a@contoso.edu")
    await join(editor, "b@contoso.edu", verified=False)
    await leave(editor, await join(editor, "e@contoso.edu"))
    answer = await editor.get("/admin/subscribers/export", list=LIST, status=status)
    lines = answer.text.splitlines()[1:]
    assert [line.partition("@")[0] for line in lines] == people
