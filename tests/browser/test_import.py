"""Journeys around people: a file of ten thousand with bad rows, search as you type, one person."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from postroom.domain.address import parse_address
from postroom.domain.job_status import JobStatus
from postroom.flow import subscribe
from postroom.importing import jobs
from postroom.records import ask_jobs
from postroom_bench.installation import until
from tests.acting import acting
from tests.browser.chromium import Troubles, axe, expect_to_fit
from tests.browser.running_site import RunningSite
from tests.browser.signed_in import sign_in_page

PEOPLE = 10_000
RUN_S_MAX = 120.0
RUN_PAGE = re.compile(r"/admin/imports/[\w-]+$")


@pytest_asyncio.fixture
async def list_name(site: RunningSite) -> str:
    name = f"import_{uuid4().hex[:8]}"
    await site.run("list", "create", name, "--from", "a@contoso.edu")
    return name


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """As an old spreadsheet writes them: semicolons, Windows-1252, and some rows are bad."""
    path = tmp_path / "Bücher.csv"
    lines = ["Name;E-Mail;Stadt"]
    lines += [f"Ada {number};student{number:05}@contoso.edu;Köln" for number in range(PEOPLE)]
    lines[100] = "Nobody;nobody;Köln"
    lines[200] = '"Lost;lost@contoso.edu;Köln'
    lines[300] = "Eve;eve@contoso.edu;Köln"
    path.write_bytes("\r\n".join(lines).encode("cp1252"))
    return path


async def until_it_is_over(site: RunningSite, page: Page) -> None:
    """Without script a person asks again; the row tells when that pays."""
    await page.wait_for_url(RUN_PAGE)
    path = page.url.removeprefix(f"{site.url}/admin/imports/")

    async def is_over() -> bool:
        job, _ = await jobs.read(site.parts.storage.tables, path)
        return job.status is not JobStatus.RUNNING

    await until(is_over, within_s=RUN_S_MAX)


async def test_ten_thousand_people_come_in_and_the_bad_rows_are_told(
    site: RunningSite, any_page: Page, list_name: str, people: Path
) -> None:
    page = any_page
    await _gone(site, list_name, "eve@contoso.edu")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/lists/{list_name}")
    await page.get_by_role("link", name="Import a file").click()
    await page.get_by_label("File").set_input_files(people)
    await page.get_by_role("button", name="Upload").click()
    await expect(page.get_by_text("Delimiter: semicolon")).to_be_visible()
    await expect(page.get_by_text("Windows-1252")).to_be_visible()
    await expect(page.get_by_label("E-Mail contains the email addresses")).to_be_checked()
    await page.get_by_label("Attribute name for Stadt").fill("city")
    await page.get_by_label("Why are you allowed to email them?").fill(
        "The history department's own list"
    )
    await page.get_by_label("Add them as confirmed").check()
    await page.get_by_role("button", name="Check the file").click()
    await _see(site, page, "Checked: 10,000 rows")
    await expect(page.get_by_role("row", name="nobody")).to_contain_text("no @")
    await page.get_by_role("button", name="Add 9,997 people").click()
    await _see(site, page, "Done: 10,000 rows")
    await _read_report(page)
    await page.get_by_role("link", name="Show subscribers").click()
    await page.get_by_label("Start of an address").fill("student0999")
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("row")).to_have_count(11)  # ten and the heading
    await page.wait_for_load_state("networkidle")  # what was typed was looked for as well
    await page.get_by_role("link", name="student09999@contoso.edu").click()
    await expect(page.get_by_text("The history department's own list")).to_be_visible()
    await expect(page.get_by_text("Köln")).to_be_visible()


async def test_who_was_imported_unconfirmed_is_asked_and_then_confirmed_by_a_file(
    site: RunningSite, any_page: Page, list_name: str, tmp_path: Path, troubles: Troubles
) -> None:
    page, file = any_page, tmp_path / "people.csv"
    troubles.expect("422")  # the basis is left out at first
    file.write_text("email,name\nada@contoso.edu,Ada\nbob@contoso.edu,Bob\n", encoding="utf-8")
    await sign_in_page(site, page)
    await _import(site, page, list_name, file, "Add them as unconfirmed", "Add 2 people")
    await page.get_by_role("link", name="Show subscribers").click()
    await expect(page.get_by_text("2 subscribers have not confirmed.")).to_be_visible()
    await page.get_by_role("link", name="Ask them to confirm").click()
    await page.get_by_role("button", name="Send 2 confirmation emails").click()
    await page.wait_for_load_state()  # a page that is still being opened cannot be loaded again
    await _until_all_are_asked(site, list_name)
    await page.reload()
    await expect(page.get_by_role("status")).to_contain_text("2 people were asked to confirm.")
    await _upload(site, page, list_name, file)
    await page.get_by_label("Add them as confirmed").check()
    await page.get_by_role("button", name="Check the file").click()
    await expect(page.get_by_label("Why are you allowed to email them?")).to_be_focused()
    await page.get_by_label("Why are you allowed to email them?").fill(
        "They signed a list at the fair"
    )
    await page.get_by_role("button", name="Check the file").click()
    await _see(site, page, "Checked: 2 rows")
    await expect(page.get_by_text("would be confirmed")).to_be_visible()
    await page.get_by_role("button", name=f"Import into {list_name}").click()
    await _see(site, page, "Done: 2 rows")
    await page.get_by_role("button", name="Delete import").click()
    await expect(page.get_by_role("status")).to_contain_text("Deleted.")
    await page.goto(f"{site.url}/admin/subscribers?list={list_name}&status=verified")
    await expect(page.get_by_role("row")).to_have_count(3)


async def _import(
    site: RunningSite, page: Page, list_name: str, file: Path, choice: str, button: str
) -> None:
    await _upload(site, page, list_name, file)
    await page.get_by_label(choice).check()
    await page.get_by_role("button", name="Check the file").click()
    await _see(site, page, "Checked:")
    await page.get_by_role("button", name=button).click()
    await _see(site, page, "Done:")


async def _upload(site: RunningSite, page: Page, list_name: str, file: Path) -> None:
    await page.goto(f"{site.url}/admin/imports/new?list={list_name}")
    await page.get_by_label("File").set_input_files(file)
    await page.get_by_role("button", name="Upload").click()
    await page.wait_for_url("**/columns")


async def _until_all_are_asked(site: RunningSite, list_name: str) -> None:
    async def is_over() -> bool:
        found = await ask_jobs.find(site.parts.storage.tables, list_name)
        return found is not None and found[0].status is JobStatus.DONE

    await until(is_over, within_s=RUN_S_MAX)


async def _gone(site: RunningSite, list_name: str, address: str) -> None:
    await site.run("subscriber", "add", list_name, address, "--verified")
    await site.run("subscriber", "remove", list_name, address)


async def _see(site: RunningSite, page: Page, words: str) -> None:
    """With script the page changes by itself; without, one looks again."""
    await until_it_is_over(site, page)
    await page.wait_for_load_state()
    look_again = page.get_by_role("link", name="Refresh")
    if await look_again.is_visible():
        await look_again.click()
    await expect(page.get_by_role("heading", name=words)).to_be_visible()


async def _read_report(page: Page) -> None:
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download rows not imported").click()
    path = await (await download.value).path()
    rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    assert rows[0] == ["line", "value", "reason"]
    assert {row[0] for row in rows[1:]} == {"101", "201", "301"}


async def test_the_search_follows_what_is_typed_and_keeps_the_place(
    site: RunningSite, page: Page, list_name: str
) -> None:
    for name in ("ada", "adam", "bob"):
        await site.run("subscriber", "add", list_name, f"{name}@contoso.edu", "--verified")
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/subscribers?list={list_name}")
    await expect(page.get_by_role("row")).to_have_count(4)
    field = page.get_by_label("Start of an address")
    await field.press_sequentially("ADA")
    await expect(page.get_by_role("row")).to_have_count(3)
    await expect(field).to_be_focused()
    await field.press_sequentially("m")
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.reload()
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.get_by_label("Status").select_option("inactive")
    await expect(page.get_by_text("No subscribers found")).to_be_visible()


async def test_somebody_is_added_edited_and_removed(
    site: RunningSite, any_page: Page, list_name: str
) -> None:
    page = any_page
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/subscribers?list={list_name}")
    await page.get_by_role("link", name="Add the first subscriber").click()
    await page.get_by_label("Email address").fill("Ada@contoso.edu")
    await page.get_by_label("Attributes").fill("city=Köln")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("status")).to_contain_text("Added.")
    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Confirmed").check()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("They receive every message")).to_be_visible()
    await page.get_by_role("link", name="Remove").click()
    await page.get_by_role("button", name="Remove subscriber").click()
    await expect(page.get_by_text("imports won’t re-add them")).to_be_visible()
    await page.get_by_role("link", name="Re-add").click()
    await expect(page.get_by_label("Email address")).to_have_value("Ada@contoso.edu")
    await page.get_by_label("They asked to be re-added").check()
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("status")).to_contain_text("Added.")


async def test_no_page_about_people_has_a_barrier_or_is_too_wide(
    site: RunningSite, page: Page, list_name: str, people: Path
) -> None:
    tables, now = site.parts.storage.tables, site.parts.clock.now()
    ada = parse_address("ada@contoso.edu")
    one = await subscribe.add(acting(tables, now), list_name, ada, {"city": "Köln"}, verified=True)
    await sign_in_page(site, page)
    await page.goto(f"{site.url}/admin/imports/new?list={list_name}")
    await page.get_by_label("File").set_input_files(people)
    await page.get_by_role("button", name="Upload").click()
    await page.wait_for_url("**/columns")
    columns = page.url
    person = f"{site.url}/admin/subscribers/{list_name}/{one.guid}"
    for url in (
        columns,
        f"{site.url}/admin/imports",
        f"{site.url}/admin/imports/new",
        f"{site.url}/admin/subscribers",
        f"{site.url}/admin/subscribers?list={list_name}",
        f"{site.url}/admin/subscribers?list={list_name}&q=nobody",
        f"{site.url}/admin/subscribers/new?list={list_name}",
        f"{site.url}/admin/subscribers/ask?list={list_name}",
        person,
        f"{person}/edit",
        f"{person}/remove",
    ):
        await page.goto(url)
        await _has_no_barrier(page)
    await page.goto(columns)
    await page.get_by_label("Add them as unconfirmed").check()
    await page.get_by_role("button", name="Check the file").click()
    await _see(site, page, "Checked: 10,000 rows")
    await _has_no_barrier(page)


async def _has_no_barrier(page: Page) -> None:
    assert await axe(page) == [], page.url
    await page.set_viewport_size({"width": 360, "height": 740})
    await expect_to_fit(page)
    await page.set_viewport_size({"width": 1280, "height": 800})
