"""Journeys around forms: a page loaded again makes nothing twice, and nothing typed is lost."""

from __future__ import annotations

from playwright.async_api import Page, expect

from postroom.actions import sign_in
from postroom.domain.address import parse_address
from postroom.domain.user import Role
from postroom.records import keys, users
from tests.browser.chromium import Troubles, axe, expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

LIST = "typed_once"
BODY = "\n<p>Dear {{ email }}, “quoted” & <b>bold</b></p>\n" + "<p>One more line of it.</p>\n" * 50


async def end_every_session(site: RunningSite) -> None:
    tables = site.parts.storage.tables
    found = await users.find(tables, parse_address(f"{Role.OWNER.value}@contoso.edu").storage_key)
    assert found
    await sign_in.sign_out_everywhere(tables, found[0], site.parts.clock.now())


async def test_the_page_of_a_new_key_loaded_again_makes_no_second_one(
    site: RunningSite, any_page: Page
) -> None:
    name = f"Site of {id(any_page)}"
    await sign_in_page(site, any_page)
    await any_page.goto(f"{site.url}/admin/keys")
    await any_page.get_by_role("textbox", name="Name").fill(name)
    await any_page.get_by_role("button", name="Create key").click()
    await expect(any_page.locator("#key")).to_contain_text("prk_")
    await any_page.reload()
    await expect(any_page.get_by_role("status")).to_contain_text("was already created")
    await expect(any_page.get_by_text("prk_")).to_have_count(0)
    made = [key.name async for key in keys.every_key(site.parts.storage.tables)]
    assert made.count(name) == 1


async def test_who_is_signed_out_while_writing_signs_in_and_goes_on(
    site: RunningSite, page_without_script: Page, troubles: Troubles
) -> None:
    page = page_without_script
    troubles.expect("403")
    await site.run("list", "create", LIST, "--from", "a@contoso.edu")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/messages/new?kind=html&list={LIST}")
    await page.get_by_label("Subject").fill("Kept words")
    await page.get_by_label("Body", exact=True).fill(BODY)
    await end_every_session(site)
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="Sign in again")).to_be_visible()
    await expect(page.get_by_role("link", name="Sign in")).to_have_attribute("target", "_blank")
    await sign_in_page(site, page)  # as if on another page
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("heading", name="Kept words", level=1)).to_be_visible()
    await page.get_by_role("link", name="Edit").click()
    await expect(page.get_by_label("Body", exact=True)).to_have_value(BODY)


async def test_the_page_with_what_was_typed_is_open_to_everybody(
    site: RunningSite, page: Page, troubles: Troubles
) -> None:
    troubles.expect("403")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/account")
    await page.get_by_label("Current password").fill("four words are good")
    await page.get_by_label("New password").fill("four other words")
    await end_every_session(site)
    await page.get_by_role("button", name="Change").click()
    await expect(page.get_by_role("alert")).to_contain_text("enter them again")
    await expect(page.get_by_label("New password")).to_have_value("")
    assert await axe(page) == []
    await page.set_viewport_size({"width": 360, "height": 740})
    await expect_to_fit(page)
