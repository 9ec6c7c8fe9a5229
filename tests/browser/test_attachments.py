"""Journeys of somebody who attaches files: with script and without, at every width."""

from __future__ import annotations

import os
import re
from uuid import uuid4

from playwright.async_api import FilePayload, Page, Request, expect

from tests.browser.chromium import axe, expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

PLAN: FilePayload = {
    "name": "Plan für Mai.pdf",
    "mimeType": "application/pdf",
    "buffer": b"%PDF" * 400_000,
}
MAP: FilePayload = {"name": "map.png", "mimeType": "image/png", "buffer": b"a map"}


async def begin(site: RunningSite, page: Page) -> None:
    name = f"files_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    await site.run("subscriber", "add", name, "ada@contoso.edu", "--verified")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/messages/new?kind=html&list={name}")
    await page.get_by_label("Subject").fill("Programme")
    await page.get_by_role("textbox", name="Body").fill("<p>See the attachments.</p>")


async def test_files_are_attached_shown_and_removed(site: RunningSite, any_page: Page) -> None:
    page = any_page
    await begin(site, page)
    await page.get_by_label("Files to attach").set_input_files([PLAN, MAP])
    await page.get_by_role("button", name="Save and attach").click()
    await expect(page).to_have_url(re.compile(r"/admin/messages/\d+/write#attachments$"))
    await expect(page.get_by_role("link", name=PLAN["name"])).to_be_visible()
    await expect(page.get_by_text("2.1 MiB per email, 2.1 MiB for 1 recipient")).to_be_visible()
    await page.get_by_role("button", name=f"Remove {MAP['name']}").click()
    await expect(page.get_by_text("The attachment was removed")).to_be_visible()
    await expect(page.get_by_role("link", name=MAP["name"])).to_have_count(0)
    await page.get_by_role("button", name="Save and check").click()
    async with page.expect_download() as download:
        await page.get_by_role("link", name=PLAN["name"]).click()
    assert (await download.value).suggested_filename == PLAN["name"]


async def test_a_chosen_file_is_sent_with_the_form_alone(site: RunningSite, page: Page) -> None:
    await begin(site, page)
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST" and b"%PDF" in (request.post_data_buffer or b""):
            sent.append(request.url)

    page.on("request", note)
    await page.get_by_label("Files to attach").set_input_files([PLAN])
    async with page.expect_response("**/messages/preview"), page.expect_response("**/autosave"):
        await page.get_by_label("Subject").fill("Another subject")
    assert sent == []
    await page.get_by_role("button", name="Save and attach").click()
    await expect(page.get_by_role("link", name=PLAN["name"])).to_be_visible()
    assert len(sent) == 1
    assert await axe(page) == []
    for width in (360, 1400):
        await page.set_viewport_size({"width": width, "height": 900})
        if folder := os.environ.get("POSTROOM_PICTURES"):
            await page.locator("#attachments").scroll_into_view_if_needed()
            await page.screenshot(path=f"{folder}/attach-{width}.png")
        await expect_to_fit(page)
