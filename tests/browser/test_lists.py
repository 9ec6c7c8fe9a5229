"""Journeys around lists: two people edit one, and what is typed wrong is not lost."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from postroom_bench.installation import until
from tests.browser.chromium import WAIT_MS_MAX, Troubles, watched_page
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

VALUE_FITS = """() => {
    const values = [...document.querySelectorAll(".facts dd")];
    const value = values.find(each => each.textContent.includes("phone"));
    const [inner, outer] = [value, value.closest(".facts")].map(e => e.getBoundingClientRect());
    return inner.width > outer.width / 2 && inner.right <= outer.right;
}"""


async def make_list(site: RunningSite, name: str) -> None:
    await site.run("list", "create", name, "--from", "a@contoso.edu", "--description", "Old words")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
async def test_two_people_who_edit_one_list_see_each_others_words(
    site: RunningSite, browser: Browser, script: bool
) -> None:
    name = f"shared_{script}"
    await make_list(site, name)
    here, there = Troubles(), Troubles()
    here.expect("409")
    async with (
        watched_page(browser, here, script=script) as mine,
        watched_page(browser, there, script=script) as theirs,
    ):
        for page in (mine, theirs):
            await sign_in_page(site, page)
            await page.goto(f"{site.url}/admin/lists/{name}/edit")
        await theirs.get_by_label("Description").fill("Their words")
        await theirs.get_by_role("button", name="Save").click()
        await expect(theirs.get_by_role("status")).to_contain_text("Saved.")
        await mine.get_by_label("Description").fill("My words")
        await mine.get_by_role("button", name="Save").click()
        await expect(mine.get_by_role("alert")).to_contain_text("Somebody else changed this")
        await expect(mine.get_by_label("Description")).to_have_value("My words")
        await expect(mine.locator("#description-other")).to_contain_text("Their words")
        await mine.get_by_role("button", name="Save").click()
        await expect(mine.get_by_role("status")).to_contain_text("Saved.")
        await expect(mine.get_by_text("My words")).to_be_visible()


async def test_wrong_input_comes_back_with_a_sentence_and_all_that_was_typed(
    site: RunningSite, any_page: Page, troubles: Troubles
) -> None:
    troubles.expect("422")
    await sign_in_page(site, any_page)
    await any_page.goto(f"{site.url}/admin/lists/new")
    await any_page.get_by_role("textbox", name="Name").fill("two words")
    await any_page.get_by_label("Description").fill("Kept words")
    await any_page.get_by_label("From").fill("donotreply@contoso.edu")
    await any_page.get_by_label("Let anybody sign up").check()
    await any_page.get_by_role("button", name="Save").click()
    await expect(any_page.get_by_role("alert")).to_contain_text("cannot be a list name")
    await expect(any_page.get_by_role("textbox", name="Name")).to_have_value("two words")
    await expect(any_page.get_by_label("Description")).to_have_value("Kept words")
    await expect(any_page.get_by_label("From")).to_have_value("donotreply@contoso.edu")
    await expect(any_page.get_by_label("Let anybody sign up")).to_be_checked()


async def test_the_menu_opens_on_a_phone_without_script(
    site: RunningSite, page_without_script: Page
) -> None:
    page = page_without_script
    await page.set_viewport_size({"width": 360, "height": 740})
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin")
    link = page.get_by_role("link", name="Lists", exact=True)
    await expect(link).to_be_hidden()
    await page.get_by_label("Show menu").check()
    await link.click()
    await expect(page.get_by_role("heading", name="Lists", level=1)).to_be_visible()


async def test_a_persons_facts_can_be_read_however_long_the_name_of_an_attribute_is(
    site: RunningSite, page: Page
) -> None:
    """A heading such as “Preferred way of contact” becomes one long word, and takes its share."""
    await make_list(site, "long_names")
    long = "preferred_way_of_contact_of_the_customer=phone"
    await site.run("subscriber", "add", "long_names", "ada@contoso.edu", "--attribute", long)
    await page.set_viewport_size({"width": 360, "height": 740})
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/subscribers?list=long_names")
    await page.get_by_role("link", name="ada@contoso.edu").click()
    await expect(page.locator(".facts dd", has_text="phone")).to_be_visible()

    async def fits() -> bool:  # both measured at one moment, once the page is laid out
        return bool(await page.evaluate(VALUE_FITS))

    await until(fits, within_s=WAIT_MS_MAX / 1000)
