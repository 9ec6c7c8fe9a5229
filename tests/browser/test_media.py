"""A picture comes into a message: chosen as a file, dropped or pasted; also without script."""

from __future__ import annotations

import base64
import re

from playwright.async_api import FilePayload, Page, expect

from tests import picture_samples as samples
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

# Files come from the desktop or the clipboard; a page can make such an event itself.
GIVE = """(place, [kind, name, content]) => {
  const bytes = Uint8Array.from(atob(content), (sign) => sign.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], name, { type: "image/png" }));
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: files })
    : new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: files });
  place.dispatchEvent(event);
}"""


def given(kind: str, name: str, content: bytes) -> list[str]:
    return [kind, name, base64.b64encode(content).decode()]


def payload(name: str, content: bytes) -> FilePayload:
    return FilePayload(name=name, mimeType="image/png", buffer=content)


async def begin(site: RunningSite, page: Page, name: str) -> None:
    """A new message whose last block is a picture."""
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/messages/new?list={name}&template=letter")
    await page.get_by_label("Subject").fill("With a picture")
    adding = page.locator("#blocks > .block-add")
    await adding.locator("summary").click()
    await adding.get_by_role("button", name="Picture").click()


async def test_a_picture_is_uploaded_into_a_block_without_script(
    site: RunningSite, page_without_script: Page
) -> None:
    page = page_without_script
    await begin(site, page, "plain_pictures")
    await page.get_by_label("Upload a picture").set_input_files(
        payload("lake.png", samples.png(700, 300))
    )
    await page.get_by_role("button", name="Upload", exact=True).click()
    shown = page.locator(".block img.picture-small")
    await expect(shown).to_have_attribute("src", re.compile(r"^/m/\w+-700\.png$"))
    await page.get_by_label("Alt text", exact=True).last.fill("A lake")
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="With a picture")).to_be_visible()


async def test_a_picture_is_chosen_dropped_and_pasted(site: RunningSite, page: Page) -> None:
    await begin(site, page, "script_pictures")
    field = page.get_by_label("Upload a picture")
    await field.set_input_files(payload("lake.png", samples.png(710, 300)))
    shown = page.locator(".block img.picture-small")
    await expect(shown).to_have_attribute("src", re.compile(r"-710\.png$"))
    block = page.locator(".block[data-kind=picture]")
    await block.evaluate(GIVE, given("drop", "hill.png", samples.png(720, 300)))
    await expect(shown).to_have_attribute("src", re.compile(r"-720\.png$"))
    await block.get_by_label("Alt text", exact=True).evaluate(
        GIVE, given("paste", "image.png", samples.png(730, 300))
    )
    await expect(shown).to_have_attribute("src", re.compile(r"-730\.png$"))
    await block.get_by_role("button", name="Choose another picture").click()
    await expect(block).to_be_focused()
    await expect(block.get_by_label("Upload a picture")).to_be_in_viewport()  # nothing jumps away
    await block.get_by_role("button", name="hill.png").click()
    await expect(shown).to_have_attribute("src", re.compile(r"-720\.png$"))
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="With a picture")).to_be_visible()

    await page.goto(f"{site.url}/admin/media")
    await page.locator("main").evaluate(GIVE, given("drop", "tree.png", samples.png(740, 300)))
    await expect(page.get_by_role("heading", name="tree.png")).to_be_visible()
    await page.get_by_label("Alt text").fill("A tree")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_contain_text("Saved.")
