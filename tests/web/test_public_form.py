"""The sign-up form: people pass, robots are asked twice, and nobody learns who is on the list."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from postroom.bell import Bells
from postroom.domain.address import parse_address
from postroom.domain.consent import Consent
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import Subscriber
from postroom.flow import subscribe
from postroom.flow.render import Site
from postroom.records import consents, keys, lists, subscribers
from postroom.storage.memory import MemoryStorage
from postroom.storage.port import SUBSCRIBE_QUEUE
from postroom.web import public_form, throttles
from postroom.web.app import create_app
from postroom.web.desk import Desk

LIST = "contoso1"
PATH = f"/s/{LIST}"
ADDRESS = "student1@contoso.edu"
POSTMARK = re.compile(r'name="postmark" value="([^"]+)"')


class Clock:
    def __init__(self) -> None:
        self._now = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def move(self, **time: float) -> None:
        self._now += timedelta(**time)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a page waits for nobody")


@dataclass
class Doorstep:
    """A site with one list that has a form, and somebody in front of it."""

    storage: MemoryStorage
    clock: Clock
    browser: httpx2.AsyncClient

    async def open(self) -> dict[str, str]:
        """The fields of the form as they are shown."""
        page = await self.browser.get(PATH)
        assert page.status_code == 200
        return {"email": "", "homepage": "", "postmark": postmark_in(page)}

    async def fill_in(self, email: str = ADDRESS, *, after_s: float = 10, **fields: str) -> Any:
        form = await self.open()
        self.clock.move(seconds=after_s)
        return await self.browser.post(PATH, data=form | {"email": email} | fields)

    async def call(self) -> tuple[Any, str]:
        """A client's site signs somebody up: the answer, and the id of its key."""
        key, kept = await keys.create(self.storage.tables, "portal", (LIST,), self.clock.now())
        sent, headers = {"list": LIST, "email": ADDRESS}, {"Authorization": f"Bearer {key}"}
        return await self.browser.post("/api/v1/subscribe", json=sent, headers=headers), kept.id

    async def join(self, email: str = ADDRESS) -> Subscriber:
        tables, now = self.storage.tables, self.clock.now()
        return await subscribe.add(tables, LIST, parse_address(email), {}, verified=True, now=now)

    async def subscriber(self, email: str = ADDRESS) -> Subscriber | None:
        key = parse_address(email).storage_key
        found = await subscribers.find(self.storage.tables, LIST, key)
        return found[0] if found else None

    async def history(self) -> list[Consent]:
        key = parse_address(ADDRESS).storage_key
        return (await consents.history(self.storage.tables, LIST, key)).events

    async def mails(self) -> int:
        return await self.storage.queues.length(SUBSCRIBE_QUEUE)


def postmark_in(page: Any) -> str:
    found = POSTMARK.search(page.text)
    assert found
    return found[1]


def is_thanks(answer: Any) -> bool:
    return (answer.status_code, answer.headers.get("location")) == (303, f"{PATH}/thanks")


@pytest.fixture(autouse=True)
def quick_thanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_form, "THANKED_AFTER_S", 0)


@pytest_asyncio.fixture
async def doorstep(tmp_path: Path) -> AsyncIterator[Doorstep]:
    clock = Clock()
    storage = MemoryStorage(clock)
    for name, public in ((LIST, True), ("closed", False)):
        made = MailingList(
            name=name,
            description="History <b>news</b>",
            sender="a@contoso.edu",
            created_at=clock.now(),
            public_form=public,
        )
        await lists.create(storage.tables, made)
    links = Site("https://post.contoso.edu", "a secret")
    app = create_app(Desk(storage, clock, Bells(tmp_path / "bells"), links))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True, client=("192.0.2.7", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as browser:
        yield Doorstep(storage, clock, browser)


# --- People -----------------------------------------------------------------------------------


async def test_whoever_fills_it_in_is_asked_to_confirm(doorstep: Doorstep) -> None:
    assert is_thanks(await doorstep.fill_in())
    subscriber = await doorstep.subscriber()
    assert subscriber
    assert not subscriber.verified
    assert await doorstep.mails() == 1
    assert "Look into your mailbox" in (await doorstep.browser.get(f"{PATH}/thanks")).text


async def test_the_record_says_from_where_and_what_was_shown(doorstep: Doorstep) -> None:
    page = (await doorstep.browser.get(PATH)).text
    await doorstep.fill_in()
    [asked] = await doorstep.history()
    assert (asked.event, asked.source, asked.client) == ("asked", "form", "192.0.2.7")
    title, heading, sentence = asked.shown.split("\n")
    assert (title, heading) == ("History <b>news</b>", "Join this list")
    assert sentence in page
    assert "leave at any time" in sentence


async def test_showing_the_form_and_the_thanks_changes_nothing(doorstep: Doorstep) -> None:
    for path in (PATH, f"{PATH}/thanks"):
        assert (await doorstep.browser.get(path)).status_code == 200
        assert (await doorstep.browser.head(path)).status_code == 200
    assert await doorstep.mails() == 0


@pytest.mark.parametrize("typed", ["", "nobody", "a@b@c.org", '"><script>@x.y', "x" * 3000])
async def test_a_bad_address_comes_back_with_a_sentence_beside_it(
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
    mended = {"email": ADDRESS, "postmark": postmark_in(answer)}
    at_once = await doorstep.browser.post(PATH, data=mended)  # they have typed already
    assert is_thanks(at_once)
    assert await doorstep.subscriber()


async def test_a_form_of_yesterday_comes_back_as_it_was_and_works_then(doorstep: Doorstep) -> None:
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


async def test_an_address_typed_on_another_site_stands_in_the_form(doorstep: Doorstep) -> None:
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
    await subscribe.remove(tables, LIST, gone, now)
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
    monkeypatch.setattr(public_form, "THANKED_AFTER_S", hour)
    monkeypatch.setattr(public_form, "asyncio", pauses)
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
    assert "This list does not take sign-ups here." in shown.text
    nowhere = await doorstep.browser.get("/s/nowhere")
    assert shown.text == nowhere.text
    if not page:
        sent = await doorstep.browser.post(f"/s/{name}", data={"email": ADDRESS})
        assert sent.status_code == 404


# --- Robots -----------------------------------------------------------------------------------


async def test_who_fills_in_the_hidden_field_is_asked_once_more_without_it(
    doorstep: Doorstep,
) -> None:
    """A browser may have done it; what fills in forms by itself does not press a button again."""
    answer = await doorstep.fill_in(homepage="https://spam.example.org")
    assert answer.status_code == 422
    assert "press the button once more" in answer.text
    assert f'value="{ADDRESS}"' in answer.text
    assert 'name="homepage"' not in answer.text
    assert 'aria-invalid="true"' not in answer.text  # nothing is wrong with the address
    assert await doorstep.subscriber() is None
    assert await doorstep.mails() == 0
    again = {"email": ADDRESS, "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=again))
    assert await doorstep.subscriber()


async def test_who_is_quicker_than_people_is_asked_once_more(doorstep: Doorstep) -> None:
    answer = await doorstep.fill_in(after_s=1.9)
    assert answer.status_code == 422
    assert "press the button once more" in answer.text
    assert f'value="{ADDRESS}"' in answer.text
    assert await doorstep.subscriber() is None
    again = {"email": ADDRESS, "homepage": "", "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=again))
    assert await doorstep.subscriber()


@pytest.mark.parametrize("after_s", [0, 10, 25 * 3600])
@pytest.mark.parametrize("trap", ["", "https://contoso.edu"])
async def test_a_wrong_address_is_told_before_anything_else(
    doorstep: Doorstep, after_s: float, trap: str
) -> None:
    answer = await doorstep.fill_in("nobody", after_s=after_s, homepage=trap)
    assert answer.status_code == 422
    assert "The address has no @" in answer.text
    assert "once more" not in answer.text
    mended = {"email": ADDRESS, "postmark": postmark_in(answer)}
    assert is_thanks(await doorstep.browser.post(PATH, data=mended))


async def test_people_do_not_see_or_reach_the_hidden_field(doorstep: Doorstep) -> None:
    page = (await doorstep.browser.get(PATH)).text
    [trap] = re.findall(r'<p class="trap".*?</p>', page, re.DOTALL)
    assert 'aria-hidden="true"' in trap
    assert 'tabindex="-1"' in trap
    assert 'autocomplete="off"' in trap
    assert f'name="{public_form.TRAP}"' in trap
    assert "style=" not in page
    assert "<script" not in page
    assert ".trap {" in (await doorstep.browser.get("/static/public.css")).text


async def test_a_network_has_a_limit_and_is_told_when_to_come_back(doorstep: Doorstep) -> None:
    for number in range(throttles.NETWORK_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(f"student{number}@contoso.edu", after_s=2))
        doorstep.clock.move(seconds=-2)
    refused = await doorstep.fill_in("late@contoso.edu", after_s=2)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 60
    assert 'value="late@contoso.edu"' in refused.text
    assert "Too many people are signing up from your network." in refused.text
    assert "Try again in 1 minute." in refused.text
    assert await doorstep.subscriber("late@contoso.edu") is None
    doorstep.clock.move(minutes=2)
    assert is_thanks(await doorstep.fill_in("late@contoso.edu"))
    assert await doorstep.subscriber("late@contoso.edu")


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_address_has_a_limit_that_says_so_to_everybody_alike(
    doorstep: Doorstep, is_there: bool
) -> None:
    if is_there:
        await doorstep.join()
    for _ in range(throttles.ADDRESS_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(after_s=2))
        doorstep.clock.move(seconds=-2)
    asked = await doorstep.subscriber()
    doorstep.clock.move(seconds=30)
    refused = await doorstep.fill_in()
    assert refused.status_code == 429
    assert "This address was entered too often. Try again in 3 minutes." in refused.text
    assert await doorstep.subscriber() == asked
    assert await doorstep.mails() == (0 if is_there else 1)


async def test_a_body_in_a_strange_charset_breaks_nothing(doorstep: Doorstep) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="email"\r\n\r\n+2AA-@x.org\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x; charset=utf-7"
    answer = await doorstep.browser.post(PATH, content=body, headers={"content-type": kind})
    assert answer.status_code == 422


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
    assert [asked.event, confirmed.event, left.event] == ["asked", "confirmed", "left"]
    assert (confirmed.source, left.source) == ("link", "link")
    assert confirmed.client == left.client == "192.0.2.7"
    assert confirmed.shown.startswith("One click to join\nThen … will get its mails.")
    assert left.shown == "Leave this list?\n… will get no more mails from it."


async def test_one_click_is_on_record_as_one_click(doorstep: Doorstep) -> None:
    added = await doorstep.join()
    path = Site("", "a secret").unsubscribe_url(LIST, added.guid)
    await doorstep.browser.post(path, data={"List-Unsubscribe": "One-Click"})
    left = (await doorstep.history())[-1]
    assert (left.event, left.source, left.shown) == ("left", "one-click", "")


async def test_a_call_of_the_web_service_is_on_record_with_its_key(doorstep: Doorstep) -> None:
    answer, key_id = await doorstep.call()
    assert answer.status_code == 202
    [asked] = await doorstep.history()
    assert (asked.event, asked.source, asked.client) == ("asked", f"key {key_id}", "192.0.2.7")


async def test_who_fills_in_the_form_uses_up_nothing_of_what_a_client_may_send(
    doorstep: Doorstep,
) -> None:
    for _ in range(throttles.ADDRESS_CALLS_PER_HOUR):
        assert is_thanks(await doorstep.fill_in(after_s=2))
        doorstep.clock.move(seconds=-2)
    assert (await doorstep.call())[0].status_code == 202
