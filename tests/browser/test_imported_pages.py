"""A newsletter made elsewhere: imported, looked at, corrected, copied, kept as a template."""

from __future__ import annotations

import io
import zipfile

from playwright.async_api import Page, expect

from tests.browser.chromium import expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page
from tests.picture_samples import png


def zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(
            "index.html",
            "<title>News from elsewhere</title>\n<p>Hello</p>\n<script>x()</script>"
            '<img src="images/a.png">\n<p><a href="{{ site_url }}">Home</a></p>',
        )
        archive.writestr("images/a.png", png())
    return target.getvalue()


async def test_a_zip_is_imported_corrected_copied_and_kept(
    any_page: Page, site: RunningSite
) -> None:
    page = any_page
    await sign_in_page(site, page)
    lists = await site.json("list", "all", "--json")
    if not any(each["name"] == "brought" for each in lists):
        await site.run("list", "create", "brought", "--from", "a@contoso.edu")
    await page.goto(f"{site.url}/admin/messages/new?list=brought")
    await page.get_by_role("link", name="Import an HTML page or a zip").click()
    await page.get_by_label("File").set_input_files(
        {"name": "news.zip", "mimeType": "application/zip", "buffer": zipped()}
    )
    await page.set_viewport_size({"width": 360, "height": 700})
    await expect_to_fit(page)
    await page.get_by_role("button", name="Import").click()
    await expect(page.get_by_text("1 picture was added to the media library.")).to_be_visible()
    await expect(page.get_by_text("Scripts were removed")).to_be_visible()
    await page.wait_for_load_state()  # its styles decide how wide it is
    await expect_to_fit(page)
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.get_by_role("link", name="Preview and check").click()
    await (
        page.locator("li", has_text="Line 3: This picture has no alt text")
        .get_by_role("link", name="Show me")
        .click()
    )
    await expect(page.locator("textarea#body")).to_contain_text("site_url")
    await page.get_by_role("button", name="Save and check").click()
    await expect(page.get_by_role("heading", name="News from elsewhere")).to_be_visible()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_label("Subject")).to_have_value("Copy of News from elsewhere")
    await page.get_by_role("button", name="Save and check").click()
    await page.get_by_role("link", name="Save as template").click()
    await page.get_by_label("Title").fill("From elsewhere")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("button", name="Save")).to_be_visible()


async def test_show_me_selects_the_line_and_fix_it_corrects_it(
    page: Page, site: RunningSite
) -> None:
    await sign_in_page(site, page)
    lists = await site.json("list", "all", "--json")
    if not any(each["name"] == "brought" for each in lists):
        await site.run("list", "create", "brought", "--from", "a@contoso.edu")
    await page.goto(f"{site.url}/admin/messages/new?kind=html&list=brought")
    table = '<table width="900"><tr><td>x</td></tr></table>'
    await page.get_by_label("Subject").fill("By line")
    await page.get_by_label("Body", exact=True).fill(f"<p>Hello</p>\n{table}")
    finding = page.locator("#checks li", has_text="Line 2: This is 900 pixels wide")
    await finding.get_by_role("link", name="Show me").hover()
    async with page.expect_response("**/admin/messages/preview") as answer:
        await page.mouse.down()  # the body loses the focus, which runs the checks again
    await (await answer.value).finished()
    async with page.expect_response("**/admin/messages/preview"):
        await page.mouse.up()
    body = page.locator("textarea#body")
    await expect(body).to_be_focused()
    selected = await body.evaluate(
        "each => each.value.slice(each.selectionStart, each.selectionEnd)"
    )
    assert selected == table
    await finding.get_by_role("button", name="Fix it").click()
    await expect(body).to_have_value(f"<p>Hello</p>\n{table.replace('900', '600')}")
