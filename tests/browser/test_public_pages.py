"""Journeys of subscribers, with and without script: leave, stay, join; and a scanner's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import EmailMessage
from uuid import uuid4

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.subscriber import InactiveReason, Subscriber
from postroom.flow import subscribe
from postroom.records import lists, subscribers
from postroom.web import security
from postroom.web.public import links
from postroom_bench.installation import until
from tests.acting import acting
from tests.browser.chromium import Troubles, axe, expect_to_fit
from tests.browser.running_site import RunningSite

SOMEBODY = parse_address("student1@contoso.edu")
MAIL_S_MAX = 120.0
TOO_MUCH = links.FIELD_BYTES_MAX + 1


@dataclass(frozen=True)
class Newsletter:
    """A list of its own for one test, on the running site."""

    site: RunningSite
    name: str

    async def join(self, *, verified: bool) -> Subscriber:
        parts = self.site.parts
        tables, now = parts.storage.tables, parts.clock.now()
        return await subscribe.add(acting(tables, now), self.name, SOMEBODY, {}, verified=verified)

    async def subscriber(self) -> Subscriber:
        tables = self.site.parts.storage.tables
        found = await subscribers.find(tables, self.name, SOMEBODY.storage_key)
        assert found
        return found[0]

    def leave_url(self, guid: str) -> str:
        return self.site.links.unsubscribe_url(self.name, guid)

    def confirm_url(self, guid: str) -> str:
        return self.site.links.confirm_url(self.name, guid)


@pytest_asyncio.fixture
async def newsletter(site: RunningSite) -> Newsletter:
    name = f"history_{uuid4().hex[:8]}"
    mailing_list = MailingList(
        name=name,
        description="History Department announcements",
        sender="donotreply@contoso.edu",
        created_at=site.parts.clock.now(),
    )
    await lists.create(site.parts.storage.tables, mailing_list)
    return Newsletter(site, name)


@pytest_asyncio.fixture
async def phone(page: Page) -> Page:
    await page.set_viewport_size({"width": 360, "height": 740})
    return page


async def heading(page: Page, words: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(words)


# --- Leaving ----------------------------------------------------------------------------------


async def test_the_button_takes_somebody_off_the_list(
    any_page: Page, newsletter: Newsletter
) -> None:
    url = newsletter.leave_url((await newsletter.join(verified=True)).guid)
    await any_page.goto(url)
    await heading(any_page, "Unsubscribe?")
    await any_page.get_by_role("button", name="Unsubscribe").click()
    await heading(any_page, "You’ve unsubscribed")
    assert (await newsletter.subscriber()).inactive_reason is InactiveReason.UNSUBSCRIBED
    await any_page.reload()  # a GET: nothing is sent twice
    await heading(any_page, "You’ve unsubscribed")
    await any_page.goto(url)
    await heading(any_page, "Already unsubscribed")


async def test_who_thinks_again_stays(any_page: Page, newsletter: Newsletter) -> None:
    subscriber = await newsletter.join(verified=True)
    await any_page.goto(newsletter.leave_url(subscriber.guid))
    await any_page.get_by_role("link", name="Stay subscribed").click()
    await heading(any_page, "Nothing changed")
    assert await newsletter.subscriber() == subscriber


async def test_the_keyboard_alone_is_enough_to_leave(page: Page, newsletter: Newsletter) -> None:
    await page.goto(newsletter.leave_url((await newsletter.join(verified=True)).guid))
    await expect(page.get_by_role("button")).to_be_focused()
    await page.keyboard.press("Enter")
    await heading(page, "You’ve unsubscribed")


async def test_a_form_that_is_too_large_changes_nothing_and_says_so(
    page: Page, newsletter: Newsletter, troubles: Troubles
) -> None:
    troubles.expect("400")
    subscriber = await newsletter.join(verified=True)
    await page.goto(newsletter.leave_url(subscriber.guid))
    button = page.get_by_role("button")
    await button.evaluate("(button, size) => { button.value = 'x'.repeat(size) }", TOO_MUCH)
    await button.click()
    await heading(page, "Something went wrong")
    assert await axe(page) == []
    assert await newsletter.subscriber() == subscriber


# --- Joining ----------------------------------------------------------------------------------


async def test_the_button_confirms_and_the_page_after_welcomes(
    any_page: Page, newsletter: Newsletter
) -> None:
    url = newsletter.confirm_url((await newsletter.join(verified=False)).guid)
    await any_page.goto(url)
    await heading(any_page, "Confirm your subscription")
    await any_page.get_by_role("button", name="Confirm").click()
    await heading(any_page, "Welcome")
    assert (await newsletter.subscriber()).verified
    await any_page.goto(url)
    await heading(any_page, "Welcome")


async def test_the_link_in_the_mail_that_came_leads_onto_the_list(
    page: Page, newsletter: Newsletter
) -> None:
    parts = newsletter.site.parts
    await subscribe.sign_up(acting(parts.storage, parts.clock.now()), newsletter.name, SOMEBODY, {})
    parts.wakeups.ring("sender")
    await page.goto(await link_in_mail(newsletter))
    await page.get_by_role("button", name="Confirm").click()
    await heading(page, "Welcome")
    assert (await newsletter.subscriber()).verified


async def link_in_mail(newsletter: Newsletter) -> str:
    """From the confirmation in the outbox, which another process puts there."""
    start = re.escape(f"{newsletter.site.url}/c/{newsletter.name}/")
    links: list[str] = []

    async def look() -> bool:
        for mail in await newsletter.site.mails():
            links.extend(re.findall(rf"{start}\S+", text_of(mail)))
        return bool(links)

    await until(look, within_s=MAIL_S_MAX)
    return links[0]


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("plain",))
    assert body
    return str(body.get_content())


# --- Scanners ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verified", [True, False], ids=["on-the-list", "asked"])
async def test_a_scanner_that_opens_every_link_in_a_browser_changes_nothing(
    page: Page, newsletter: Newsletter, verified: bool
) -> None:
    subscriber = await newsletter.join(verified=verified)
    leave = newsletter.leave_url(subscriber.guid)
    for url in (leave, f"{leave}/left", f"{leave}/kept", newsletter.confirm_url(subscriber.guid)):
        assert (await page.request.head(url)).ok
        opened = await page.goto(url)
        assert opened
        assert opened.ok
    assert await newsletter.subscriber() == subscriber


# --- Every page, in light and dark, on a phone ------------------------------------------------


async def check_faces(page: Page, pages: dict[str, str]) -> None:
    """Each address shows its heading, without a barrier in light and dark, within a phone."""
    for url, words in pages.items():
        await page.goto(url)
        await heading(page, words)
        assert await axe(page) == [], words
        await expect_to_fit(page)


async def test_pages_of_somebody_who_asked_have_no_barrier(
    phone: Page, newsletter: Newsletter
) -> None:
    guid = (await newsletter.join(verified=False)).guid
    leave, confirm = newsletter.leave_url(guid), newsletter.confirm_url(guid)
    pages = {
        leave: "Unsubscribe?",
        f"{leave}/kept": "Nothing changed",
        confirm: "Confirm your subscription",
        f"{confirm}0": "This link is no longer valid",
    }
    await check_faces(phone, pages)


async def test_pages_of_somebody_who_joined_or_left_have_no_barrier(
    phone: Page, newsletter: Newsletter
) -> None:
    guid = (await newsletter.join(verified=True)).guid
    await check_faces(phone, {newsletter.confirm_url(guid): "Welcome"})
    parts, leave = newsletter.site.parts, newsletter.leave_url(guid)
    await subscribe.leave(acting(parts.storage, parts.clock.now()), newsletter.name, guid)
    await check_faces(
        phone, {f"{leave}/left": "You’ve unsubscribed", leave: "Already unsubscribed"}
    )


async def test_pages_of_nobody_have_no_barrier(
    phone: Page, site: RunningSite, troubles: Troubles
) -> None:
    troubles.expect("404")
    troubles.expect("503")
    slow = f"{site.url}/slow"
    await phone.route(slow, answer_too_late)
    pages = {
        site.url: "Postroom",
        f"{site.url}/nothing": "Page not found",
        slow: "Please try again",
    }
    await check_faces(phone, pages)


async def answer_too_late(route: Route) -> None:
    """What the site answers when its storage does not."""
    body = links.render("try_again.html", list_title="")
    headers = {"Content-Type": "text/html"} | security.HEADERS
    await route.fulfill(status=503, headers=headers, body=body)
