"""The sign-up form: people pass, and nobody learns who is on the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.flow import subscribe
from postroom.flow.render import Site
from postroom.records import lists
from postroom.web import throttles
from postroom.web.public import sign_up_form
from tests.acting import acting
from tests.web.doorstep import ADDRESS, LIST, PATH, Doorstep, is_thanks, open_doorstep, postmark_in


@pytest.fixture(autouse=True)
def quick_thanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_up_form, "RESPONSE_S", 0)


@pytest_asyncio.fixture
async def doorstep(tmp_path: Path) -> AsyncIterator[Doorstep]:
    async with open_doorstep(tmp_path) as doorstep:
        yield doorstep


# --- People -----------------------------------------------------------------------------------


async def test_whoever_fills_it_in_is_asked_to_confirm(doorstep: Doorstep) -> None:
    assert is_thanks(await doorstep.fill_in())
    subscriber = await doorstep.subscriber()
    assert subscriber
    assert not subscriber.verified
    assert await doorstep.mails() == 1
    assert "Check your inbox" in (await doorstep.browser.get(f"{PATH}/thanks")).text


async def test_the_record_says_from_where_and_what_was_shown(doorstep: Doorstep) -> None:
    page = (await doorstep.browser.get(PATH)).text
    await doorstep.fill_in()
    [asked] = await doorstep.history()
    assert (asked.event, asked.source.kind, asked.client) == ("asked", "form", "192.0.2.7")
    title, heading, sentence = asked.shown.split("\n")
    assert (title, heading) == ("History <b>news</b>", "Subscribe to this list")
    assert sentence in page
    assert "unsubscribe at any time" in sentence


async def test_showing_the_form_and_the_thanks_changes_nothing(doorstep: Doorstep) -> None:
    for path in (PATH, f"{PATH}/thanks"):
        assert (await doorstep.browser.get(path)).status_code == 200
        assert (await doorstep.browser.head(path)).status_code == 200
    assert await doorstep.mails() == 0


@pytest.mark.parametrize("typed", ["", "nobody", "a@b@c.org", '"><script>@x.y', "x" * 3000])
async def test_a_bad_address_is_shown_again_with_a_sentence_beside_it(
    doorstep: Doorstep, typed: str
) -> None:
    answer = await doorstep.fill_in(typed)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert 'aria-invalid="true" aria-describedby="mistake"' in answer.text
    assert "<script" not in answer.text
    assert len(answer.text) < 20_000
    if typed == "nobody":
        assert 'value="nobody"' in answer.text
        assert "The address has no @" in answer.text
    corrected = {"email": ADDRESS, "postmark": postmark_in(answer)}
    at_once = await doorstep.browser.post(PATH, data=corrected)  # they have typed already
    assert is_thanks(at_once)
    assert await doorstep.subscriber()


async def test_a_form_from_yesterday_is_shown_again_and_then_works(doorstep: Doorstep) -> None:
    answer = await doorstep.fill_in(after_s=25 * 3600)
    assert answer.status_code == 422
    assert f'value="{ADDRESS}"' in answer.text
    assert await doorstep.subscriber() is None
    again = {"email": ADDRESS, "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=again))
    assert await doorstep.subscriber()


@pytest.mark.parametrize("postmark", ["", "1", "1.2", "9" * 400 + ".0", "é.é", "0.\x00"])
async def test_a_form_that_is_not_ours_shows_ours_with_what_was_typed(
    doorstep: Doorstep, postmark: str
) -> None:
    answer = await doorstep.browser.post(PATH, data={"email": ADDRESS, "postmark": postmark})
    assert answer.status_code == 422
    assert f'value="{ADDRESS}"' in answer.text
    assert await doorstep.subscriber() is None


async def test_a_clock_ahead_on_another_machine_turns_nobody_away_silently(
    doorstep: Doorstep,
) -> None:
    form = await doorstep.open()
    doorstep.clock.move(seconds=-30)
    answer = await doorstep.browser.post(PATH, data=form | {"email": ADDRESS})
    assert answer.status_code == 422


async def test_the_postmark_of_one_list_is_none_of_another(doorstep: Doorstep) -> None:
    other = MailingList(
        name="contoso2",
        description="",
        sender="a@contoso.edu",
        created_at=doorstep.clock.now(),
        public_form=True,
    )
    await lists.create(doorstep.storage.tables, other)
    form = await doorstep.open()
    doorstep.clock.move(seconds=10)
    answer = await doorstep.browser.post("/s/contoso2", data=form | {"email": ADDRESS})
    assert answer.status_code == 422


async def test_an_address_typed_on_another_site_is_in_the_form(doorstep: Doorstep) -> None:
    page = await doorstep.browser.get(PATH, params={"email": 'a"b@contoso.edu'})
    assert 'value="a&#34;b@contoso.edu"' in page.text
    page = await doorstep.browser.get(PATH, params={"email": ADDRESS})
    assert await doorstep.mails() == 0  # a GET: it only shows
    at_once = {"email": ADDRESS, "postmark": postmark_in(page)}
    assert is_thanks(await doorstep.browser.post(PATH, data=at_once))
    assert await doorstep.subscriber()


# --- Nobody learns anything -------------------------------------------------------------------


async def test_the_answer_is_the_same_whoever_it_is(doorstep: Doorstep) -> None:
    tables, now = doorstep.storage.tables, doorstep.clock.now()
    gone, there = parse_address("gone@contoso.edu"), parse_address("there@contoso.edu")
    for address in (gone, there):
        await doorstep.join(address.typed)
    await subscribe.remove(acting(tables, now), LIST, gone)
    answers = [
        await doorstep.fill_in(address.typed)
        for address in (there, gone, parse_address(ADDRESS), parse_address(ADDRESS))
    ]
    assert all(is_thanks(answer) for answer in answers)
    assert len({(answer.content, str(answer.headers)) for answer in answers}) == 1
    assert await doorstep.mails() == 2  # who is there is left alone, and nobody is asked twice


@pytest.mark.parametrize("typed", ["there@contoso.edu", ADDRESS], ids=["known", "new"])
async def test_thanks_come_after_the_same_time_whoever_it_is(
    doorstep: Doorstep, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    await doorstep.join("there@contoso.edu")
    form = await doorstep.open()
    doorstep.clock.move(seconds=10)
    loop, pauses, hour = asyncio.get_running_loop(), Pauses(), 3600
    monkeypatch.setattr(sign_up_form, "RESPONSE_S", hour)
    monkeypatch.setattr(sign_up_form, "asyncio", pauses)
    begun_at = loop.time()
    answer = await doorstep.browser.post(PATH, data=form | {"email": typed})
    assert is_thanks(answer)
    assert begun_at + hour <= pauses.until <= loop.time() + hour


class Pauses:
    """Stands for asyncio, and lets nobody wait: only says until when they would have."""

    get_running_loop = staticmethod(asyncio.get_running_loop)
    until = 0.0

    async def sleep(self, seconds: float) -> None:
        self.until = asyncio.get_running_loop().time() + seconds


@pytest.mark.parametrize("name", ["closed", "nolist", "a%23b", "..%2fx", "x" * 60])
@pytest.mark.parametrize("page", ["", "/thanks"])
async def test_a_list_without_a_form_looks_like_no_list(
    doorstep: Doorstep, name: str, page: str
) -> None:
    shown = await doorstep.browser.get(f"/s/{name}{page}")
    assert shown.status_code == 404
    assert "You can’t sign up for this list here." in shown.text
    nowhere = await doorstep.browser.get("/s/nowhere")
    assert shown.text == nowhere.text
    if not page:
        sent = await doorstep.browser.post(f"/s/{name}", data={"email": ADDRESS})
        assert sent.status_code == 404


# --- The links in mails say who and from where --------------------------------------------------


async def test_confirming_and_leaving_are_on_record_with_what_was_shown(doorstep: Doorstep) -> None:
    await doorstep.fill_in()
    subscriber = await doorstep.subscriber()
    assert subscriber
    links = Site("", "a secret")
    doorstep.clock.move(seconds=1)
    await doorstep.browser.post(links.confirm_url(LIST, subscriber.guid))
    doorstep.clock.move(seconds=1)
    leave = links.unsubscribe_url(LIST, subscriber.guid)
    await doorstep.browser.post(leave, data={"leave": "yes"})
    asked, confirmed, left = await doorstep.history()
    assert [asked.event, confirmed.event, left.event] == ["asked", "confirmed", "unsubscribed"]
    assert confirmed.source.kind == left.source.kind == "link"
    assert confirmed.client == left.client == "192.0.2.7"
    assert confirmed.shown.startswith(
        "Confirm your subscription\nPress the button, and … will get emails"
    )
    assert (
        left.shown
        == "Unsubscribe?\nPress the button, and … won’t get any more emails from this list."
    )


async def test_one_click_is_on_record_as_one_click(doorstep: Doorstep) -> None:
    added = await doorstep.join()
    path = Site("", "a secret").unsubscribe_url(LIST, added.guid)
    await doorstep.browser.post(path, data={"List-Unsubscribe": "One-Click"})
    left = (await doorstep.history())[-1]
    assert (left.event, left.source.kind, left.shown) == ("unsubscribed", "one_click", "")


async def test_a_call_of_the_web_service_is_on_record_with_its_key(doorstep: Doorstep) -> None:
    answer, key_id = await doorstep.call()
    assert answer.status_code == 202
    [asked] = await doorstep.history()
    assert (asked.event, asked.client) == ("asked", "192.0.2.7")
    assert (asked.source.kind, asked.source.name) == ("key", key_id)


async def test_who_fills_in_the_form_uses_up_nothing_of_what_a_client_may_send(
    doorstep: Doorstep,
) -> None:
    for _ in range(throttles.ADDRESS_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(after_s=2))
        doorstep.clock.move(seconds=-2)
    assert (await doorstep.call())[0].status_code == 202
