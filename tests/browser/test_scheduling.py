"""Later, at another time, and not at all: a message is scheduled, rescheduled and unscheduled."""

from __future__ import annotations

from uuid import uuid4

from playwright.async_api import Page, expect

from tests.browser.chromium import Troubles, axe
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

ZONE = "Europe/Berlin"


async def draft(site: RunningSite) -> str:
    """The path of a draft to a list with one subscriber."""
    name = f"later_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    await site.run("subscriber", "add", name, "ada@contoso.edu", "--verified")
    body = site.folder / f"{name}.htm"
    body.write_text("<h1>Later</h1>", encoding="utf-8")
    options = ("--list", name, "--subject", "A letter", "--html", str(body))
    written = await site.json("message", "create", *options)
    return f"/admin/messages/{written['ref']}"


async def choose(page: Page, date: str, time: str) -> None:
    await page.get_by_label("Date").fill(date)
    await page.locator("#time").fill(time)
    await page.get_by_label("Time zone").fill(ZONE)
    await page.locator("main form button.btn-primary").click()


async def test_a_message_is_scheduled_rescheduled_and_brought_back_to_draft(
    site: RunningSite, any_page: Page
) -> None:
    path = await draft(site)
    await sign_in_page(site, any_page)
    await any_page.goto(site.url + path)
    await any_page.get_by_role("link", name="Schedule…").click()
    await choose(any_page, "2119-11-17", "09:00")
    notice = any_page.get_by_role("status").first
    await expect(notice).to_have_text(
        "Scheduled for Fri 17 Nov 2119, 09:00 (Europe/Berlin), 1 subscriber."
    )
    await expect(any_page).to_have_url(site.url + path)
    await any_page.reload()
    said = any_page.get_by_role("status").filter(has_text="Scheduled for")
    await expect(said).to_have_count(0)  # once
    await any_page.get_by_role("link", name="Reschedule…").click()
    await expect(any_page.get_by_label("Date")).to_have_value("2119-11-17")
    await expect(any_page.get_by_label("Time zone")).to_have_value(ZONE)
    await choose(any_page, "2119-11-17", "10:30")
    await expect(notice).to_contain_text("Fri 17 Nov 2119, 10:30 (Europe/Berlin)")
    await any_page.get_by_role("button", name="Unschedule").click()
    await expect(notice).to_have_text(
        "Unscheduled. The message is a draft again and will not be sent."
    )
    shown = await site.json("message", "show", path.rpartition("/")[2])
    assert (shown["status"], shown["due_at"], shown["sent"]) == ("draft", None, 0)


async def test_an_hour_that_comes_twice_is_chosen_by_a_radio_button(
    site: RunningSite, any_page: Page, troubles: Troubles
) -> None:
    troubles.expect("422")
    path = await draft(site)
    await sign_in_page(site, any_page)
    await any_page.goto(f"{site.url}{path}/schedule")
    await choose(any_page, "2027-10-31", "02:30")
    await any_page.get_by_label("The second 02:30").check()
    await any_page.locator("main form button.btn-primary").click()
    await expect(any_page.get_by_role("status").first).to_contain_text("Scheduled for")
    shown = await site.json("message", "show", path.rpartition("/")[2])
    assert shown["due_at"] == "2027-10-31T01:30:00Z"


async def test_the_button_says_for_when(site: RunningSite, page: Page) -> None:
    path = await draft(site)
    await sign_in_page(site, page)
    await page.goto(f"{site.url}{path}/schedule")
    button = page.locator("main form button.btn-primary")
    await expect(button).to_have_text("Schedule")
    await page.get_by_label("Date").fill("2119-11-17")
    await page.locator("#time").fill("09:00")
    await expect(button).to_contain_text("Schedule for")
    await expect(button).to_contain_text("2119")


async def test_the_pages_of_a_scheduled_message_have_no_barrier_and_fit_a_phone(
    site: RunningSite, page: Page, troubles: Troubles
) -> None:
    troubles.expect("422")
    path = await draft(site)
    await sign_in_page(site, page)
    await page.set_viewport_size({"width": 360, "height": 800})
    await page.goto(f"{site.url}{path}/schedule")
    await choose(page, "2027-10-31", "02:30")
    await expect(page.get_by_text("Which 02:30?")).to_be_visible()
    assert await axe(page) == []
    too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await page.evaluate(too_wide)
    await page.get_by_label("The first 02:30").check()
    await page.locator("main form button.btn-primary").click()
    for each in ("", "/schedule", "/send"):
        await page.goto(site.url + path + each)
        assert await axe(page) == [], each
        assert not await page.evaluate(too_wide), each
