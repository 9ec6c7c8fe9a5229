"""The watch over pages sees what it is there for; otherwise a quiet journey would prove nothing."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Error, Page, Route

from tests.browser.chromium import Troubles, axe, open_page, watched_page

URL = "http://127.0.0.1/made-up"
STRICT = "default-src 'none'"
LAX = "default-src * 'unsafe-inline'"
SCRIPT_ERROR = "<script>throw new Error('broken')</script>"
BAD = [
    (LAX, "<script>console.error('oh dear')</script>", "console: oh dear"),
    (LAX, SCRIPT_ERROR, "script: broken"),
    (LAX, "<img src='http://contoso.edu/x' alt=''>", "request: GET http://contoso.edu/x"),
    (LAX, "<img src='http://127.0.0.1:1/x' alt=''>", "request: GET http://127.0.0.1:1/x"),
    (STRICT, "<p style='color:red'>", "Policy: style-src-attr forbids inline"),  # by our listener
    (STRICT, "<p style='color:red'>", "inline style violates"),  # by Chromium
]


async def show(page: Page, policy: str, content: str) -> None:
    """A page that no server made."""

    async def fulfill(route: Route) -> None:
        headers = {"Content-Type": "text/html", "Content-Security-Policy": policy}
        await route.fulfill(headers=headers, body=content)

    await page.route(URL, fulfill)
    await page.goto(URL)


@pytest.mark.parametrize(("policy", "content", "trouble"), BAD)
async def test_a_trouble_on_a_page_is_seen(
    browser: Browser, policy: str, content: str, trouble: str
) -> None:
    troubles = Troubles()
    async with open_page(browser, troubles) as page:
        await show(page, policy, content)
    assert trouble in "\n".join(troubles.surprises())


async def test_a_broken_policy_is_seen_without_script_too(browser: Browser) -> None:
    troubles = Troubles()
    async with open_page(browser, troubles, script=False) as page:
        await show(page, STRICT, "<img src='http://127.0.0.1/x' alt=''>")
    assert "Content Security Policy" in "\n".join(troubles.surprises())


async def test_without_script_no_script_runs(page_without_script: Page) -> None:
    await show(page_without_script, LAX, SCRIPT_ERROR)


async def test_a_page_with_a_surprise_fails_its_journey(browser: Browser) -> None:
    with pytest.raises(AssertionError, match="broken"):
        async with watched_page(browser, Troubles()) as page:
            await show(page, LAX, SCRIPT_ERROR)


async def test_an_expected_trouble_must_happen(browser: Browser) -> None:
    troubles = Troubles()
    troubles.expect("broken")
    with pytest.raises(AssertionError, match="did not happen: broken"):
        async with watched_page(browser, troubles):
            pass


async def test_the_browser_opens_nothing_elsewhere(page: Page, troubles: Troubles) -> None:
    troubles.expect("request: GET http://contoso.edu/")
    with pytest.raises(Error, match="ERR_BLOCKED_BY_CLIENT"):
        await page.goto("http://contoso.edu/")


async def test_axe_finds_what_only_the_dark_hides(page: Page) -> None:
    dim = "@media (prefers-color-scheme: dark) { body { background: #222 } h1 { color: #333 } }"
    content = f"<main><h1>Dim</h1></main><style>{dim}</style>"
    await show(page, LAX, f"<!doctype html><html lang='en'><title>Dim</title>{content}</html>")
    [found] = await axe(page)
    assert found.startswith("dark: color-contrast: h1: ")
