"""A newsletter of three sections with a picture, a button and a file: by keyboard, without script.

Made from a template, previewed, sent as a test and scheduled, by somebody who knows no HTML.
"""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

from playwright.async_api import FilePayload, Locator, Page, expect

from postroom.domain.block import ArticlesBlock, ButtonBlock, PictureBlock, parse_document
from postroom.records import bodies, messages
from postroom_bench.installation import until
from tests import picture_samples
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

STORIES = ["The archive moves", "A new lecture", "Exhibition in May"]
SUBJECT = "History news"
MESSAGE_PAGE = re.compile(r"/admin/messages/(\d+)$")
TEST_MAIL_S_MAX = 120.0
TABS_MAX = 150  # to reach anything on the page
PLAN: FilePayload = {"name": "Plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 plan"}


async def begin(site: RunningSite, page: Page) -> None:
    """A list with one subscriber; the page is that of the list."""
    name = f"newsletter_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "History Department <a@contoso.edu>")
    await site.run("subscriber", "add", name, "ada@contoso.edu", "--verified")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/lists/{name}")


async def expect_newsletter(site: RunningSite, page: Page) -> None:
    """What was made is scheduled, and went to the test mailbox before."""
    found = MESSAGE_PAGE.search(page.url)
    assert found
    message = await messages.read(site.parts.storage.tables, found[1])
    assert (message.status, message.subject) == ("pending", SUBJECT)
    assert [file.name for file in message.attachments] == ["Plan.pdf"]
    source = await bodies.load_source(site.parts.storage.blobs, message)
    assert source
    blocks = parse_document(source.text).blocks
    [articles] = [block for block in blocks if isinstance(block, ArticlesBlock)]
    assert [article.title for article in articles.articles] == STORIES
    [picture] = [block for block in blocks if isinstance(block, PictureBlock)]
    assert picture.src.startswith("/m/")
    assert picture.alt == "A lake"
    [button] = [block for block in blocks if isinstance(block, ButtonBlock)]
    assert (button.text, button.href) == ("All news", "https://contoso.edu/news")
    await until(lambda: is_tested(site), within_s=TEST_MAIL_S_MAX)
    await page.goto(f"{site.url}/admin/outbox")
    await page.get_by_role("link", name=f"[Test] {SUBJECT}").first.click()
    await expect(page.get_by_role("link", name="Plan.pdf")).to_be_visible()


async def is_tested(site: RunningSite) -> bool:
    return any(str(mail["subject"]) == f"[Test] {SUBJECT}" for mail in await site.mails())


# --- Without script ---------------------------------------------------------------------------


async def test_a_newsletter_is_made_without_script(
    site: RunningSite, page_without_script: Page
) -> None:
    page = page_without_script
    await begin(site, page)
    await page.get_by_role("link", name="Write a message").click()
    await page.get_by_role("link", name="Newsletter").click()
    await page.get_by_label("Subject").fill(SUBJECT)
    await page.get_by_label("Heading").first.fill("What is new")
    for number, title in enumerate(STORIES):
        await page.get_by_label("Title").nth(number).fill(title)
    await page.get_by_label("Text on the button").fill("All news")
    await (
        page.locator(".block[data-kind=button]")
        .get_by_label("Link")
        .fill("https://contoso.edu/news")
    )
    adding = page.locator("#blocks > .block-add")
    await adding.locator("summary").click()
    await adding.get_by_role("button", name="Picture").click()
    await page.get_by_label("Upload a picture").set_input_files(
        FilePayload(name="lake.png", mimeType="image/png", buffer=picture_samples.png(640, 300))
    )
    await page.get_by_role("button", name="Upload", exact=True).click()
    picture = page.locator(".block[data-kind=picture]")
    await picture.get_by_label("Alt text", exact=True).fill("A lake")
    await page.get_by_label("Files to attach").set_input_files([PLAN])
    await page.get_by_role("button", name="Save and attach").click()
    await expect(page.get_by_role("link", name="Plan.pdf")).to_be_visible()

    mail = page.frame_locator("iframe.mail")
    await page.get_by_role("button", name="Preview", exact=True).click()
    await expect(mail.get_by_role("link", name=STORIES[2])).to_be_visible()
    await page.get_by_role("button", name="Save and check").click()
    for way in ("Phone", "Dark", "Desktop"):
        await page.get_by_label(way).check()
        await expect(mail.get_by_role("link", name="All news")).to_be_visible()
    await page.get_by_label("Text", exact=True).check()
    await expect(page.get_by_label("Plain-text version")).to_contain_text(STORIES[0])
    await page.get_by_label("Preview as subscriber").fill("ada@contoso.edu")
    await page.get_by_role("button", name="Show").click()
    await expect(mail.get_by_role("img", name="A lake")).to_be_visible()
    await page.get_by_role("button", name="Send test email").click()
    await expect(page.get_by_role("status").first).to_contain_text("Test email requested")
    await page.get_by_role("link", name="Schedule…").click()
    await page.get_by_label("Date").fill("2119-11-17")
    await page.locator("#time").fill("09:00")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await page.get_by_role("button", name="Schedule").click()
    await expect(page.get_by_role("status").first).to_contain_text("Scheduled for Fri 17 Nov 2119")
    await expect_newsletter(site, page)


# --- By keyboard alone ------------------------------------------------------------------------


async def reach(page: Page, target: Locator, key: str = "Tab") -> None:
    """Go there with the Tab key, as somebody does who uses no mouse."""
    for _step in range(TABS_MAX):
        await page.keyboard.press(key)
        if await target.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"{target} was not reached with {key}")


async def write(page: Page, target: Locator, words: str) -> None:
    await reach(page, target)
    await page.keyboard.press("Control+a")
    await page.keyboard.type(words)


async def press(page: Page, target: Locator, key: str = "Enter") -> None:
    await reach(page, target)
    await page.keyboard.press(key)


async def choose(page: Page, target: Locator, file: Path) -> None:
    """The dialog for files belongs to the system: what is tried is that Enter opens it."""
    await reach(page, target)
    async with page.expect_file_chooser() as dialog:
        await page.keyboard.press("Enter")
    await (await dialog.value).set_files(file)


async def fill_in(page: Page, folder: Path) -> None:
    """The texts of the template, then a picture after the last block, then a file."""
    await write(page, page.get_by_label("Heading").first, "What is new")
    await page.keyboard.press("Enter")  # presses no button, least of all one that moves a block
    await expect(page.locator(".block").first).to_have_attribute("data-kind", "heading")
    for number, title in enumerate(STORIES):
        await write(page, page.get_by_label("Title").nth(number), title)
    await write(page, page.get_by_label("Text on the button"), "All news")
    link = page.locator(".block[data-kind=button]").get_by_label("Link")
    await write(page, link, "https://contoso.edu/news")
    adding = page.locator("#blocks > .block-add")
    await press(page, adding.locator("summary"))
    await press(page, adding.get_by_role("button", name="Picture"))
    picture = page.locator(".block[data-kind=picture]")
    await expect(picture).to_be_focused()
    lake = folder / "lake.png"
    lake.write_bytes(picture_samples.png(650, 300))
    await choose(page, page.get_by_label("Upload a picture"), lake)
    await expect(picture.locator("img.picture-small")).to_be_visible()
    await expect(picture).to_be_focused()
    await press(page, picture.get_by_role("button", name="Remove block"))
    await expect(picture).to_have_count(0)
    await expect(page.get_by_role("button", name="Undo")).to_be_in_viewport()
    await page.keyboard.press("Control+z")
    await expect(picture).to_be_focused()
    await write(page, picture.get_by_label("Alt text", exact=True), "A lake")
    plan = folder / "Plan.pdf"
    plan.write_bytes(PLAN["buffer"])
    await choose(page, page.get_by_label("Files to attach"), plan)
    await press(page, page.get_by_role("button", name="Save and attach"))
    await expect(page.get_by_role("link", name="Plan.pdf")).to_be_visible()


async def test_a_newsletter_is_made_by_keyboard_alone(
    site: RunningSite, page: Page, tmp_path: Path
) -> None:
    # Chromium hands dialogs for files over from now on; asked for just before, it may be too late.
    page.on("filechooser", lambda _dialog: None)
    await begin(site, page)
    await press(page, page.get_by_role("link", name="Write a message"))
    await expect(page.get_by_label("Subject")).to_be_focused()
    await press(page, page.get_by_role("link", name="Newsletter"))
    await expect(page.get_by_label("Subject")).to_be_focused()
    await page.keyboard.type(SUBJECT)
    await fill_in(page, tmp_path)

    mail = page.frame_locator("iframe.mail")
    await press(page, page.get_by_role("button", name="Save and check"))
    await expect(mail.get_by_role("link", name=STORIES[2])).to_be_visible()
    await reach(page, page.get_by_label("Desktop"))
    for way in ("Phone", "Dark", "Text"):
        await page.keyboard.press("ArrowRight")
        await expect(page.get_by_label(way, exact=True)).to_be_checked()
    await expect(page.get_by_label("Plain-text version")).to_contain_text(STORIES[0])
    await write(page, page.get_by_label("Preview as subscriber"), "ada@contoso.edu")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**as=ada**")
    await expect(mail.get_by_role("img", name="A lake")).to_be_visible()
    await press(page, page.get_by_role("button", name="Send test email"))
    await expect(page.locator("#test-outcome")).to_contain_text("Kept in the test mailbox")
    await press(page, page.get_by_role("link", name="Schedule…"))
    await reach(page, page.get_by_label("Date"))
    await page.keyboard.type("11172119")
    await reach(page, page.locator("#time"))
    await page.keyboard.type("0900AM")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").first).to_contain_text("Scheduled for Fri 17 Nov 2119")
    await expect_newsletter(site, page)
