"""Journeys of somebody who writes: drafts save themselves, and nobody loses a word by leaving."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest_asyncio
from playwright.async_api import Dialog, Locator, Page, expect

from postroom.flow import compose
from postroom.flow.compose import Revision
from postroom.records import bodies, messages
from tests.browser.chromium import Troubles
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

EDIT_PAGE = re.compile(r"/admin/messages/(\d+)/write$")
WIDE_AND_NARROW = (
    "<style>.wide { display: block } .narrow { display: none }"
    "@media (max-width: 600px) { .wide { display: none } .narrow { display: block } }</style>"
    '<p class="wide">Wide</p><p class="narrow">Narrow</p>'
)


@pytest_asyncio.fixture
async def new_message(site: RunningSite) -> str:
    name = f"autosave_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    return f"{site.url}/admin/messages/new?kind=html&list={name}"


async def begin(site: RunningSite, page: Page, new_message: str, subject: str = "Words") -> None:
    await sign_in_page(site, page)
    await page.goto(new_message)
    await page.get_by_label("Subject").fill(subject)
    await body(page).fill("<p>First words</p>")


def body(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Body")


def line(page: Page) -> Locator:
    return page.locator("#autosave")


async def ref_of(page: Page) -> str:
    await expect(page).to_have_url(EDIT_PAGE)
    found = EDIT_PAGE.search(page.url)
    assert found
    return found[1]


async def html_of(site: RunningSite, ref: str) -> str | None:
    storage = site.parts.storage
    html, _text = await bodies.load(storage.blobs, await messages.read(storage.tables, ref))
    return html


async def test_a_draft_saves_itself_and_is_there_when_the_page_is_loaded_again(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await begin(site, page, new_message)
    await expect(line(page)).to_contain_text("Draft saved")
    ref = await ref_of(page)
    async with page.expect_response("**/autosave"):
        await body(page).fill("<p>Second words</p>")
    await page.reload()
    await expect(body(page)).to_have_value("<p>Second words</p>")
    await body(page).fill("<p>Third words</p>")
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert page.url == f"{site.url}/admin/messages/{ref}"
    assert await html_of(site, ref) == "<p>Third words</p>"


async def test_what_somebody_else_wrote_stays_and_the_form_says_so(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await begin(site, page, new_message)
    ref = await ref_of(page)
    storage = site.parts.storage
    found = await messages.find_live(storage.tables, ref)
    assert found
    await compose.edit(storage, ref, Revision(html="<p>Theirs</p>"), found[1])
    await body(page).fill("<p>Mine</p>")
    await expect(line(page)).to_contain_text("somebody else changed this message")
    assert await html_of(site, ref) == "<p>Theirs</p>"
    await expect(body(page)).to_have_value("<p>Mine</p>")


async def test_who_signed_out_in_another_tab_reads_so_and_loses_nothing(
    site: RunningSite, page: Page, new_message: str, troubles: Troubles
) -> None:
    troubles.expect("401")  # the save, and the preview beside it
    troubles.expect("403")
    await begin(site, page, new_message)
    ref = await ref_of(page)
    other = await page.context.new_page()
    await other.goto(f"{site.url}/admin")
    await other.get_by_role("button", name="Sign out").click()
    await expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    await body(page).fill("<p>Written since</p>")
    await expect(line(page)).to_contain_text("you are signed out")
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="Sign in again")).to_be_visible()
    await sign_in_page(site, page)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert await html_of(site, ref) == "<p>Written since</p>"


async def test_a_link_is_followed_once_the_draft_is_saved(
    site: RunningSite, page: Page, new_message: str
) -> None:
    subject = f"Left at once {uuid4().hex[:8]}"
    await begin(site, page, new_message, subject)
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Messages").click()
    await expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    await expect(page.get_by_role("link", name=subject)).to_be_visible()


async def test_who_leaves_what_cannot_be_saved_is_asked(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await sign_in_page(site, page)
    await page.goto(new_message)
    await body(page).click()
    await page.keyboard.type("Words without a subject")
    await expect(line(page)).to_contain_text("Not saved yet. The subject is empty")

    async def stay(question: Dialog) -> None:
        await question.dismiss()

    page.on("dialog", stay)  # a click may wait for the answer
    async with page.expect_event("dialog") as asked:
        await page.get_by_role("link", name="Announcement").click()
    assert (await asked.value).type == "beforeunload"
    await expect(body(page)).to_have_value("Words without a subject")


async def test_a_scheduled_message_is_saved_by_hand_alone(site: RunningSite, page: Page) -> None:
    name = f"autosave_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    file = site.folder / "scheduled.htm"
    file.write_text("<p>As scheduled</p>")
    make = ("message", "create", "--list", name, "--subject", "Later", "--html", str(file))
    ref = (await site.json(*make, "--at", "2120-01-01T09:00Z"))["ref"]
    await sign_in_page(site, page)
    saves: list[str] = []
    page.on("request", lambda request: saves.append(request.url))
    await page.goto(f"{site.url}/admin/messages/{ref}/write")
    await expect(line(page)).to_contain_text("Autosave is off")
    await body(page).fill("<p>Half a sen</p>")
    await expect(page.frame_locator("iframe.mail").get_by_text("Half a sen")).to_be_visible()
    assert [url for url in saves if "autosave" in url] == []
    assert await html_of(site, ref) == "<p>As scheduled</p>"


# Another submission of a form replaces the one before, as long as the browser has not sent it.
SAVE_AS_THE_CHECKS_ARRIVE = """
    save => {
        save.click();
        const checks = document.getElementById("checks");
        const detail = { elt: checks };
        checks.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true, detail }));
    }
"""


async def test_checks_that_arrive_on_saving_leave_the_form_alone(
    site: RunningSite, page: Page, new_message: str
) -> None:
    """They update the preview, which is a submission of the same form."""
    await begin(site, page, new_message)
    await page.get_by_role("button", name="Save and check").evaluate(SAVE_AS_THE_CHECKS_ARRIVE)
    await expect(page.get_by_role("button", name="Send test email")).to_be_visible()


# --- What it looks like -----------------------------------------------------------------------


async def test_one_click_makes_plain_text_a_letter(
    site: RunningSite, page: Page, new_message: str
) -> None:
    await begin(site, page, new_message)
    await body(page).fill("Dear all,\n\nwe are back.\n\nErika\nOffice")
    await page.get_by_role("button", name="Switch to Markdown").click()
    await expect(page.get_by_role("button", name="Switch to Markdown")).to_be_hidden()
    await expect(page.get_by_label("Markdown")).to_be_checked()
    letter = page.frame_locator("iframe.mail").locator("p", has_text="Erika")
    await expect(letter).to_have_text(re.compile(r"Erika\s+Office"))
    assert "\n" in await letter.inner_text()


async def test_the_desktop_preview_is_as_wide_as_a_desktop(
    site: RunningSite, any_page: Page, new_message: str
) -> None:
    """Also without script, and on a phone: it is scaled to fit."""
    page = any_page
    await sign_in_page(site, page)
    await page.goto(new_message)
    await page.get_by_label("Subject").fill("Wide")
    await body(page).fill(WIDE_AND_NARROW)
    await page.get_by_role("button", name="Save and check").click()
    mail = page.frame_locator("iframe.mail")
    for width in (1280, 360):
        await page.set_viewport_size({"width": width, "height": 800})
        await page.get_by_label("Desktop").check()
        await expect(mail.get_by_text("Wide")).to_be_visible()
        await expect(mail.get_by_text("Narrow")).to_be_hidden()
        frame, box = page.locator("iframe.mail"), page.locator(".mail-box")
        shown, room = await frame.bounding_box(), await box.bounding_box()
        assert shown
        assert room
        assert shown["width"] <= room["width"]
        assert shown["height"] <= room["height"]
        await page.get_by_label("Phone").check()
        await expect(mail.get_by_text("Narrow")).to_be_visible()
        await expect(mail.get_by_text("Wide")).to_be_hidden()
