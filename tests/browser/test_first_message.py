"""The first five minutes: from the link in the terminal to a mail that was read, and left."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from postroom_bench.installation import until
from tests.browser.chromium import WAIT_MS_MAX, Troubles, axe, expect_to_fit, watched_page
from tests.browser.running_site import RunningSite, running_site
from tests.browser.signed_in import sign_in_page

MYSELF = "owner@contoso.edu"
PASSWORD = "four words are good"
GONE_OUT_S_MAX = 120.0
OPENS_MS = 2000.0
WATCH_PAGE = re.compile(r"/admin/messages/\d+$")


@pytest_asyncio.fixture
async def new_site(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> AsyncIterator[RunningSite]:
    """One that nobody has ever visited."""
    async with running_site(tmp_path, unused_tcp_port_factory()) as site:
        yield site


def printed_link(site: RunningSite) -> str:
    said = "".join(out.read_text() for out in site.folder.glob("**/*.out"))
    found = re.search(r"http://\S+/admin/welcome/\S+", said)
    assert found, said
    return found[0]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
async def test_from_the_link_in_the_terminal_to_a_mail_read_and_the_list_left(
    new_site: RunningSite, browser: Browser, script: bool
) -> None:
    async with watched_page(browser, Troubles(), script=script) as page:
        await make_account(page, new_site)
        await make_list(page)
        await add_self(page)
        await write_from_template(page)
        if script:
            await ask_for_test(page)
        await send_now(page)
        await (watch if script else reload)(page)
        await read_in_outbox_and_leave(page)
        await expect_nobody_left(page)


async def make_account(page: Page, site: RunningSite) -> None:
    await page.goto(printed_link(site))
    await page.get_by_label("address").fill(MYSELF)
    await page.get_by_label("password").fill(PASSWORD)
    await page.get_by_role("button").last.click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def make_list(page: Page) -> None:
    await page.get_by_role("link", name="Create a list").click()
    await page.get_by_role("textbox", name="Name").fill("contoso1")
    await page.get_by_label("Description").fill("History Department announcements")
    await page.get_by_label("From").fill("donotreply@contoso.edu")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="contoso1")).to_be_visible()


async def add_self(page: Page) -> None:
    await page.get_by_role("link", name="Overview").click()
    await page.get_by_role("link", name="Add yourself to it").click()
    await page.locator("#address").fill(MYSELF)
    await page.locator("#verified").check()
    await page.locator("main form button.btn-primary").click()
    await expect(page.get_by_role("status").first).to_contain_text("Added")


async def write_from_template(page: Page) -> None:
    await page.get_by_role("link", name="Messages").click()
    await page.get_by_role("link", name="Write").first.click()
    await page.get_by_role("link", name="Announcement").click()
    await page.get_by_label("Subject").fill("New lecture series")
    await page.locator(".block").first.get_by_label("Heading").fill("A new lecture series begins")
    await page.get_by_role("button", name="Preview").click()
    mail = page.frame_locator("iframe.mail")
    await expect(mail.get_by_role("heading", name="A new lecture series begins")).to_be_visible()
    await page.get_by_role("button", name="Save and check").click()
    await expect(mail.get_by_role("link", name="Find out more")).to_be_visible()
    await expect(page.get_by_text("contains an unsubscribe link")).to_be_visible()


async def ask_for_test(page: Page) -> None:
    """What became of it appears below the button, by itself; and that it was not sent."""
    await page.get_by_role("button", name="Send test email").click()
    await expect(page.locator("#test-outcome")).to_contain_text("Kept in the test mailbox")
    await expect(page.get_by_text("so emails are kept here instead of being sent")).to_be_visible()


async def send_now(page: Page) -> None:
    await page.get_by_role("link", name="Send now…").click()
    await expect(page.get_by_text("History Department announcements")).to_be_visible()
    await page.get_by_role("button", name="Send now to 1 subscriber").click()
    await page.wait_for_url(WATCH_PAGE)
    await expect(page.get_by_role("status").first).to_contain_text("Sending to 1 subscriber")


async def watch(page: Page) -> None:
    """It completes before the reader's eyes: nothing is loaded again."""
    await page.evaluate("window.isStillThisPage = true")
    await expect(page.get_by_role("heading", name="Sent", exact=True)).to_be_visible()
    await expect(page.get_by_text("recipient, accounted for.")).to_be_visible()
    await expect(page.get_by_role("cell", name=MYSELF)).to_be_visible()
    assert await page.evaluate("window.isStillThisPage")


async def reload(page: Page) -> None:
    gone_out = page.get_by_role("heading", name="Sent", exact=True)
    again = page.get_by_role("link", name="Reload")

    async def look() -> bool:
        await expect(gone_out.or_(again)).to_be_visible()  # a page that is half there has neither
        if await again.is_visible():
            await again.click()
        return await gone_out.is_visible()

    await until(look, within_s=GONE_OUT_S_MAX)
    await expect(page.get_by_role("cell", name=MYSELF)).to_be_visible()


async def read_in_outbox_and_leave(page: Page) -> None:
    await page.get_by_role("link", name="Test mailbox").first.click()
    await page.get_by_role("link", name="New lecture series").first.click()
    mail = page.frame_locator("iframe.mail")
    await expect(mail.get_by_text("Hello there,")).to_be_visible()
    leaving = await open_elsewhere(page, mail.get_by_role("link", name="Unsubscribe"))
    await leaving.get_by_role("button", name="Unsubscribe").click()
    await expect(leaving.get_by_role("heading", name="You’ve unsubscribed")).to_be_visible()
    await leaving.close()


async def open_elsewhere(page: Page, link: Locator) -> Page:
    """Whose window does not open on a busy machine clicks once more, as people do."""
    windows: list[Page] = []
    page.context.on("page", lambda opened: windows.append(opened))  # takes no built-in function

    async def look() -> bool:
        if not windows:
            await link.click()
            await page.wait_for_timeout(OPENS_MS)
        return bool(windows)

    await until(look, within_s=WAIT_MS_MAX / 1000)
    return windows[0]


async def expect_nobody_left(page: Page) -> None:
    await page.get_by_role("link", name="Messages").click()
    await page.get_by_role("link", name="New lecture series").click()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_label("Subject")).to_have_value("Copy of New lecture series")
    await page.get_by_role("button", name="Save and check").click()
    await page.get_by_role("link", name="Send now…").click()
    await expect(page.get_by_role("heading", name="Nobody would get this message")).to_be_visible()
    await expect(page.get_by_role("button", name="Send now")).to_have_count(0)


# --- Writing ----------------------------------------------------------------------------------


async def test_the_preview_follows_what_is_typed_and_going_back_leaves_the_page(
    site: RunningSite, page: Page
) -> None:
    await site.run("list", "create", "typed", "--from", "a@contoso.edu")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/messages")
    await page.goto(f"{site.url}/admin/messages/new?kind=html&list=typed")
    mail = page.frame_locator("iframe.mail")
    for words in ("First words", "Second words"):
        await page.get_by_label("Body", exact=True).fill(f"<h1>{words}</h1><a href=''>x</a>")
        await expect(mail.get_by_role("heading", name=words)).to_be_visible()
        await expect(page.get_by_text("Links without a target: 1.")).to_be_visible()
    await page.go_back()
    await expect(page).to_have_url(f"{site.url}/admin/messages")


async def test_pages_of_messages_have_no_barrier_and_fit_a_phone(
    site: RunningSite, page: Page
) -> None:
    await site.run("list", "create", "looked", "--from", "a@contoso.edu")
    body = site.folder / "looked.htm"
    body.write_text("<h1>Looked at</h1>", encoding="utf-8")
    written = await site.json(
        *("message", "create", "--list", "looked", "--subject", "Looked at", "--html", str(body))
    )
    path = f"/admin/messages/{written['ref']}"
    await sign_in_page(site, page)
    await page.set_viewport_size({"width": 390, "height": 844})
    paths = ["/admin", "/admin/messages", "/admin/messages/new", "/admin/outbox"]
    paths += [path, *(f"{path}/{name}" for name in ("write", "send", "schedule", "delete", "look"))]
    for each in paths:
        await page.goto(site.url + each)
        assert await axe(page) == [], each
        await expect_to_fit(page)
