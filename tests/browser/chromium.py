"""A real Chromium that reaches this machine alone, and a watch over what its pages do unseen."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Route,
    WebError,
    async_playwright,
    expect,
)
from playwright.async_api import Error as PlaywrightError

from postroom_bench.installation import until

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # containers run as root and have no namespaces to give
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
IS_TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
ELSEWHERE = re.compile(r"^(?!http://127\.0\.0\.1[:/])")
WAIT_MS_MAX = 60_000.0  # for one step of a journey, on a busy machine
LEAVE_MS_MAX = 5_000.0  # a test that refuses to leave a page is over all the same
# htmx says both as errors when a page gives up a request: it went elsewhere, or asks anew.
# The first comes before every failure, and the line after it says which.
GIVEN_UP = ("htmx:afterRequest", "htmx:sendAbort")
# Chromium says these on the console too, but not all of them, and not on every kind of page.
TELL_VIOLATIONS = """addEventListener("securitypolicyviolation", event => console.error(
    `Content Security Policy: ${event.effectiveDirective} forbids ${event.blockedURI}`), true)"""


def find_chromium() -> str:
    for name in (os.environ.get("CHROMIUM"), *NAMES):
        if name and (path := shutil.which(name)):
            return path
    pytest.fail("Chromium is missing: ./dev test brings it, or set CHROMIUM to the path of one.")


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=WAIT_MS_MAX)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_chromium(), headless=True, args=FLAGS
        )
        yield browser
        await browser.close()


@dataclass
class Troubles:
    """What went wrong behind a page's face: every one must be expected, and the other way round."""

    found: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def expect(self, words: str) -> None:
        """A trouble with these words in it belongs to this journey."""
        self.expected.append(words)

    def surprises(self) -> list[str]:
        unexpected = [t for t in self.found if not any(words in t for words in self.expected)]
        missing = [words for words in self.expected if not any(words in t for t in self.found)]
        return unexpected + [f"expected, and did not happen: {words}" for words in missing]

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(GIVEN_UP):
            self.found.append(f"console: {message.text}")

    def note_error(self, error: WebError) -> None:
        self.found.append(f"script: {error.error}")

    def note_failure(self, request: Request) -> None:
        """Given up by the page itself is no failure: it went elsewhere, or it is a download."""
        if request.failure != "net::ERR_ABORTED":
            self.found.append(f"request: {request.method} {request.url}: {request.failure}")


@asynccontextmanager
async def open_page(
    browser: Browser, troubles: Troubles, *, script: bool = True
) -> AsyncIterator[Page]:
    """A page of a person nobody has seen before; its troubles are complete when it is closed."""
    context = await browser.new_context(
        java_script_enabled=script,
        reduced_motion="reduce",  # colours are measured at rest
        service_workers="block",
        viewport={"width": 1280, "height": 800},
    )
    context.set_default_timeout(WAIT_MS_MAX)
    context.on("console", troubles.note_console)
    context.on("weberror", troubles.note_error)
    context.on("requestfailed", troubles.note_failure)
    await context.add_init_script(TELL_VIOLATIONS)
    await context.route(ELSEWHERE, refuse)
    try:
        yield await context.new_page()
    finally:
        for page in context.pages:  # Chromium may never close one that is still loading
            with contextlib.suppress(PlaywrightError):
                await page.goto("about:blank", timeout=LEAVE_MS_MAX)
        await context.close()


async def refuse(route: Route) -> None:
    await route.abort("blockedbyclient")


@asynccontextmanager
async def watched_page(
    browser: Browser, troubles: Troubles, *, script: bool = True
) -> AsyncIterator[Page]:
    """A page that must have had the expected troubles and no other."""
    async with open_page(browser, troubles, script=script) as page:
        yield page
    surprises = troubles.surprises()
    assert not surprises, "\n".join(surprises)


AXE = Path(__file__).parent / "vendor" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The dark changes colours and nothing else, so there only the rules about colours are asked again.
SCHEMES: dict[Literal["light", "dark"], dict[str, object]] = {
    "light": {"type": "tag", "values": RULES},
    "dark": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}
RUN_AXE = """async rules => {
    const results = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})
    return results.violations.flatMap(rule => rule.nodes.map(
        node => `${rule.id}: ${node.target.join(" ")}: ${rule.help}`))
}"""


async def axe(page: Page) -> list[str]:
    """One line for every barrier that axe-core finds, in light and in dark."""
    # By the debugger, which no Content Security Policy stops; a script element would be.
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    barriers = []
    for scheme, rules in SCHEMES.items():
        await page.emulate_media(color_scheme=scheme)
        barriers += [f"{scheme}: {found}" for found in await page.evaluate(RUN_AXE, rules)]
    return barriers


async def expect_to_fit(page: Page) -> None:
    """Wait until nothing is wider than the window, which a busy browser may lay out late."""

    async def fits() -> bool:
        return not await page.evaluate(IS_TOO_WIDE)

    try:
        await until(fits, within_s=WAIT_MS_MAX / 1000)
    except TimeoutError:
        pytest.fail(f"{page.url} is wider than the window")
