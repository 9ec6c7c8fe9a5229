"""What the script adds to the admin pages: buttons that copy, and forms that are sent once."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest_asyncio
from playwright.async_api import Page, Route, expect

from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page


@pytest_asyncio.fixture
async def new_message(site: RunningSite) -> str:
    """The address of the page on which a message to a list of its own is written."""
    name = f"script_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    return f"{site.url}/admin/messages/new?kind=html&list={name}"


async def test_a_button_that_copies_is_there_with_script(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await sign_in_page(site, page)
    await page.goto(new_message)
    await expect(page.get_by_role("button", name="Copy the field email")).to_be_visible()


async def test_a_button_that_copies_is_not_there_without_script(
    site: RunningSite, page_without_script: Page, new_message: str
) -> None:
    page = page_without_script
    await sign_in_page(site, page)
    await page.goto(new_message)
    await expect(page.get_by_role("button", name="Save and check")).to_be_visible()
    await expect(page.locator("[data-copy]").first).to_be_hidden()


async def test_a_form_is_sent_once_however_often_its_button_is_pressed(
    site: RunningSite, page: Page, new_message: str
) -> None:
    arrived, pressed_again = asyncio.Event(), asyncio.Event()
    sent: list[str] = []

    async def answer_late(route: Route) -> None:
        sent.append(route.request.method)
        arrived.set()
        await pressed_again.wait()
        await route.continue_()

    await sign_in_page(site, page)
    await save_nothing_by_itself(page)
    await page.goto(new_message)
    await page.route("**/admin/messages/write", answer_late)
    await fill_in(page, "Only one")
    save = page.get_by_role("button", name="Save and check")
    await save.hover()  # the mouse stays where the button is, and presses it at any time
    await press(page)
    await arrived.wait()
    await press(page)
    pressed_again.set()
    await expect(page.get_by_role("heading", name="Only one")).to_be_visible()
    assert sent == ["POST"]


async def test_a_page_that_is_shown_again_as_it_was_left_can_send_its_form(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await sign_in_page(site, page)
    await save_nothing_by_itself(page)
    await page.goto(new_message)
    await page.route("**/admin/messages/write", lambda route: route.fulfill(status=204))  # stay
    await fill_in(page, "Again")
    save = page.get_by_role("button", name="Save and check")
    await save.click()
    await expect(save).to_be_disabled()
    await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    await expect(save).to_be_enabled()
    await page.unroute("**/admin/messages/write")
    await save.click()
    await expect(page.get_by_role("heading", name="Again")).to_be_visible()


async def test_a_form_goes_off_while_the_preview_is_still_on_its_way(
    site: RunningSite, page: Page, new_message: str
) -> None:
    asked, unanswered = asyncio.Event(), asyncio.Event()

    async def never_answer(route: Route) -> None:
        asked.set()
        await unanswered.wait()
        await route.abort()

    await sign_in_page(site, page)
    await page.route("**/admin/messages/preview", never_answer)
    await page.goto(new_message)
    await asked.wait()
    await fill_in(page, "Impatient")
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="Impatient")).to_be_visible()
    unanswered.set()


async def save_nothing_by_itself(page: Page) -> None:
    """On a slow machine the draft would be there before the button is pressed."""
    await page.route("**/autosave", lambda route: route.fulfill(json={"state": "refused"}))


async def fill_in(page: Page, subject: str) -> None:
    await page.get_by_label("Subject").fill(subject)
    await page.get_by_role("textbox", name="Body").fill("<p>Words</p>")


async def press(page: Page) -> None:
    await page.mouse.down()
    await page.mouse.up()
