"""The sign-up form in a browser: by hand, by keyboard, without script; and what robots see."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlencode
from uuid import uuid4

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.records import lists, subscribers
from postroom_bench.installation import until
from tests.browser.chromium import Troubles, axe, expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.test_public_pages import MAIL_S_MAX, heading, text_of

POSTMARK = re.compile('name="postmark" value="([^"]+)"')
SOMEBODY = parse_address("student1@contoso.edu")


@pytest_asyncio.fixture
async def form(site: RunningSite) -> str:
    """The address of the form of a list of its own."""
    name = f"history_{uuid4().hex[:8]}"
    mailing_list = MailingList(
        name=name,
        description="History Department announcements",
        sender="donotreply@contoso.edu",
        created_at=site.parts.clock.now(),
        public_form=True,
    )
    await lists.create(site.parts.storage.tables, mailing_list)
    return f"{site.url}/s/{name}"


async def is_known(site: RunningSite, form: str) -> bool:
    name = form.rpartition("/")[2]
    found = await subscribers.find(site.parts.storage.tables, name, SOMEBODY.storage_key)
    return found is not None


async def link_in_mail(site: RunningSite, form: str) -> str:
    start = re.escape(form.replace("/s/", "/c/"))
    links: list[str] = []

    async def look() -> bool:
        for mail in await site.mails():
            links.extend(re.findall(rf"{start}/\S+", text_of(mail)))
        return bool(links)

    await until(look, within_s=MAIL_S_MAX)
    return links[0]


async def test_whoever_signs_up_gets_a_mail_whose_link_leads_onto_the_list(
    any_page: Page, site: RunningSite, form: str
) -> None:
    await any_page.goto(
        f"{form}?email={SOMEBODY.typed}"
    )  # typed already, so it may be sent at once
    await any_page.get_by_role("button", name="Subscribe").click()
    await heading(any_page, "Check your inbox")
    await any_page.reload()  # a GET: nothing is sent twice
    await any_page.goto(await link_in_mail(site, form))
    await any_page.get_by_role("button", name="Confirm").click()
    await heading(any_page, "Welcome")


async def test_a_typing_mistake_is_told_beside_the_field_and_is_all_there_is_to_mend(
    any_page: Page, site: RunningSite, form: str, troubles: Troubles
) -> None:
    troubles.expect("422")
    await any_page.goto(f"{form}?email=student1.contoso.edu")
    await any_page.get_by_role("button").click()
    field = any_page.get_by_label("Your email address")
    await expect(field).to_have_value("student1.contoso.edu")
    await expect(field).to_be_focused()
    await expect(field).to_have_accessible_description(re.compile("has no @"))
    await expect(any_page.get_by_role("alert")).to_be_visible()
    await field.fill(SOMEBODY.typed)
    await field.press("Enter")
    await heading(any_page, "Check your inbox")
    assert await is_known(site, form)


async def test_who_is_quicker_than_people_presses_the_button_once_more(
    page: Page, site: RunningSite, form: str, troubles: Troubles
) -> None:
    troubles.expect("422")

    async def stamp_anew(route: Route) -> None:
        """As if the form had been shown this moment: a busy browser is as slow as people."""
        fresh = POSTMARK.search(await (await page.request.get(form)).text())
        assert fresh
        fields = parse_qs(route.request.post_data, keep_blank_values=True)
        assert fields["postmark"]
        sent = urlencode(fields | {"postmark": fresh[1]}, doseq=True)
        await route.continue_(post_data=sent)

    await page.goto(form)
    await page.route(form, stamp_anew)
    await page.get_by_label("Your email address").fill(SOMEBODY.typed)
    await page.get_by_role("button").click()
    await expect(page.get_by_role("alert")).to_contain_text("press the button again")
    assert not await is_known(site, form)
    await page.unroute(form)
    await expect(page.get_by_role("button")).to_be_focused()
    await page.keyboard.press("Enter")
    await heading(page, "Check your inbox")
    assert await is_known(site, form)


async def test_who_has_the_hidden_field_filled_in_by_the_browser_gets_through(
    any_page: Page, site: RunningSite, form: str, troubles: Troubles
) -> None:
    troubles.expect("422")
    await any_page.goto(f"{form}?email={SOMEBODY.typed}")
    await any_page.locator("input[name=homepage]").fill("https://contoso.edu", force=True)
    await any_page.get_by_role("button").click()
    await expect(any_page.get_by_role("alert")).to_contain_text("A hidden field was filled in")
    assert not await is_known(site, form)
    await any_page.get_by_role("button").click()
    await heading(any_page, "Check your inbox")
    assert await is_known(site, form)


async def test_the_field_for_robots_is_neither_seen_nor_reached(page: Page, form: str) -> None:
    await page.goto(form)
    trap = page.locator("input[name=homepage]")
    box = await page.locator(".trap").bounding_box()
    assert box
    assert box["width"] <= 1
    assert box["height"] <= 1
    for _ in range(3):  # field, button, and out of the page
        await page.keyboard.press("Tab")
        await expect(trap).not_to_be_focused()
    assert "Leave this empty" not in await page.get_by_role("main").aria_snapshot()


@pytest.mark.parametrize("width", [360, 1280])
async def test_its_pages_have_no_barrier_in_light_and_dark(
    page: Page, form: str, troubles: Troubles, width: int
) -> None:
    troubles.expect("422")
    await page.set_viewport_size({"width": width, "height": 740})
    await page.goto(form)
    assert await axe(page) == []
    await page.goto(f"{form}?email=nobody")
    await page.get_by_role("button").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await axe(page) == []
    await expect_to_fit(page)
    await page.goto(f"{form}/thanks")
    await heading(page, "Check your inbox")
    assert await axe(page) == []
