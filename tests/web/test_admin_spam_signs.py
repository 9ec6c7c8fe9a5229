"""Spam signs on the page of a message: each with a sentence on what to do, the heaviest first."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.mailing_list import MailingList
from postroom.domain.user import Role
from postroom.mail.spam.finding import SpamPlace, SpamSign, SpamWeight
from postroom.records import lists
from postroom.web.spam_advice import PLACES, SENTENCES, TITLES
from tests.web.drafts import GOOD, written
from tests.web.office import NOW
from tests.web.signed_in import Worker, at_work

LIST = "history"
NOTHING = "No spam signs found"
BAD = (
    '<p>Dear <a href="https://192.0.2.1/">reader</a></p><iframe></iframe>'
    '<a href="http://contoso.edu/?a=<b>">x</a>'
)


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        complete = MailingList(
            name=LIST,
            description="History",
            sender="a@contoso.edu",
            created_at=NOW,
            postal_address="1 Campus Road, Contoso",
        )
        await lists.create(worker.office.storage.tables, complete)
        yield worker


def section(page: str) -> str:
    return page.partition('id="spam-title"')[2].partition("</section>")[0]


def test_every_sign_weight_and_place_has_words() -> None:
    assert set(SENTENCES) == set(SpamSign)
    assert set(TITLES) == set(SpamWeight)
    assert set(PLACES) == set(SpamPlace)


async def test_a_message_without_signs_is_told_so_plainly(editor: Worker) -> None:
    page = (await editor.get(await written(editor, list=LIST))).text
    assert NOTHING in section(page)
    assert "<h4" not in section(page)


async def test_signs_are_said_the_heaviest_first_with_their_places(editor: Worker) -> None:
    page = section((await editor.get(await written(editor, list=LIST, body=BAD))).text)
    titles = re.findall("<h4[^>]*>(.*?)</h4>", page)
    assert titles == [str(title) for title in TITLES.values()]
    assert NOTHING not in page
    places = [unescape(place) for place in re.findall("<code[^>]*>(.*?)</code>", page)]
    assert places == ["https://192.0.2.1/", "<iframe>", "http://contoso.edu/?a=<b>"]


async def test_signs_follow_what_is_typed(editor: Worker) -> None:
    good, bad = GOOD | {"list": LIST}, GOOD | {"list": LIST, "subject": "Re: your order"}
    assert NOTHING in (await editor.post("/admin/messages/preview", **good)).text
    typed = (await editor.post("/admin/messages/preview", **bad)).text
    assert str(SENTENCES[SpamSign.FAKED_REPLY]) in typed


async def test_signs_stay_when_the_chosen_person_is_nobody(editor: Worker) -> None:
    path = await written(editor, list=LIST, body=BAD)
    page = (await editor.get(path, **{"as": "nobody@contoso.edu"})).text
    assert "nobody@contoso.edu is not on this list" in page
    assert "https://192.0.2.1/" in section(page)


async def test_the_list_is_asked_for_its_postal_address(editor: Worker) -> None:
    page = (await editor.get(await written(editor))).text
    assert unescape(section(page)).count(str(SENTENCES[SpamSign.LIST_WITHOUT_ADDRESS])) == 1


@pytest.mark.parametrize("body", ["<p>Dear {{ name</p>", "<b>" * 300])
async def test_of_a_body_that_cannot_be_sent_only_that_is_said(editor: Worker, body: str) -> None:
    page = (
        await editor.post("/admin/messages/preview", **GOOD | {"list": LIST, "body": body})
    ).text
    assert "alert-danger" in page
    assert "spam-title" not in page
