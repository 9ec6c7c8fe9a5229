"""Notices: said once, after what they speak of, and nowhere in an address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from postroom.web import notices
from tests.web.drafts import etag_of, written
from tests.web.office import LIST
from tests.web.signed_in import Worker, at_work, notice_in

COOKIE = "__Host-postroom-notice"


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path) as worker:
        yield worker


async def saved(editor: Worker) -> httpx2.Response:
    """The redirect after the list's form was sent."""
    path = f"/admin/lists/{LIST}/edit"
    etag = etag_of((await editor.get(path)).text)
    return await editor.post(path, sender="a@contoso.edu", etag=etag)


async def test_a_notice_is_shown_once_and_is_in_no_address(editor: Worker) -> None:
    answer = await saved(editor)
    assert answer.headers["location"] == f"/admin/lists/{LIST}"
    assert "Saved." in (await editor.get(answer.headers["location"])).text
    again = await editor.get(answer.headers["location"])
    assert "Saved." not in again.text
    assert "set-cookie" not in again.headers  # nothing to clear any more


async def test_the_cookie_of_a_notice_is_for_this_host_and_this_minute_alone(
    editor: Worker,
) -> None:
    [cookie] = (await saved(editor)).headers.get_list("set-cookie")
    assert cookie.startswith(f"{COOKIE}=saved;")
    for part in ("HttpOnly", "Secure", "Path=/", "SameSite=lax", "Max-Age=60"):
        assert part in cookie


async def test_a_part_of_a_page_does_not_take_the_notice_of_the_page(editor: Worker) -> None:
    answer = await saved(editor)
    part = await editor.browser.get("/admin/subscribers", headers={"hx-request": "true"})
    assert "Saved." not in part.text
    assert "Saved." in (await editor.get(answer.headers["location"])).text


async def test_a_form_that_is_shown_again_does_not_take_the_notice_of_another_page(
    editor: Worker,
) -> None:
    answer = await saved(editor)
    refused = await editor.post("/admin/lists/new", name="", sender="")
    assert refused.status_code == 422
    assert "Saved." not in refused.text
    assert "Saved." in (await editor.get(answer.headers["location"])).text


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "hello",
        "%3Cb%3E",
        "sending",
        "sending|many",
        "sending|1|2",
        "scheduled|nan|UTC|1|0",
        "scheduled|1e99|UTC|1|0",
        "scheduled|inf|../../etc/passwd|1|0",
        "|||||||",
        "x" * 4000,
    ],
)
def test_what_is_no_notice_of_ours_is_not_shown(cookie: str) -> None:
    assert notices.notice_of(cookie) is None


async def test_a_page_with_a_cookie_of_somebody_else_is_shown_without_a_notice(
    editor: Worker,
) -> None:
    editor.browser.cookies.set(COOKIE, "scheduled|now|<b>|9")
    assert 'role="status"' not in (await editor.get("/admin/lists")).text


@pytest.mark.parametrize(
    ("cookie", "sentence"),
    [
        ("sending|1", "Sending to 1 subscriber has started."),
        ("sending|12345", "Sending to 12,345 subscribers has started."),
        (
            "scheduled|1794902400|Europe%2FBerlin|9|1794900000",
            "Scheduled for Tue 17 Nov, 09:00 (Europe/Berlin), 9 subscribers.",
        ),
        (
            "scheduled|1794902400|%2B01%3A00|1|1700000000",
            "Scheduled for Tue 17 Nov 2026, 09:00 (+01:00), 1 subscriber.",
        ),
        (
            "scheduled|1794902400||0|1794900000",
            "Scheduled for Tue 17 Nov, 08:00 (UTC). Nobody on the list is confirmed yet.",
        ),
    ],
)
def test_a_notice_says_what_was_done(cookie: str, sentence: str) -> None:
    notice = notices.notice_of(cookie)
    assert notice
    assert str(notice.text) == sentence


async def test_a_notice_survives_the_way_through_a_browser(editor: Worker) -> None:
    """Zones have slashes, and cookies are particular about what they hold."""
    await editor.office.join(verified=True)
    path = await written(editor)
    etag = etag_of((await editor.get(f"{path}/schedule")).text)
    when = {"date": "2026-12-01", "time": "09:30", "zone": "Europe/Berlin"}
    answer = await editor.post(f"{path}/schedule", **when, etag=etag)
    assert notice_in(answer) == "scheduled"
    page = (await editor.get(path)).text
    assert "Scheduled for Tue 1 Dec, 09:30 (Europe/Berlin), 1 subscriber." in page
